package measure

import (
	"context"
	"errors"
	"strings"
	"sync/atomic"

	"go.mongodb.org/mongo-driver/v2/event"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/leasehold-go/leasehold/dsync"
	"github.com/leasehold-go/leasehold/dsync/driver"
	"github.com/leasehold-go/leasehold/dsync/dsynctest"
	dsyncmongo "github.com/leasehold-go/leasehold/dsync/mongo"
)

// A Target is what this library is measured on: the store in memory, which leaves
// the cost of the library, or a server.
type Target struct {
	DB *mongo.Database // on a client of the measurement's own; nil: in memory

	// Store is what stores on a server are opened with, but for the session's part.
	Store dsyncmongo.Options

	uri     string
	memory  *dsynctest.Memory
	count   bool
	sent    atomic.Int64
	notices atomic.Int64
	wire    wire
}

// Memory returns a target in memory.
func Memory() *Target { return &Target{memory: dsynctest.NewMemory()} }

// Server returns the target that is the database of the server.
func Server(uri, database string) (*Target, error) {
	client, err := mongo.Connect(options.Client().ApplyURI(uri))
	if err != nil {
		return nil, err
	}
	return &Target{DB: client.Database(database), uri: uri}, nil
}

// Counted has the target count what its processes send. The counting takes time of
// its own, so leave it where that is compared with something else. It returns t.
func (t *Target) Counted() *Target {
	t.count = true
	return t
}

// Commands is the number of commands that were sent, without those of listening, which go
// on whatever happens, and of the driver's own. In memory those of sweeping are not counted either:
// they come at random times. A target on a server must be Counted.
func (t *Target) Commands() int {
	if t.memory != nil {
		counts := t.memory.Counts()
		return counts.Total() - counts.Commands["Sweep"]
	}
	return int(t.sent.Load())
}

// Notices is the number of notices that a Counted server pushed.
func (t *Target) Notices() int { return int(t.notices.Load()) }

// Bytes is how many bytes went to a Counted server and came from it, in all.
func (t *Target) Bytes() int64 { return t.wire.bytes.Load() }

// Drop deletes the database; Close does that, and disconnects the client.
func (t *Target) Drop(ctx context.Context) error {
	if t.DB == nil {
		return nil
	}
	return t.DB.Drop(ctx)
}

// Close ends what [Server] began.
func (t *Target) Close(ctx context.Context) error {
	if t.DB == nil {
		return nil
	}
	return errors.Join(t.DB.Drop(ctx), t.DB.Client().Disconnect(ctx))
}

// client returns the options of a process's client.
func (t *Target) client() *options.ClientOptions {
	opt := options.Client().ApplyURI(t.uri)
	if t.count {
		opt.SetMonitor(&event.CommandMonitor{Started: t.started, Succeeded: t.succeeded}).SetDialer(&t.wire)
	}
	return opt
}

func (t *Target) started(_ context.Context, e *event.CommandStartedEvent) {
	if !listening(e) {
		t.sent.Add(1)
	}
}

// listening: waiting for notices, or how that begins, or asking which member is the primary.
func listening(e *event.CommandStartedEvent) bool {
	switch e.CommandName {
	case "getMore", "hello":
		return true
	case "find", "create":
		name, _ := e.Command.Lookup(e.CommandName).StringValueOK()
		return strings.Contains(name, ".notices.")
	}
	return false
}

func (t *Target) succeeded(_ context.Context, e *event.CommandSucceededEvent) {
	if e.CommandName != "getMore" {
		return
	}
	if batch, ok := e.Reply.Lookup("cursor", "nextBatch").ArrayOK(); ok {
		if values, err := batch.Values(); err == nil {
			t.notices.Add(int64(len(values)))
		}
	}
}

// Session returns a session with a client of its own.
func (t *Target) Session(ctx context.Context, opt dsync.Options) (*dsync.Session, error) {
	if t.memory != nil {
		return dsync.New(t.memory, &opt)
	}
	o := t.Store
	o.Session = opt
	return dsyncmongo.Connect(ctx, t.client(), t.DB.Name(), &o)
}

// Shared returns a store for any number of sessions, all on one client, and what ends it. The client has at most
// that many connections, of which each session that listens takes one, or with 0 any number.
func (t *Target) Shared(ctx context.Context, connections uint64) (driver.Store, func(), error) {
	if t.memory != nil {
		return t.memory, func() {}, nil
	}
	client, err := mongo.Connect(t.client().SetMaxPoolSize(connections).SetMaxConnecting(together))
	if err != nil {
		return nil, nil, err
	}
	end := func() { client.Disconnect(context.WithoutCancel(ctx)) }
	s, err := dsyncmongo.NewStore(ctx, client.Database(t.DB.Name()), &t.Store)
	if err != nil {
		end()
		return nil, nil, err
	}
	return s, end, nil
}
