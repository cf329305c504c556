package clientgo

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/rs/xid"
	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"
	"go.mongodb.org/mongo-driver/v2/mongo/readconcern"
	"go.mongodb.org/mongo-driver/v2/mongo/readpref"
	"go.mongodb.org/mongo-driver/v2/mongo/writeconcern"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/tools/leaderelection/resourcelock"
)

const (
	defaultCollection = "elections"
	defaultTimeout    = 2 * time.Second
)

// resource is the name of the documents in errors.
var resource = schema.GroupResource{Resource: "elections"}

// Options are the settings of a [Lock]. The zero value of each field is its default; a nil
// *Options is all defaults.
type Options struct {
	// Collection is the name of the collection that stores the elections' documents. All processes
	// must use the same collection. Default "elections".
	Collection string

	// Identity names the process. It must be different in each process, and after each restart,
	// because processes with the same identity can lead at the same time. Default: the host name
	// and a unique string.
	Identity string

	// Timeout bounds each call of Get, Create and Update, in addition to its context. It must suit
	// the elector's durations; see the package comment. The least is 10 ms. Default 2 s.
	Timeout time.Duration

	// Events records that the process has become the leader, or has stopped leading, as Kubernetes
	// events about EventObject. Set both Events and EventObject, or neither. Default: no events.
	Events resourcelock.EventRecorder

	// EventObject is the object that events are about, such as the process's Pod.
	EventObject runtime.Object
}

// A Lock reads and writes the record of one election, for one elector. Make one with [New]. Get, Create and Update must
// not be called concurrently, because Update relies on the version that the previous call has seen. A LeaderElector
// calls them one at a time. The other methods may be called at any time.
type Lock struct {
	c    *mongo.Collection
	name string
	opt  Options

	// seen is the version of the document that was last read or written, or zero if it is unknown.
	seen bson.ObjectID
}

var _ resourcelock.Interface = (*Lock)(nil)

// New returns a Lock for the election of that name in db. It does not contact the server. It refuses a nil database, an
// empty name, a Timeout that is not 0 but less than 10 ms, and options with only one of Events and EventObject.
//
// The lock uses the caller's client, and never closes it. It sets its own read preference, read
// concern and write concern.
func New(db *mongo.Database, name string, opt *Options) (*Lock, error) {
	if db == nil {
		return nil, errors.New("clientgo: the database is nil; pass client.Database(\"…\")")
	}
	if name == "" {
		return nil, errors.New("clientgo: the name of the election is empty; give it a name, the same in all processes")
	}
	l := &Lock{name: name}
	if opt != nil {
		l.opt = *opt
	}
	if d := l.opt.Timeout; d != 0 && d < 10*time.Millisecond {
		return nil, fmt.Errorf("clientgo: Timeout is %v; it must be at least 10ms (0: %v)", d, defaultTimeout)
	}
	if (l.opt.Events == nil) != (l.opt.EventObject == nil) {
		return nil, errors.New("clientgo: one of Events and EventObject is set; set both or neither")
	}
	l.opt.Collection = cmp.Or(l.opt.Collection, defaultCollection)
	l.opt.Timeout = cmp.Or(l.opt.Timeout, defaultTimeout)
	if l.opt.Identity == "" {
		// On cloned machines that start at the same time, an xid alone may not be unique.
		host, _ := os.Hostname() // for display only
		l.opt.Identity = host + "_" + xid.New().String() + "-" + rand.Text()[:13]
	}
	l.c = db.Collection(l.opt.Collection, options.Collection().
		SetReadPreference(readpref.Primary()).
		SetReadConcern(readconcern.Majority()).
		SetWriteConcern(writeconcern.Majority()))
	return l, nil
}

// Get returns the record and the stored document, which changes with each write. If there is no
// record, IsNotFound of k8s.io/apimachinery/pkg/api/errors recognizes the error.
func (l *Lock) Get(ctx context.Context) (*resourcelock.LeaderElectionRecord, []byte, error) {
	l.seen = bson.NilObjectID
	ctx, cancel := l.bounded(ctx)
	defer cancel()
	raw, err := l.c.FindOne(ctx, bson.D{{Key: "_id", Value: l.name}}).Raw()
	if errors.Is(err, mongo.ErrNoDocuments) {
		err = apierrors.NewNotFound(resource, l.name)
	}
	if err != nil {
		return nil, nil, l.failed("get", err)
	}
	var d document
	if err := bson.Unmarshal(raw, &d); err != nil {
		return nil, nil, l.failed("get", err)
	}
	if d.Version.IsZero() {
		return nil, nil, l.failed("get", errors.New("the document has no version; delete it if this package has not written it"))
	}
	l.seen = d.Version
	return d.record(), raw, nil
}

// Create stores the first record. If there is a record already, IsAlreadyExists of
// k8s.io/apimachinery/pkg/api/errors recognizes the error.
func (l *Lock) Create(ctx context.Context, r resourcelock.LeaderElectionRecord) error {
	return l.write("create", r, func(next bson.Raw) error {
		ctx, cancel := l.bounded(ctx)
		defer cancel()
		_, err := l.c.InsertOne(ctx, next)
		if mongo.IsDuplicateKeyError(err) {
			return apierrors.NewAlreadyExists(resource, l.name)
		}
		return err
	})
}

// Update replaces the record if it is still the one that this Lock last read or wrote. If the record has changed or is
// gone, IsConflict of k8s.io/apimachinery/pkg/api/errors recognizes the error. Any error, even an error of Create,
// makes Update fail until Get or Create has succeeded, because a write may have been applied although its reply was
// lost.
func (l *Lock) Update(ctx context.Context, r resourcelock.LeaderElectionRecord) error {
	seen := l.seen
	if seen.IsZero() {
		return l.failed("update", errors.New("the version of the document is unknown; call Get or Create first"))
	}
	return l.write("update", r, func(next bson.Raw) error {
		ctx, cancel := l.bounded(ctx)
		defer cancel()
		filter := bson.D{{Key: "_id", Value: l.name}, {Key: "version", Value: seen}}
		result, err := l.c.ReplaceOne(ctx, filter, next)
		if err == nil && result.MatchedCount == 0 {
			return apierrors.NewConflict(resource, l.name, errors.New("another process has changed the document"))
		}
		return err
	})
}

// write calls send to store the record under a new version, and remembers the version if that
// succeeds. Versions are ObjectIDs, not numbers: if the reply to a write is lost, another process's
// write might have the same number.
func (l *Lock) write(op string, r resourcelock.LeaderElectionRecord, send func(next bson.Raw) error) error {
	l.seen = bson.NilObjectID
	d := newDocument(l.name, r)
	// Marshalled here, so that the BSON options of the caller's client do not apply.
	next, err := bson.Marshal(d)
	if err != nil {
		return l.failed(op, err)
	}
	if err := send(next); err != nil {
		return l.failed(op, err)
	}
	l.seen = d.Version
	return nil
}

// RecordEvent records the event with Options.Events, if that is set.
func (l *Lock) RecordEvent(event string) {
	if l.opt.Events != nil {
		l.opt.Events.Eventf(l.opt.EventObject, corev1.EventTypeNormal, "LeaderElection", "%s %s", l.opt.Identity, event)
	}
}

// Identity returns the identity of the process.
func (l *Lock) Identity() string { return l.opt.Identity }

// Describe returns the database, the collection and the name of the election, for logs.
func (l *Lock) Describe() string {
	return l.c.Database().Name() + "." + l.opt.Collection + "/" + l.name
}

// failed wraps err so that the functions of apierrors still recognize it.
func (l *Lock) failed(op string, err error) error {
	return fmt.Errorf("clientgo: %s %s: %w", op, l.Describe(), err)
}

// bounded returns ctx with the lock's Timeout and without values. One of the values may be a transaction, and the
// driver would run the command in that transaction.
func (l *Lock) bounded(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeout(noValues{ctx}, l.opt.Timeout)
}

type noValues struct{ context.Context }

func (noValues) Value(any) any { return nil }
