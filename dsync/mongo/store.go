package mongo

import (
	"context"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"

	"github.com/leasehold-go/leasehold/dsync/driver"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"golang.org/x/sync/singleflight"
)

// A store is a [driver.Store] in one collection of a MongoDB database: see [NewStore]. Every method sends one
// command, unless its comment says otherwise.
type store struct {
	db                *mongo.Database
	collection        string
	pollOnly          bool
	readOnly          bool
	noticeCollections int
	log               *slog.Logger
	server            server
	lastUsed          lastUsedKeys
	contended         contendedKeys
	doubted           contendedKeys // keys whose last release was in doubt: the reply to the next must be definite
	clock             clock
	early             earlyReleases
	acquires, keeps   bulkWriter // short commands: see bulkWriter
	releases          bulkWriter
	earlyReleases     bulkWriter
	connections       chan struct{} // see connection
	made              createdCollections
	primary           *PrimaryWatch      // nil: none
	heartbeats        signal             // signals that a Heartbeat has returned
	asked             singleflight.Group // shares the hello that finds the primary
	listenRefused     atomic.Bool        // the last Listen for a session was refused
	unjournaled       atomic.Bool        // the server is a standalone without a journal
	warned            sync.Map           // problems that were logged
}

var (
	_ driver.Store   = (*store)(nil)
	_ driver.Namer   = (*store)(nil)
	_ driver.Limiter = (*store)(nil)
)

// NewStore returns a [driver.Store] that keeps its locks in db, for tools and tests that call its methods themselves.
// Other programs use [Open] or [Connect]. The store is a [driver.Namer], too.
//
// NewStore never closes db's client. It contacts the server. Unless the server is known to have passed the probe, it
// also tries the store's commands on it. It returns an error if the server does not compute the same as MongoDB (see
// the package comment, and [Options].ReadOnly). ctx bounds this contact as in [Open]. A nil *Options means the
// defaults.
//
// Almost every method sends one command. Writes are acknowledged by a majority, except notices, early releases and the
// record that NewStore looks at. For a write that was applied but not confirmed by a majority, the method returns an
// error, since a fail-over could undo the write. A command whose context has no deadline waits at most 30 seconds for its reply.
//
// When the deadline of a context passes, the connection survives. When a context is cancelled,
// the driver closes the connection, and the server may still execute the command, so avoid
// cancelling.
//
// All methods may be called concurrently.
func NewStore(ctx context.Context, db *mongo.Database, opt *Options) (driver.Store, error) {
	s, err := newStore(db, opt)
	if err != nil {
		return nil, err
	}
	if err := s.contact(ctx); err != nil {
		return nil, err
	}
	return s, nil
}

// newStore returns a store. Call contact before its other methods.
func newStore(db *mongo.Database, opt *Options) (*store, error) {
	o := opt.withDefaults()
	if err := checkNames(db, o.Collection); err != nil {
		return nil, err
	}
	if err := checkNoticeCollections(o.NoticeCollections); err != nil {
		return nil, err
	}
	s := &store{
		db: db, collection: o.Collection, log: o.Session.Logger,
		pollOnly: o.PollOnly, readOnly: o.ReadOnly, noticeCollections: o.NoticeCollections,
		primary: o.PrimaryWatch, connections: make(chan struct{}, maxConnections),
	}
	keeps := s.sideBySide(s.write, s.releasing)
	s.keeps.execute = func(ctx context.Context, sts []*statement) { deliver(sts, keeps(ctx, sts)) }
	s.acquires.execute = s.acquiresTogether()
	s.releases.execute, s.earlyReleases.execute = s.releasesTogether(s.write, true), s.releasesTogether(s.writeEarly, false)
	return s, nil
}

// The _id of a record begins with the record's kind, so that the records of each kind are a range of the index.

func keyID(key string) string { return "k/" + key }

// RecordName implements [driver.Namer]. It returns the namespace and a filter that finds the record.
func (s *store) RecordName(key string) string {
	return fmt.Sprintf("%s.%s {_id: %q}", s.db.Name(), s.collection, keyID(key))
}

func sessionID(session string) string { return "s/" + session }
