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

// A Target is where this library is measured: on a server, or on the store in memory, which shows
// the cost of the library alone.
type Target struct {
	DB *mongo.Database // uses a client that no session uses; nil: the target is in memory

	// Store holds the options for stores on a server. The field Session is ignored.
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

// Server returns the target for that database of the server.
func Server(uri, database string) (*Target, error) {
	client, err := mongo.Connect(options.Client().ApplyURI(uri))
	if err != nil {
		return nil, err
	}
	return &Target{DB: client.Database(database), uri: uri}, nil
}

// Counted makes the target count the commands of its processes, and returns it. Counting takes some
// time, so don't use it where the time is compared with other operations.
func (t *Target) Counted() *Target {
	t.count = true
	return t
}

// Commands returns the number of commands sent, except the driver's own and those for listening,
// which are sent all the time. On the store in memory it also leaves out sweeping, which happens at
// random times. A target on a server must be Counted.
func (t *Target) Commands() int {
	if t.memory != nil {
		counts := t.memory.Counts()
		return counts.Total() - counts.Commands[dsynctest.MethodSweep]
	}
	return int(t.sent.Load())
}

// Notices returns how many notices a Counted server has pushed.
func (t *Target) Notices() int { return int(t.notices.Load()) }

// Bytes returns how many bytes were sent to and received from a Counted server.
func (t *Target) Bytes() int64 { return t.wire.bytes.Load() }

// Drop deletes the database. Close also does that, and disconnects the client.
func (t *Target) Drop(ctx context.Context) error {
	if t.DB == nil {
		return nil
	}
	return t.DB.Drop(ctx)
}

// Close deletes the database and disconnects the client.
func (t *Target) Close(ctx context.Context) error {
	if t.DB == nil {
		return nil
	}
	return errors.Join(t.DB.Drop(ctx), t.DB.Client().Disconnect(ctx))
}

// client returns the options for a process's client.
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

// listening reports whether the command is part of listening for notices, or asks which member is
// the primary.
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

// Session returns a session with its own client.
func (t *Target) Session(ctx context.Context, opt dsync.Options) (*dsync.Session, error) {
	if t.memory != nil {
		return dsync.New(t.memory, &opt)
	}
	o := t.Store
	o.Session = opt
	return dsyncmongo.Connect(ctx, t.client(), t.DB.Name(), &o)
}

// Shared returns a store whose sessions share one client, and a function that disconnects it. The
// client has at most the given number of connections; 0 means no limit. Each session that listens
// occupies one connection.
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
