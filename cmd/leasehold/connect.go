package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"strings"
	"time"

	"github.com/leasehold-go/leasehold/dsync"
	"github.com/leasehold-go/leasehold/dsync/admin"
	"github.com/leasehold-go/leasehold/dsync/driver"
	dsyncmongo "github.com/leasehold-go/leasehold/dsync/mongo"
	"github.com/leasehold-go/leasehold/internal/engine"
	"github.com/leasehold-go/leasehold/internal/mongouri"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"
	mongodriver "go.mongodb.org/mongo-driver/v2/x/mongo/driver"
	"go.mongodb.org/mongo-driver/v2/x/mongo/driver/connstring"
	"go.mongodb.org/mongo-driver/v2/x/mongo/driver/topology"
)

// A target holds the flags that all commands have: where the locks are stored, and this process's
// name and TTL.
type target struct {
	uri, db, collection, name string
	ttl, timeout              time.Duration
	dialer                    options.ContextDialer // nil: the network; tests use a fake server
}

// resolve returns the target with its defaults, or an error if it is invalid.
func (a *app) resolve() (target, error) {
	t := a.target
	if t.uri == "" {
		t.uri = a.getenv("MONGODB_URI")
	}
	if t.uri == "" {
		return t, usagef("no server is given; use --uri mongodb://…, or set MONGODB_URI")
	}
	database, err := mongouri.Database(t.uri)
	if err != nil {
		return t, usagef("%w", err)
	}
	_, err = connstring.ParseAndValidate(t.uri)
	if dns := unresolved(err); dns != nil { // parsing a mongodb+srv:// string looks up the name
		return t, dns
	}
	if err != nil {
		return t, usagef("the connection string of --uri or MONGODB_URI can't be used: %w", mongouri.Redact(err))
	}
	t.db = cmp.Or(t.db, database)
	if t.timeout <= 0 {
		return t, usagef("--connect-timeout is %v; it must be positive", t.timeout)
	}
	return t, nil
}

// connect returns a session on the store that the flags name. The session registers in the store when it first has to,
// for example to acquire or break a key. The caller must close the session. The TTL, Name, App and Logger of opt are
// ignored: connect sets them.
func (a *app) connect(ctx context.Context, opt dsync.Options) (*dsync.Session, error) {
	opt.TTL, opt.Name, opt.App = a.target.ttl, a.target.name, "leasehold"
	opt.Logger = slog.New(slog.DiscardHandler) // the commands print messages of their own
	if err := checkOptions(opt); err != nil {
		return nil, err
	}
	s, err := a.session(ctx, opt)
	if err != nil || a.trace == "" {
		return s, err
	}
	f, err := os.Create(a.trace)
	if err != nil {
		return nil, errors.Join(err, s.Close(ctx))
	}
	engine.Of(s).Record(f) // the file stays open until the process exits
	return s, nil
}

func (a *app) session(ctx context.Context, opt dsync.Options) (*dsync.Session, error) {
	if a.store != nil {
		return dsync.New(a.store, &opt)
	}
	t, err := a.resolve()
	if err != nil {
		return nil, err
	}
	if err := t.forLocks(); err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, t.timeout)
	defer cancel()
	s, err := dsyncmongo.Connect(ctx, t.options(), t.db, &dsyncmongo.Options{Collection: t.collection, Session: opt})
	if err != nil {
		return nil, t.unreached(err)
	}
	return s, nil
}

// checkOptions returns an error if the flags result in invalid options.
func checkOptions(opt dsync.Options) error {
	// New validates opt. The session is not used, so its store needs no methods.
	if _, err := dsync.New(struct{ driver.Store }{}, &opt); err != nil {
		return usage(err)
	}
	return nil
}

// withDatabase calls f with the database that the flags name. withDatabase itself does not contact the server.
func (a *app) withDatabase(ctx context.Context, f func(target, *mongo.Database) error) error {
	t, err := a.resolve()
	if err != nil {
		return err
	}
	client, err := mongo.Connect(t.options())
	if dns := unresolved(err); dns != nil {
		return dns
	}
	if err != nil {
		return usage(mongouri.Redact(err))
	}
	defer client.Disconnect(context.WithoutCancel(ctx)) // ignore an error: it can't affect what f has done
	return f(t, client.Database(t.db))
}

// forLocks returns an error if the database is one that the server uses itself, such as admin.
// Connection strings often name admin, because the users are stored there.
func (t target) forLocks() error {
	if mongouri.ServersOwn(t.db) {
		return usagef("the database is %q, which belongs to the server; name the database for the locks with --db", t.db)
	}
	return nil
}

// String describes the servers and the collection for people, without a password, such as
// "db1,db2/app.leasehold".
func (t target) String() string {
	return fmt.Sprintf("%s/%s.%s", strings.Join(t.options().Hosts, ","), t.db, t.collection)
}

func (t target) options() *options.ClientOptions {
	o := options.Client().ApplyURI(t.uri).SetServerSelectionTimeout(t.timeout)
	if t.dialer != nil {
		o.SetDialer(t.dialer)
	}
	return o
}

// unreached returns the failure for err, an error of the server or of an attempt to reach it.
func (t target) unreached(err error) error {
	if errors.As(err, new(*failure)) {
		return failed(err)
	}
	if dns := unresolved(err); dns != nil {
		return dns
	}
	hosts := strings.Join(t.options().Hosts, ",")
	var server topology.ServerSelectionError
	var refusal mongodriver.Error
	switch {
	case errors.Is(err, context.Canceled):
		return failed(err)
	case errors.As(err, &refusal) && !refusal.NetworkError(), errors.Is(err, dsync.ErrRefused):
		return refused(err)
	case errors.As(err, &server), mongo.IsTimeout(err), mongo.IsNetworkError(err):
		why := ""
		if last := lastError(server); last != nil {
			why = ": " + last.Error()
		}
		return &failure{exitUnreachable, fmt.Errorf("no server answers at %s within %v%s; is it running, and reachable from here?", hosts, t.timeout, why)}
	}
	return failed(err)
}

// lastError returns the error that explains why the driver found no server, or nil if there is
// none.
func lastError(selection topology.ServerSelectionError) (last error) {
	for _, s := range selection.Desc.Servers {
		if s.LastError != nil {
			last = s.LastError
		}
	}
	return last
}

// unresolved returns a failure if err means that a name could not be looked up, otherwise nil.
func unresolved(err error) error {
	var dns *net.DNSError
	if !errors.As(err, &dns) {
		return nil
	}
	return &failure{exitUnreachable, fmt.Errorf("the server's name can't be looked up: %w; is it right, and does DNS work here?", dns)}
}

// refused returns the failure for err, which the server returned when it refused a command.
func refused(err error) error {
	return &failure{exitRefused, fmt.Errorf("the server refuses: %w; leasehold needs find, insert, update and remove on the collection (readWrite on the database has them)", err)}
}

// A view is the store opened read-only: it writes nothing, and its session never
// registers.
type view struct {
	*admin.Inspector
	session *dsync.Session
	store   driver.Store
	target  target
}

// view calls f with a view of the store that the flags name.
func (a *app) view(ctx context.Context, f func(context.Context, *view) error) error {
	if a.store != nil {
		return openView(ctx, &view{store: a.store}, f)
	}
	return a.withDatabase(ctx, func(t target, db *mongo.Database) error {
		if err := t.forLocks(); err != nil {
			return err
		}
		first, cancel := context.WithTimeout(ctx, t.timeout)
		defer cancel()
		store, err := dsyncmongo.NewStore(first, db, &dsyncmongo.Options{Collection: t.collection, ReadOnly: true})
		if err != nil {
			return t.unreached(err)
		}
		return openView(ctx, &view{store: store, target: t}, f)
	})
}

func openView(ctx context.Context, v *view, f func(context.Context, *view) error) error {
	s, err := dsync.New(v.store, nil)
	if err != nil {
		return err
	}
	defer s.Close(ctx) // this session holds nothing, so an error does not matter
	v.session, v.Inspector = s, admin.New(s)
	if err := f(ctx, v); err != nil {
		return v.target.unreached(err)
	}
	return nil
}
