package mongo

import (
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
	// ownPool is enough for one change stream, a heartbeat, and half a dozen
	// attempts at a time, which take a few milliseconds each.
	ownPool = 8

	// disconnectLimit bounds the farewell to a server that may not answer.
	disconnectLimit = time.Second
)

// Open returns a session that keeps its locks in db, on the caller's client,
// which it uses as it is and never closes. A nil *Options is all defaults.
//
// ctx bounds the first contact with the server, which must be reachable: Open
// asks it who it is and tries its commands out (see the package's comment). That
// costs twenty-seven small commands. Where ctx has no deadline, each of them waits 30
// seconds for its answer, and Open fails at the first that gets none.
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
// clientOptions, has at most 8 connections and the application name "leasehold"
// if these don't say otherwise, and is closed after the session is. The
// database's name is not taken from a connection string.
func Connect(ctx context.Context, clientOptions *options.ClientOptions, database string, opt *Options) (*dsync.Session, error) {
	if clientOptions == nil {
		return nil, errors.New("mongo: the client options are nil; pass some, as options.Client().ApplyURI(\"mongodb://…\")")
	}
	if err := checkDatabase(database); err != nil {
		return nil, err
	}
	defaults := options.Client().SetMaxPoolSize(ownPool).SetAppName("leasehold")
	client, err := mongo.Connect(options.MergeClientOptions(defaults, clientOptions))
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
	err = s.probe(ctx)
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
