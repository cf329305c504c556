package integration_test

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/leasehold-go/leasehold/dsync"
	"github.com/leasehold-go/leasehold/dsync/driver"
	dsyncmongo "github.com/leasehold-go/leasehold/dsync/mongo"
	"github.com/leasehold-go/leasehold/integration/internal/proc"
	"github.com/leasehold-go/leasehold/integration/internal/proxy"
	"github.com/leasehold-go/leasehold/integration/internal/server"
	"github.com/leasehold-go/leasehold/internal/storecmd"
	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"
	"go.mongodb.org/mongo-driver/v2/mongo/writeconcern"
)

// collection is the default value of dsyncmongo.Options.Collection.
const collection = "leasehold"

// wakeUp is the time within which a waiter must notice a grant: ten times as long as a round trip or two on a busy
// machine.
const wakeUp = 15 * time.Second

// patient is the TTL of sessions that suffer no fault in a test. A server that is busy with other tests delays
// heartbeats; on two cores, FerretDB has delayed them for nine seconds. The TTL must be longer than that.
const patient = 15 * time.Second

// A room is a database on a server, for one test.
type room struct {
	*server.Server
	t  testing.TB
	DB string
}

func newRoom(t testing.TB, s *server.Server) *room {
	t.Helper()
	return &room{Server: s, t: t, DB: s.Database(t)}
}

// r.short returns the options that most tests use. If the server can't notify, waiters poll often,
// because the default interval would make the tests slow. Don't use it in a test that counts
// polls.
func (r *room) short(ttl time.Duration) dsync.Options {
	o := dsync.Options{TTL: ttl}
	if !r.Has(server.Need{Notices: true}) {
		o.PollInterval = 200 * time.Millisecond
	}
	return o
}

// session opens a session on a new client, directly to the server.
func (r *room) session(o dsync.Options, opts ...*options.ClientOptions) *dsync.Session {
	r.t.Helper()
	return r.open(r.Client(r.t, opts...), o)
}

// r.via opens a session that reaches the server through the proxy.
func (r *room) via(p *proxy.Proxy, o dsync.Options, opts ...*options.ClientOptions) *dsync.Session {
	r.t.Helper()
	return r.open(server.Connect(r.t, p.URI(), opts...), o)
}

// lasting returns options for sessions that must not be lost even on a busy machine.
func (r *room) lasting() dsync.Options {
	o := r.short(time.Minute)
	o.HeartbeatInterval = 2 * time.Second
	return o
}

// opening returns a context for Open. Open's own limit, 30 s, is too short for a probe on a busy
// machine.
func (r *room) opening() context.Context {
	ctx, cancel := context.WithTimeout(r.t.Context(), proc.Patience)
	r.t.Cleanup(cancel)
	return ctx
}

// open opens a session on the client. At the end of the test it closes the session, in at most a
// round trip.
func (r *room) open(client *mongo.Client, o dsync.Options) *dsync.Session {
	r.t.Helper()
	if o.Logger == nil {
		o.Logger = r.logger()
	}
	s, err := dsyncmongo.Open(r.opening(), client.Database(r.DB), &dsyncmongo.Options{Session: o})
	if err != nil {
		r.t.Fatalf("Open: %v", err)
	}
	r.t.Cleanup(func() {
		ended, cancel := context.WithCancel(context.Background())
		cancel()
		s.Close(ended) // may fail, because the test may have harmed the server
	})
	return s
}

// logger returns a logger whose output is shown if the test fails.
func (r *room) logger() *slog.Logger {
	var mu sync.Mutex
	var text bytes.Buffer
	r.t.Cleanup(func() {
		mu.Lock()
		defer mu.Unlock()
		if r.t.Failed() && text.Len() > 0 {
			lines := text.Bytes()
			r.t.Logf("a session's log, its last 4 KiB:\n%s", lines[max(0, len(lines)-4<<10):])
		}
	})
	return slog.New(slog.NewTextHandler(writer(func(p []byte) (int, error) {
		mu.Lock()
		defer mu.Unlock()
		return text.Write(p)
	}), nil))
}

type writer func([]byte) (int, error)

func (w writer) Write(p []byte) (int, error) { return w(p) }

// proxy starts a proxy in front of the node that accepts writes.
func (r *room) proxy() *proxy.Proxy {
	r.t.Helper()
	return proxy.New(r.t, r.Primary(r.t))
}

// store opens a Store with which tests inspect the server's state.
func (r *room) store() driver.Store {
	r.t.Helper()
	s, err := dsyncmongo.NewStore(r.opening(), r.Client(r.t).Database(r.DB), nil)
	if err != nil {
		r.t.Fatalf("NewStore: %v", err)
	}
	return s
}

// exactStore opens a Store that gets all times from a single clock, for tests that compare
// times to the millisecond. See [server.Server.Skew].
func (r *room) exactStore() driver.Store {
	r.t.Helper()
	s, err := dsyncmongo.NewStore(r.opening(), server.Connect(r.t, r.OneClock()).Database(r.DB), nil)
	if err != nil {
		r.t.Fatalf("NewStore: %v", err)
	}
	return s
}

// raw returns the store's collection. Writes to it wait for a majority, because the store sees only
// majority-committed data.
func (r *room) raw() *mongo.Collection {
	r.t.Helper()
	majority := options.Collection().SetWriteConcern(writeconcern.Majority())
	return r.Client(r.t).Database(r.DB).Collection(collection, majority)
}

// isProbeRecord reports whether id is the _id of a record of a passed probe.
func isProbeRecord(id string) bool { return strings.HasPrefix(id, "x/probe/") }

// probeRecords matches the records of passed probes.
func probeRecords() bson.D {
	return bson.D{{Key: "_id", Value: bson.D{{Key: "$gte", Value: "x/probe/"}, {Key: "$lt", Value: "x/probe0"}}}}
}

// forgetProbe makes the next Open probe the server again.
func (r *room) forgetProbe() {
	r.t.Helper()
	if _, err := r.raw().DeleteMany(r.t.Context(), probeRecords()); err != nil {
		r.t.Fatal(err)
	}
}

// load reads a key's state.
func load(t testing.TB, s driver.Store, key string) driver.State {
	t.Helper()
	st, err := s.Load(t.Context(), key, 1000)
	if err != nil {
		t.Fatalf("Load %q: %v", key, err)
	}
	return st
}

// member reads a session's record.
func member(t testing.TB, s driver.Store, id string) driver.Member {
	t.Helper()
	m, _, err := storecmd.Members(t.Context(), s, id)
	if err != nil || len(m) != 1 {
		t.Fatalf("Members(%q) = %v, %v", id, m, err)
	}
	return m[0]
}

// eventually waits for cond, and fails the test if it does not become true.
func eventually(t testing.TB, what string, cond func() bool) {
	t.Helper()
	for end := time.Now().Add(proc.Patience); !cond(); time.Sleep(20 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("not within %v: %s", proc.Patience, what)
		}
	}
}

// lostInTime waits until a holder is notified that its hold is lost. From the time since to the notification, no more
// than a TTL may pass, not counting stalls of this process.
func lostInTime(t testing.TB, lost <-chan struct{}, since time.Time, ttl time.Duration) {
	t.Helper()
	stalls := newStallMeter(t)
	select {
	case <-lost:
		if d, stalled := time.Since(since), stalls.worst(); d > ttl+stalled {
			t.Errorf("notified of the loss after %v, want at most the TTL, %v; the process stalled for %v", d, ttl, stalled)
		}
	case <-time.After(proc.Patience):
		t.Fatal("the holder is not notified")
	}
}

// renewed waits until the server has acknowledged n more heartbeats from the session.
func renewed(t testing.TB, s *dsync.Session, n int64) {
	t.Helper()
	var beats atomic.Int64
	stop := s.AddHooks(&dsync.Hooks{Heartbeat: func(_, _ time.Duration, err error) {
		if err == nil {
			beats.Add(1)
		}
	}})
	defer stop()
	eventually(t, "heartbeats are acknowledged", func() bool { return beats.Load() >= n })
}

// lock acquires the key and returns the hold.
func lock(t testing.TB, m *dsync.Mutex) *dsync.Hold {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), proc.Patience)
	defer cancel()
	h, err := m.Hold(ctx)
	noErr(t, err)
	return h
}

// release releases a hold and waits until a majority has the release. The hold must not have ended
// before.
func release(t testing.TB, h *dsync.Hold) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), proc.Patience)
	defer cancel()
	noErr(t, h.Release(ctx))
}

// A grant is the result of the call of Hold that locking started.
type grant struct {
	m     *dsync.Mutex
	h     *dsync.Hold
	at    time.Time // when Hold returned
	token int64
	err   error
}

// locking acquires the key in a new goroutine.
func locking(ctx context.Context, m *dsync.Mutex) <-chan grant {
	ch := make(chan grant, 1)
	go func() {
		h, err := m.Hold(ctx)
		g := grant{m: m, h: h, at: time.Now(), err: err}
		if err == nil {
			g.token = h.Token()
		}
		ch <- g
	}()
	return ch
}

// granted waits for the grant and fails the test if none comes.
func granted(t testing.TB, ch <-chan grant) grant {
	t.Helper()
	select {
	case g := <-ch:
		if g.err != nil {
			t.Fatalf("Hold: %v", g.err)
		}
		return g
	case <-time.After(proc.Patience):
		t.Fatalf("no grant within %v", proc.Patience)
		panic("unreachable")
	}
}

// closed reports whether ch is closed.
func closed(ch <-chan struct{}) bool {
	select {
	case <-ch:
		return true
	default:
		return false
	}
}

// losses counts lost sessions and lost holds in a test in which none may be lost.
type losses struct {
	session, hold atomic.Int64
}

func (l *losses) hooks() *dsync.Hooks {
	return &dsync.Hooks{
		SessionLost: func(string, error) { l.session.Add(1) },
		Lost:        func(dsync.HoldInfo) { l.hold.Add(1) },
	}
}

func (l *losses) none(t testing.TB) {
	t.Helper()
	if s, h := l.session.Load(), l.hold.Load(); s != 0 || h != 0 {
		t.Errorf("lost %d sessions and %d holds, want none", s, h)
	}
}

// onKey matches commands on the key's record.
func onKey(key string) func(proxy.Command) bool {
	return func(c proxy.Command) bool { return c.ID() == "k/"+key }
}

// acquires matches requests for the key, long and short.
func acquires(key string) func(proxy.Command) bool {
	return func(c proxy.Command) bool { return onKey(key)(c) && acquire(c.Body) }
}

// releases matches releases of the key, that is, all commands that change the key's record, except requests. The key
// must be used as a mutex.
func releases(key string) func(proxy.Command) bool {
	return func(c proxy.Command) bool {
		return onKey(key)(c) && (c.Name == "update" || c.Name == "findAndModify") && !acquire(c.Body)
	}
}

// acquire reports whether the command requests a key. Such a command is either the pipeline, or the short update that
// grants the key to its sender.
func acquire(command bson.Raw) bool {
	for _, path := range [][]string{
		{"update", "0", "$set", "_", "$literal", "claim"},
		{"updates", "0", "u", "0", "$replaceWith"}, // on MongoDB
		{"updates", "0", "u", "0", "$set", "_", "$cond"},
	} {
		if _, err := command.LookupErr(path...); err == nil {
			return true
		}
	}
	return false
}

// heartbeats matches the heartbeats of the session, and commands that expire it.
func heartbeats(id string) func(proxy.Command) bool {
	return func(c proxy.Command) bool { return c.Name == "findAndModify" && c.ID() == "s/"+id }
}

// expires matches the commands that expire the session, and also its heartbeats.
func expires(id string) func(proxy.Command) bool { return heartbeats(id) }

// sentinel returns the name by which events refer to the sentinel that err wraps.
func sentinel(err error) string {
	for name, is := range map[string]error{
		"held": dsync.ErrHeld, "lost": dsync.ErrLost, "closed": dsync.ErrClosed,
		"deadline": context.DeadlineExceeded, "canceled": context.Canceled,
	} {
		if errors.Is(err, is) {
			return name
		}
	}
	return ""
}

// remote reports whether the clocks of the servers in this run may differ from this host's.
func remote() bool { return os.Getenv("MONGODB_URI") != "" }
