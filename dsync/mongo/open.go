package mongo

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/leasehold-go/leasehold/clockcheck"
	"github.com/leasehold-go/leasehold/dsync"
	"github.com/leasehold-go/leasehold/dsync/driver"
	"github.com/leasehold-go/leasehold/internal/mongoclient"
	"github.com/leasehold-go/leasehold/internal/mongouri"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"
)

const (
	// disconnectLimit bounds the wait for a server that may not answer.
	disconnectLimit = time.Second

	// defaultTTL is the default TTL of dsync.Options.
	defaultTTL = 30 * time.Second
)

// Open returns a session that keeps its locks in db. It uses the caller's client as it is, and never closes it. A nil
// *Options means the defaults.
//
// ctx bounds the first contact with the server; without a deadline the bound is 30 seconds. Open asks the server what
// it is, and writes a record to check that the user may write. If the server is MongoDB, and its version has passed
// the probe on this collection before, Open sends only these two commands. Otherwise it also tries the store's
// commands (see the package comment), which takes fifty-nine more, or forty-seven on a sharded
// cluster.
//
// Open waits until a server can be reached, and keeps trying through temporary states: a fail-over, an overloaded
// server, an interrupted operation, or writes that are blocked because a disk is full. Meanwhile it logs a warning
// once a minute. If the server does not answer a command within 30 seconds, Open starts again. Otherwise, all
// commands together may take as long as ctx allows. If waiting cannot fix an error, Open returns it at once: for
// example, a missing right, a wrong password, or a server that does not compute the same as MongoDB.
//
// The session's heartbeats share the client's connection pool with the application. If slow queries occupy all
// connections (maxPoolSize), heartbeats are delayed. If this goes on for long, locks are lost. Make the pool large
// enough, or use [Connect].
//
// On a replica set, a session returned by Open does not learn of a new primary as soon as the driver does, because a
// monitor can't be added to an existing client. After a fail-over, its waiters get no notices until the next
// heartbeat, but for ten seconds at most. Use [Connect], or set [Options].PrimaryWatch.
func Open(ctx context.Context, db *mongo.Database, opt *Options) (*dsync.Session, error) {
	s, err := newStore(db, opt)
	if err != nil {
		return nil, err
	}
	return open(ctx, s, s, opt)
}

// Connect is [Open] with a client of its own. So the application's slow queries cannot delay heartbeats, and after a
// fail-over waiters get notices again as soon as the driver knows the new primary (see [PrimaryWatch]). The client is
// made from clientOptions, and is closed when the session is closed.
//
// Unless clientOptions say otherwise, the client has the application name "leasehold", and at most 36 connections to
// each server, so that a heartbeat always finds a free one. Its time-outs follow from the TTL. It gives up connecting
// after TTL/12 (1 s to 30 s), and checks the servers every TTL/6 (500 ms to 10 s). It closes connections that were
// idle for TTL/2 or, if that is longer, for 1.5 times the HeartbeatInterval. It polls the servers
// (ServerMonitoringModePoll): this takes one connection to each server instead of two, but the client may learn of a
// planned step-down up to TTL/6 late. An idle session has two connections to the primary, and one that waits has
// three. The functions of a ServerMonitor are called as usual.
//
// If database is "", Connect uses the database in the connection string or, if there is none, "leasehold", as the
// command leasehold does. In this case it refuses the server's own databases: many connection strings name admin,
// because the user is defined there. An error about a malformed connection string quotes nothing from it, because the
// quoted part could contain the password.
func Connect(ctx context.Context, clientOptions *options.ClientOptions, database string, opt *Options) (*dsync.Session, error) {
	if clientOptions == nil {
		return nil, errors.New("mongo: the client options are nil; pass some, as options.Client().ApplyURI(\"mongodb://…\")")
	}
	if err := mongouri.Redact(clientOptions.Validate()); err != nil {
		return nil, fmt.Errorf("mongo: connect: %w", err)
	}
	if err := nameDatabase(&database, clientOptions.GetURI()); err != nil {
		return nil, err
	}
	merged, watch := options.MergeClientOptions(ownClient(opt), clientOptions), new(PrimaryWatch)
	merged.SetServerMonitor(watch.ServerMonitor(merged.ServerMonitor))
	client, err := mongo.Connect(merged)
	if err != nil {
		return nil, fmt.Errorf("mongo: connect: %w", mongouri.Redact(err))
	}
	s, err := newStore(client.Database(database), opt)
	own := &ownedStore{s, client}
	if err != nil {
		return nil, errors.Join(err, own.Close(noValues{ctx}))
	}
	s.primary = watch
	session, err := open(ctx, own, s, opt)
	if err != nil && mongo.IsTimeout(err) {
		// The driver's error says only that a deadline was exceeded.
		err = fmt.Errorf("%w; if TCP, TLS and authentication may take longer than %v, raise SetConnectTimeout", err, *merged.ConnectTimeout)
	}
	return session, err
}

// nameDatabase sets *name, if it is empty, to the database in the connection string, and checks it.
func nameDatabase(name *string, uri string) error {
	own, err := mongouri.Database(uri)
	if err != nil {
		return fmt.Errorf("mongo: %w", err)
	}
	if *name == "" {
		if *name = own; mongouri.ServersOwn(own) {
			return fmt.Errorf("mongo: the database of the connection string is %q, which is the server's own; pass the name of the database for locks", own)
		}
	}
	return checkDatabase(*name)
}

// ownClient returns the client options that Connect uses unless its caller sets them.
func ownClient(opt *Options) *options.ClientOptions {
	ttl, interval := defaultTTL, time.Duration(0)
	if opt != nil {
		ttl, interval = cmp.Or(opt.Session.TTL, ttl), opt.Session.HeartbeatInterval
	}
	return mongoclient.Options(ttl, interval)
}

// open makes the session before it contacts the server, so that it reports invalid options
// without waiting for the server.
func open(ctx context.Context, face driver.Store, s *store, opt *Options) (*dsync.Session, error) {
	var so *dsync.Options
	if opt != nil {
		so = &opt.Session
	}
	session, err := dsync.New(face, so)
	if err != nil {
		if own, ok := face.(*ownedStore); ok {
			err = errors.Join(err, own.Close(noValues{ctx}))
		}
		return nil, err
	}
	err = s.contact(ctx)
	if err == nil && opt != nil && opt.ClockCheck != nil {
		err = s.checkClock(ctx, opt.ClockCheck, session.Options().Margin)
	}
	if err != nil {
		return nil, errors.Join(err, session.Close(noValues{ctx}))
	}
	return session, nil
}

// checkClock checks this host's clock, and warns if the servers' clocks differ by more than the margin.
func (s *store) checkClock(ctx context.Context, opt *clockcheck.Options, margin time.Duration) error {
	r, err := clockcheck.Check(noValues{ctx}, s.db.Client(), opt)
	if err != nil {
		return fmt.Errorf("mongo: %w", err)
	}
	s.log.Info("leasehold: checked the clock", slog.Any("clock", r))
	if r.Spread > margin {
		s.log.Warn("leasehold: the servers' clocks are farther apart than the margin: a fail-over can shorten a lease; synchronize the clocks, or raise Margin",
			slog.Duration("spread", r.Spread), slog.Duration("margin", margin))
	}
	return nil
}

// An ownedStore is a store with a client of its own. When the session is closed, it closes the store last.
type ownedStore struct {
	*store
	client *mongo.Client
}

var _ driver.Store = (*ownedStore)(nil)

// Close disconnects the client. It returns within a second, even if the server does not answer.
func (s *ownedStore) Close(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(noValues{ctx}, disconnectLimit)
	defer cancel()
	if err := s.client.Disconnect(ctx); err != nil && ctx.Err() == nil {
		return fmt.Errorf("mongo: disconnect: %w", err)
	}
	return nil // even after a timeout, the driver has closed all its connections
}
