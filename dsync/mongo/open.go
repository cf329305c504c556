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
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"
)

const (
	// ownPool has a connection for each command that a session has under way at a time,
	// which are 32 at most, one for heartbeats, which so never wait for another, one for
	// the watch, one to listen, and one for what begins or ends a session. They are made
	// when they are needed.
	ownPool = 36

	// disconnectLimit bounds the farewell to a server that may not answer.
	disconnectLimit = time.Second

	// defaultTTL is that of dsync.Options.
	defaultTTL = 30 * time.Second

	// minConnect is for handshakes, TLS and authentication with a server far away,
	// minMonitor the least that the driver takes; the others are its defaults.
	minConnect    = time.Second
	minMonitor    = 500 * time.Millisecond
	driverConnect = 30 * time.Second
	driverMonitor = 10 * time.Second
)

// Open returns a session that keeps its locks in db, on the caller's client,
// which it uses as it is and never closes. A nil *Options is all defaults.
//
// ctx bounds the first contact with the server, 30 seconds where it has no deadline: Open
// asks the server who it is and tries its commands out (see the package's comment). That
// costs twenty-seven small commands. Until then it waits for a server that can be
// reached, and tries again through a fail-over. What waiting can't mend, such as a
// missing right or a server that computes something else, is an error at once.
//
// The session's heartbeats share the client's connections with the application:
// when slow queries have taken all of them (maxPoolSize), heartbeats wait behind
// them, and locks are lost if that lasts. Size the pool for it, or use
// [Connect].
func Open(ctx context.Context, db *mongo.Database, opt *Options) (*dsync.Session, error) {
	s, err := newStore(db, opt)
	if err != nil {
		return nil, err
	}
	return open(ctx, s, s, opt)
}

// Connect is [Open] with a client of its own, so that no slow query of the
// application stands before a heartbeat in the pool. The client is made from
// clientOptions and is closed after the session is. Where these don't say otherwise it
// has at most 36 connections, of which heartbeats always find one, the application name
// "leasehold", and the time-outs that its lease needs: it gives up connecting after TTL/12 (1 s to 30 s), checks the servers
// every TTL/6 (500 ms to 10 s), and closes connections that were idle for TTL/2. The
// database's name is not taken from a connection string.
func Connect(ctx context.Context, clientOptions *options.ClientOptions, database string, opt *Options) (*dsync.Session, error) {
	if clientOptions == nil {
		return nil, errors.New("mongo: the client options are nil; pass some, as options.Client().ApplyURI(\"mongodb://…\")")
	}
	if err := checkDatabase(database); err != nil {
		return nil, err
	}
	client, err := mongo.Connect(options.MergeClientOptions(ownClient(opt), clientOptions))
	if err != nil {
		return nil, fmt.Errorf("mongo: connect: %w", err)
	}
	s, err := newStore(client.Database(database), opt)
	own := &ownedStore{s, client}
	if err != nil {
		return nil, errors.Join(err, own.Close(bare{ctx}))
	}
	return open(ctx, own, s, opt)
}

// ownClient is what a lease needs of the client that its heartbeats are sent through.
// The driver's defaults are made for applications that can wait: 40 s until a monitor
// notices that a primary has fallen silent, 30 s for a connection that is being made,
// and idle connections that died without a word are kept, to be tried one after the
// other, each for the length of an attempt (TTL/6). So a lease of 30 s did not survive 5 s
// of a network that swallows everything. These are cut to fractions of the TTL:
// a silent primary is noticed after TTL/4; what was idle for longer than a heartbeat may
// leave its own connection is not used again.
//
// A server need not be found within less: each attempt has a deadline already. Nor do
// more connections at a time (MaxConnecting) help, once none of them takes 30 s.
func ownClient(opt *Options) *options.ClientOptions {
	ttl, beat := defaultTTL, time.Duration(0)
	if opt != nil {
		ttl, beat = cmp.Or(opt.TTL, ttl), opt.Heartbeat
	}
	return options.Client().SetMaxPoolSize(ownPool).SetAppName("leasehold").
		SetConnectTimeout(min(max(ttl/12, minConnect), driverConnect)).
		SetHeartbeatInterval(min(max(ttl/6, minMonitor), driverMonitor)).
		SetMaxConnIdleTime(max(ttl/2, beat*3/2))
}

// open makes the session before it probes, since that says what is wrong with
// its options without waiting for a server.
func open(ctx context.Context, face dsync.Store, s *Store, opt *Options) (*dsync.Session, error) {
	var so *dsync.Options
	if opt != nil {
		so = &opt.Options
	}
	session, err := dsync.New(face, so)
	if err != nil {
		if own, ok := face.(*ownedStore); ok {
			err = errors.Join(err, own.Close(bare{ctx}))
		}
		return nil, err
	}
	err = s.contact(ctx)
	if err == nil && opt != nil && opt.ClockCheck != nil {
		err = s.checkClock(ctx, opt.ClockCheck, session.Margin())
	}
	if err != nil {
		return nil, errors.Join(err, session.Close(bare{ctx}))
	}
	return session, nil
}

// checkClock checks the host's clock, and compares the spread between the servers'
// with the margin that has to pay for it.
func (s *Store) checkClock(ctx context.Context, opt *clockcheck.Options, margin time.Duration) error {
	r, err := clockcheck.Check(bare{ctx}, s.db.Client(), opt)
	if err != nil {
		return fmt.Errorf("mongo: %w", err)
	}
	s.log.Info("leasehold: checked the clock", slog.Any("clock", r))
	if r.Spread > margin {
		s.log.Warn("leasehold: the servers' clocks are farther apart than the margin: a fail-over can shorten a lease; set their clocks, or raise Margin",
			slog.Duration("spread", r.Spread), slog.Duration("margin", margin))
	}
	return nil
}

// An ownedStore is a store with a client of its own. The session closes it last.
type ownedStore struct {
	*Store
	client *mongo.Client
}

var _ dsync.Store = (*ownedStore)(nil)

// Close disconnects the client. It takes at most a second, whatever the server
// does.
func (s *ownedStore) Close(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(bare{ctx}, disconnectLimit)
	defer cancel()
	if err := s.client.Disconnect(ctx); err != nil && ctx.Err() == nil {
		return fmt.Errorf("mongo: disconnect: %w", err)
	}
	return nil // in a second without an answer everything that is ours was closed all the same
}
