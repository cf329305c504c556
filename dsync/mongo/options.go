package mongo

import (
	"errors"
	"fmt"
	"log/slog"
	"strings"

	"github.com/leasehold-go/leasehold/clockcheck"
	"github.com/leasehold-go/leasehold/dsync"
	"go.mongodb.org/mongo-driver/v2/mongo"
)

const (
	defaultCollection = "leasehold"

	// maxNamespace is what MongoDB 4.4 and later allow of "database.collection",
	// in bytes (manual, "MongoDB Limits and Thresholds").
	maxNamespace = 255
)

// Options are the settings of [Open], [Connect] and [NewStore]. The zero value
// of each field is its default; a nil *Options is all defaults.
type Options struct {
	// Collection is the name of the one collection that everything is kept in.
	// All processes that share locks must use the same. Default "leasehold".
	Collection string

	// NoWatch does without the change stream, and without listening: waiters poll, as
	// often as dsync.Options.Poll says, and a holder learns of Break and ForceLock with
	// its next heartbeat. Each of both costs a connection, and every write to the replica
	// set passes the filter of a stream.
	NoWatch bool

	// ReadOnly makes a store, and a session on it, that can look and never write:
	// [Open] and [NewStore] only ask the server who it is, nothing is tried out and
	// nothing created, and the right to find is enough (and changeStream, to watch).
	// What would write sends nothing, and its error is dsync.ErrRefused: the session
	// has Status, List, Load and Members.
	ReadOnly bool

	// ClockCheck has [Open] and [Connect] check this host's clock with package
	// clockcheck: an error of the check is theirs, and if the clocks of its Servers
	// are farther apart than the lease's margin, so that a fail-over can shorten a
	// lease, the log warns. Nil, the default: no check. Locks do not depend on host
	// clocks: it is for programs that do. NewStore does not check.
	ClockCheck *clockcheck.Options

	// Options are the session's: TTL, Poll, Logger and so on. NewStore uses only
	// the Logger of them.
	dsync.Options
}

// withDefaults returns o with the defaults of its own fields filled in; those of
// the session's are filled in, and checked, by dsync.New.
func (o *Options) withDefaults() Options {
	var r Options
	if o != nil {
		r = *o
	}
	if r.Collection == "" {
		r.Collection = defaultCollection
	}
	if r.Logger == nil {
		r.Logger = slog.New(slog.DiscardHandler)
	}
	return r
}

// checkNames says what is wrong with the database or the collection's name and
// what would be right, before a server says it less clearly, or takes it.
func checkNames(db *mongo.Database, collection string) error {
	if db == nil {
		return errors.New("mongo: the database is nil; pass one, as client.Database(\"app\")")
	}
	if err := checkDatabase(db.Name()); err != nil {
		return err
	}
	switch {
	case strings.ContainsAny(collection, "$\x00"):
		return fmt.Errorf("mongo: collection name %q must not contain '$' or NUL", collection)
	case strings.HasPrefix(collection, "system."):
		return fmt.Errorf("mongo: collection name %q must not begin with \"system.\", which is the server's", collection)
	case strings.HasPrefix(collection, ".") || strings.HasSuffix(collection, "."):
		return fmt.Errorf("mongo: collection name %q must not begin or end with '.'", collection)
	case len(db.Name())+1+len(collection)+len(noticesSuffix) > maxNamespace:
		return fmt.Errorf("mongo: database and collection names have %d bytes with the dot between them; they may have %d",
			len(db.Name())+1+len(collection), maxNamespace-len(noticesSuffix))
	}
	return nil
}

func checkDatabase(name string) error {
	switch {
	case name == "":
		return errors.New("mongo: the database's name is empty; it must have 1 to 63 bytes")
	case len(name) > 63:
		return fmt.Errorf("mongo: database name %q has %d bytes; it may have 63", name, len(name))
	case strings.ContainsAny(name, "/\\. \"$\x00"):
		return fmt.Errorf("mongo: database name %q must not contain any of /\\. \"$ or NUL", name)
	}
	return nil
}
