package mongo

import (
	"errors"
	"fmt"
	"strings"

	"github.com/leasehold-go/leasehold/clockcheck"
	"github.com/leasehold-go/leasehold/dsync"
	"github.com/leasehold-go/leasehold/internal/logs"
	"github.com/leasehold-go/leasehold/internal/mongoclient"
	"go.mongodb.org/mongo-driver/v2/mongo"
)

const (
	defaultCollection = "leasehold"

	// maxNamespace is the maximum length of "database.collection" in MongoDB 4.4 and later, in
	// bytes (manual, "MongoDB Limits and Thresholds").
	maxNamespace = 255
)

// Options are the settings of [Open], [Connect] and [NewStore]. The zero value of each field is its default; a nil
// *Options means the defaults.
type Options struct {
	// Collection is the name of the collection that stores sessions and keys. All processes that share locks must use
	// the same name. Default "leasehold".
	Collection string

	// PollOnly turns notices off: this process neither sends notices nor listens for them. Its
	// waiters poll at intervals of dsync.Options.PollInterval. Its holders learn of Break and
	// ForceHold with the next heartbeat. Other processes that wait for its locks learn of a
	// release when they poll. Without PollOnly, a listener uses one connection, and sends one
	// or two small commands every ten seconds.
	PollOnly bool

	// NoticeCollections is the number of capped collections, of 128 KiB each, in which the sessions of all processes
	// listen. A notice wakes all sessions that listen in its collection. This costs the server about 40 µs for each
	// session. So use more collections if there are more processes, or more hand-overs a second. A session chooses
	// its collection by its id; processes need not use the same number. Default 64; from 1 to 1,000. One more
	// collection is for the observers of keys. Each is created when a process first listens in it, or sends to it.
	NoticeCollections int

	// PrimaryWatch tells listeners of a new primary as soon as the driver knows it. It must also be the client's
	// server monitor: see [PrimaryWatch]. It is for [Open] and [NewStore] only: they return an error if the driver
	// has not called the monitor. [Connect] has its own PrimaryWatch. Default nil: a listener on a replica set asks
	// for the primary with each heartbeat, and at least every ten seconds. Until it has asked, its waiters get no
	// notices from a new primary.
	PrimaryWatch *PrimaryWatch

	// ReadOnly makes a store, or a session, that never writes. Opening it tries out no command and creates nothing, so
	// the right to find is enough. With such a session, package dsync/admin can read: Inspector.Status, List and
	// Members work, for example. Methods that would write send nothing and return dsync.ErrRefused. The store cannot
	// listen, because listening marks keys as observed.
	ReadOnly bool

	// ClockCheck makes [Open] and [Connect] check this host's clock with package clockcheck, and fail if the check
	// fails. If the clocks of ClockCheck.Servers are farther apart than the session's margin, Open and Connect log a
	// warning, because a fail-over can then shorten a lease. Locks do not depend on hosts' clocks. The check is for
	// programs that depend on them in other ways. NewStore does not check. Default nil: no check.
	ClockCheck *clockcheck.Options

	// Session has the session's settings: TTL, PollInterval, Logger and so on. NewStore uses only the
	// Logger.
	Session dsync.Options
}

// withDefaults returns o with the defaults of its own fields filled in. dsync.New fills in and checks the session's
// options.
func (o *Options) withDefaults() Options {
	var r Options
	if o != nil {
		r = *o
	}
	if r.Collection == "" {
		r.Collection = defaultCollection
	}
	if r.NoticeCollections == 0 {
		r.NoticeCollections = mongoclient.DefaultNotices
	}
	r.Session.Logger = logs.OrDefault(r.Session.Logger)
	return r
}

// checkNames returns an error if the name of the database or the collection is invalid. Its errors are clearer than
// the server's. It also rejects some names that the server accepts.
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
		return fmt.Errorf("mongo: collection name %q must not begin with \"system.\", which is reserved for the server", collection)
	case strings.HasPrefix(collection, ".") || strings.HasSuffix(collection, "."):
		return fmt.Errorf("mongo: collection name %q must not begin or end with '.'", collection)
	case len(db.Name())+1+len(collection)+longestSuffix > maxNamespace:
		return fmt.Errorf("mongo: database and collection names have %d bytes with the dot between them; they may have at most %d",
			len(db.Name())+1+len(collection), maxNamespace-longestSuffix)
	}
	return nil
}

func checkNoticeCollections(n int) error {
	if n < 1 || n > maxNoticeCollections {
		return fmt.Errorf("mongo: NoticeCollections is %d; it must be from 1 to %d, or 0 for the default, %d", n, maxNoticeCollections, mongoclient.DefaultNotices)
	}
	return nil
}

func checkDatabase(name string) error {
	switch {
	case name == "":
		return errors.New("mongo: the database's name is empty; it must have 1 to 63 bytes")
	case len(name) > 63:
		return fmt.Errorf("mongo: database name %q has %d bytes; it may have at most 63", name, len(name))
	case strings.ContainsAny(name, "/\\. \"$\x00"):
		return fmt.Errorf("mongo: database name %q must not contain any of /\\. \"$ or NUL", name)
	}
	return nil
}
