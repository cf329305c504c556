package mongo

import (
	"context"
	"log/slog"

	"github.com/leasehold-go/leasehold/dsync"
	"go.mongodb.org/mongo-driver/v2/mongo"
)

// A Store is a [dsync.Store] in one collection of a MongoDB database. Make one
// with [NewStore]; most programs want [Open] or [Connect] instead.
//
// Every method sends one command; where two are needed its comment says so. Writes
// are acknowledged by a majority: a write that was applied but not confirmed so is
// an error, since a fail-over could undo it. When a context's deadline passes, the
// connection survives; when it is cancelled, the driver closes the connection
// while the server may still execute the command: so cancel seldom. A command whose
// context has no deadline waits 30 seconds for its answer.
//
// All methods may be called concurrently.
type Store struct {
	db         *mongo.Database
	collection string
	noWatch    bool
	readOnly   bool
	log        *slog.Logger
	shapes     *shapes
	short      shortCommands
	server     server
	quiet      quietKeys
	clock      clock
}

var _ dsync.Store = (*Store)(nil)

// NewStore returns a store in db, which it never closes. It contacts the server,
// tries its commands out, and refuses a server that does not compute what it
// should (see the package's comment, and [Options].ReadOnly). ctx bounds that as it
// does in [Open]. A nil *Options is all defaults.
func NewStore(ctx context.Context, db *mongo.Database, opt *Options) (*Store, error) {
	s, err := newStore(db, opt)
	if err != nil {
		return nil, err
	}
	if err := s.contact(ctx); err != nil {
		return nil, err
	}
	return s, nil
}

// newStore returns a store that must be probed before it is used.
func newStore(db *mongo.Database, opt *Options) (*Store, error) {
	o := opt.withDefaults()
	if err := checkNames(db, o.Collection); err != nil {
		return nil, err
	}
	sh, err := newShapes()
	if err != nil {
		return nil, err
	}
	return &Store{
		db: db, collection: o.Collection, noWatch: o.NoWatch, readOnly: o.ReadOnly, log: o.Logger,
		shapes: sh, short: newShortCommands(o.Collection),
	}, nil
}

// The _id of a record begins with what it is, so that each kind is a range of the
// index.

func keyID(key string) string { return "k/" + key }

func sessionID(session string) string { return "s/" + session }
