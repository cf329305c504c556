package main

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/leasehold-go/leasehold/dsync"
	dsyncmongo "github.com/leasehold-go/leasehold/dsync/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"
	"go.mongodb.org/mongo-driver/v2/x/mongo/driver"
	"go.mongodb.org/mongo-driver/v2/x/mongo/driver/connstring"
	"go.mongodb.org/mongo-driver/v2/x/mongo/driver/topology"
)

// A target is where the locks are, and as whom they are asked for: the flags that
// all commands have.
type target struct {
	uri, db, collection, name string
	ttl, timeout              time.Duration
}

// resolve fills in what was not given, and refuses what can't be.
func (a *app) resolve() (target, error) {
	t := a.target
	if t.uri == "" {
		t.uri = a.getenv("MONGODB_URI")
	}
	if t.uri == "" {
		return t, usagef("no server is named; give --uri mongodb://…, or set MONGODB_URI")
	}
	cs, err := connstring.ParseAndValidate(t.uri)
	if err != nil {
		return t, usagef("the connection string of --uri or MONGODB_URI can't be used: %w", err)
	}
	if t.db == "" {
		t.db = cs.Database
	}
	if t.db == "" {
		t.db = "leasehold"
	}
	if t.timeout <= 0 {
		return t, usagef("--connect-timeout is %v; it must be positive", t.timeout)
	}
	return t, nil
}

// connect returns a session on the store that the flags name. It writes nothing
// that stays until it is used to hold something or to wait. opt is what a command
// wants the session to be; TTL, Name and App are the flags'. The caller closes it.
func (a *app) connect(ctx context.Context, opt dsync.Options) (*dsync.Session, error) {
	opt.TTL, opt.Name, opt.App = a.target.ttl, a.target.name, "leasehold"
	if err := checkOptions(opt); err != nil {
		return nil, err
	}
	if a.store != nil {
		return dsync.New(a.store, &opt)
	}
	t, err := a.resolve()
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, t.timeout)
	defer cancel()
	s, err := dsyncmongo.Connect(ctx, t.options(), t.db, &dsyncmongo.Options{Collection: t.collection, Options: opt})
	if err != nil {
		return nil, t.unreached(err)
	}
	return s, nil
}

// checkOptions says what is wrong with options that the flags made.
func checkOptions(opt dsync.Options) error {
	// A session on no store, for what it says of them.
	if _, err := dsync.New(struct{ dsync.Store }{}, &opt); err != nil {
		return usage(err)
	}
	return nil
}

// ask has f ask the server itself, in the database that the flags name. It contacts
// nobody.
func (a *app) ask(ctx context.Context, f func(target, *mongo.Database) error) error {
	t, err := a.resolve()
	if err != nil {
		return err
	}
	client, err := mongo.Connect(t.options())
	if err != nil {
		return usage(err)
	}
	defer client.Disconnect(context.WithoutCancel(ctx)) // all that matters was answered
	return f(t, client.Database(t.db))
}

func (t target) options() *options.ClientOptions {
	return options.Client().ApplyURI(t.uri).SetServerSelectionTimeout(t.timeout)
}

// unreached is the failure of a first contact with the server that ended with err.
func (t target) unreached(err error) error {
	hosts := strings.Join(t.options().Hosts, ",")
	var server topology.ServerSelectionError
	var refusal driver.Error
	switch {
	case errors.Is(err, context.Canceled):
		return failed(err)
	case errors.As(err, &refusal) && !refusal.NetworkError(), errors.Is(err, dsync.ErrRefused):
		return refused(err)
	case errors.As(err, &server), mongo.IsTimeout(err), mongo.IsNetworkError(err):
		why := ""
		for _, s := range server.Desc.Servers {
			if s.LastError != nil {
				why = ": " + s.LastError.Error()
			}
		}
		return &failure{exitUnreachable, fmt.Errorf("no server answers at %s within %v%s; is it running, and can it be reached from here?", hosts, t.timeout, why)}
	}
	return failed(err)
}

// refused is the failure of a server that answers, and refuses.
func refused(err error) error {
	return &failure{exitRefused, fmt.Errorf("the server refuses: %w; find, insert, update and remove on the collection are needed (readWrite on the database has them)", err)}
}
