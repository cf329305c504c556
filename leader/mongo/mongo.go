// Package mongo elects leaders on MongoDB, for programs that need nothing but leader election. It makes an election
// straight from a *mongo.Database, or from client options. Programs that also need locks or several elections should
// open one session with package dsync/mongo, and make everything on it (elections with leader.New).
//
// Import it as leadermongo, since it shares its name with the driver's package.
package mongo

import (
	"context"
	"errors"
	"fmt"

	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/leasehold-go/leasehold/dsync"
	dsyncmongo "github.com/leasehold-go/leasehold/dsync/mongo"
	"github.com/leasehold-go/leasehold/leader"
)

// Options are the settings of [Open] and [Connect]. The zero value of each field
// is its default; a nil *Options is all defaults.
type Options struct {
	// Election has the election's settings: the published value and the hooks.
	Election leader.Options

	// Store has the settings of the store, such as the collection. Its field Session has the
	// session's settings, such as the TTL, the identity that others see and the logger.
	Store dsyncmongo.Options
}

// An Election is a leader.Election with a session of its own.
type Election struct {
	*leader.Election
	s *dsync.Session
}

// Open returns the election of that name in db. It uses the caller's client unchanged and never closes it. See
// dsyncmongo.Open for how sharing the client affects heartbeats, and how soon candidates are notified after a
// fail-over. Close the election when it is no longer needed. Errors are those of dsyncmongo.Open and leader.New.
func Open(ctx context.Context, db *mongo.Database, name string, opt *Options) (*Election, error) {
	return open(ctx, name, opt, func(o *dsyncmongo.Options) (*dsync.Session, error) {
		return dsyncmongo.Open(ctx, db, o)
	})
}

// Connect is [Open] with a small client of its own, so that the application's slow queries cannot delay
// heartbeats. If database is "", Connect uses the database named in the connection string. See
// dsyncmongo.Connect.
func Connect(ctx context.Context, clientOptions *options.ClientOptions, database, name string, opt *Options) (*Election, error) {
	return open(ctx, name, opt, func(o *dsyncmongo.Options) (*dsync.Session, error) {
		return dsyncmongo.Connect(ctx, clientOptions, database, o)
	})
}

func open(ctx context.Context, name string, opt *Options, session func(*dsyncmongo.Options) (*dsync.Session, error)) (*Election, error) {
	if err := dsync.CheckKey(name); err != nil { // check the name before waiting for the server
		return nil, fmt.Errorf("leader: name of the election: %w", err)
	}
	var o Options
	if opt != nil {
		o = *opt
	}
	s, err := session(&o.Store)
	if err != nil {
		return nil, err
	}
	e, err := leader.New(s, name, &o.Election)
	if err != nil {
		return nil, errors.Join(err, s.Close(ctx))
	}
	return &Election{Election: e, s: s}, nil
}

// Session returns the election's session. Other elections, groups and locks can be made on it.
func (e *Election) Session() *dsync.Session { return e.s }

// Close ends the term, if this process leads, and closes the session: see dsync.Session.Close.
// A leader is notified and has the session's grace to finish its work.
func (e *Election) Close(ctx context.Context) error { return e.s.Close(ctx) }
