package integration_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/leasehold-go/leasehold/dsync"
	"github.com/leasehold-go/leasehold/dsync/driver"
	"github.com/leasehold-go/leasehold/dsync/dsynctest"
	dsyncmongo "github.com/leasehold-go/leasehold/dsync/mongo"
	"github.com/leasehold-go/leasehold/dsync/mongo/fence"
	"github.com/leasehold-go/leasehold/integration/internal/history"
	"github.com/leasehold-go/leasehold/integration/internal/proc"
	"github.com/leasehold-go/leasehold/integration/internal/server"
	"github.com/leasehold-go/leasehold/internal/engine"
	"github.com/leasehold-go/leasehold/internal/trace"
	"github.com/leasehold-go/leasehold/leader"
	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"
)

// nemesisArgs are the arguments of a client process.
type nemesisArgs struct {
	URI, DB   string
	TTL, Poll time.Duration
	Dir, Name string // directory and name of the client's history
	HostDir   string
	Seed      uint64
}

// The keys that clients use, by kind.
const (
	nemesisRW     = "rw"
	nemesisSem    = "sem"
	nemesisLeader = "leader"
)

var nemesisMutexes = []string{"mutex a", "mutex b"}

func nemesisKeys() []string { return append(nemesisMutexes, nemesisRW, nemesisSem, nemesisLeader) }

// seats is the semaphore's size. rwLimit is the weight of an RWMutex's writer in histories.
const (
	seats   = 3
	rwLimit = 1 << 20
)

// fencedColl is the collection for fenced writes. It has one document for each key.
const fencedColl = "fenced"

// A nemesisClient does random work until it is ordered to finish.
type nemesisClient struct {
	nemesisArgs
	session  *dsync.Session
	faulty   *dsynctest.Faulty // injects faults between the session and the store
	election *leader.Election
	rec      *history.Recorder
	fence    *fence.Collection
	finish   chan struct{} // closed when the client must finish
}

// nemesisWork runs in the child process. It starts several goroutines that acquire, hold and
// release keys. On an order from the parent it stops them, closes the session and emits "done". If
// goroutines are still running 30 seconds later, "done" carries the stacks of all goroutines.
func nemesisWork(env *proc.Env) {
	c := &nemesisClient{finish: make(chan struct{})}
	env.Args(&c.nemesisArgs)
	before := runtime.NumGoroutine()
	// These times make the driver notice soon that the server is back.
	client, err := mongo.Connect(options.Client().ApplyURI(c.URI).
		SetConnectTimeout(c.TTL).SetHeartbeatInterval(time.Second).SetServerSelectionTimeout(c.TTL))
	if err != nil {
		env.Fatal(err)
	}
	if c.rec, err = history.NewRecorder(c.Dir, c.Name); err != nil {
		env.Fatal(err)
	}
	c.fence = fence.New(client.Database(c.DB).Collection(fencedColl), nil)
	for c.session == nil {
		c.session, err = c.open(client)
		if err != nil {
			time.Sleep(c.TTL / 10) // the server may have a fault
		}
	}
	prefers := &leader.Options{Preference: rand.N(3), YieldAfter: c.TTL} // some leaders hand over by themselves
	if c.election, err = leader.New(c.session, nemesisLeader, prefers); err != nil {
		env.Fatal(err)
	}
	env.Emit(proc.Event{Name: "ready"})

	var workers sync.WaitGroup
	for i := range 4 {
		w := &nemesisWorker{nemesisClient: c, draw: rand.New(rand.NewPCG(c.Seed, uint64(i)))}
		workers.Go(func() { w.run(i == 0) })
	}
	<-env.Orders()
	close(c.finish)
	workers.Wait()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	done := proc.Event{Name: "done"}
	err = c.session.Close(ctx)
	c.faulty.Close()
	if err := errors.Join(err, client.Disconnect(ctx), c.rec.Close()); err != nil {
		done.Err = err.Error()
	}
	for end := time.Now().Add(30 * time.Second); runtime.NumGoroutine() > before; time.Sleep(20 * time.Millisecond) {
		if time.Now().After(end) {
			stacks := make([]byte, 1<<16)
			done.Text = string(stacks[:runtime.Stack(stacks, true)])
			break
		}
	}
	env.Emit(done)
}

// nemesisGrace returns the grace of every session. It is not longer than the margin: the judge demands a grace after a
// killed process, too, but clients with a HostDir wait only for a margin then.
func nemesisGrace(ttl time.Duration) time.Duration { return min(ttl/10, 500*time.Millisecond) }

// open opens the session. Many of the notices for the session arrive late, twice, out of order or not at all.
func (c *nemesisClient) open(client *mongo.Client) (*dsync.Session, error) {
	ctx, cancel := context.WithTimeout(context.Background(), 4*c.TTL)
	defer cancel()
	store, err := dsyncmongo.NewStore(ctx, client.Database(c.DB), nil)
	if err != nil {
		return nil, err
	}
	c.faulty = dsynctest.NewFaulty(store, noticeFaults(rand.New(rand.NewPCG(c.Seed, noticeDraws)), c.TTL))
	s, err := dsync.New(c.faulty, &dsync.Options{TTL: c.TTL, Grace: nemesisGrace(c.TTL), PollInterval: c.Poll, HostDir: c.HostDir, Name: c.Name})
	if err != nil {
		return nil, err
	}
	f, err := os.Create(filepath.Join(c.Dir, c.Name+traceSuffix))
	if err != nil {
		return nil, err
	}
	engine.Of(s).Record(f) // the file stays open until the process exits
	return s, nil
}

// The names of the clients' trace files end with traceSuffix.
const traceSuffix = ".trace"

// replayTraces replays the traces of all clients, including those that were killed. It fails the
// test if a session's decisions do not follow from its events.
func replayTraces(t *testing.T, dir string) {
	files, err := filepath.Glob(filepath.Join(dir, "*"+traceSuffix))
	if err != nil || len(files) == 0 {
		t.Fatalf("no traces in %s (%v)", dir, err)
	}
	all := 0
	for _, name := range files {
		f, err := os.Open(name)
		noErr(t, err)
		n, err := trace.Replay(f)
		if err != nil {
			t.Errorf("%s: %v", filepath.Base(name), err)
		}
		all += n
		f.Close()
	}
	t.Logf("%d traces with %d events were replayed", len(files), all)
}

// noticeDraws is the number of the random source for faults of notices. The workers' random
// sources are numbered from 0.
const noticeDraws = 1 << 10

// finishing reports whether the client has been ordered to finish.
func (c *nemesisClient) finishing() bool { return closed(c.finish) }

// write makes a fenced write to the key's document with the token.
func (c *nemesisClient) write(key string, token int64) {
	ctx, cancel := context.WithTimeout(context.Background(), c.TTL/2)
	defer cancel()
	returned := c.rec.Write(key, token)
	push := bson.D{{Key: "$each", Value: bson.A{token}}, {Key: "$slice", Value: -logged}}
	res, err := c.fence.UpdateOne(ctx, token, bson.D{{Key: "_id", Value: key}}, bson.D{{Key: "$push", Value: bson.D{{Key: "log", Value: push}}}})
	switch {
	case errors.Is(err, fence.ErrStale):
		returned(history.Fenced)
	case err != nil:
		returned(err.Error())
	case res.MatchedCount != 1:
		returned(fmt.Sprintf("%d documents", res.MatchedCount))
	default:
		returned("")
	}
}

// logged is the number of writes that a document keeps in its log.
const logged = 200

// noticeFaults returns faults of notices: a third of the notices arrive late, twice, out of order
// or not at all, and some are never sent.
func noticeFaults(draw *rand.Rand, late time.Duration) func(dsynctest.Request) dsynctest.Fault {
	some := func() time.Duration { return time.Millisecond + time.Duration(draw.Int64N(int64(late/2))) }
	return func(r dsynctest.Request) (f dsynctest.Fault) {
		switch r.Method {
		case dsynctest.MethodNotify:
			f.LoseRequest = draw.IntN(16) == 0
		case dsynctest.MethodNotice:
			switch draw.IntN(12) {
			case 0: // never
				f.LoseRequest = true
			case 1: // after later notices
				f.LoseRequest, f.Again = true, some()
			case 2:
				f.Again = some()
			case 3: // deliver it together with later notices
				f.Delay = some()
			}
		}
		return f
	}
}

// Whatever happens to notices, a mutex has at most one holder at a time, its tokens grow, and every
// session gets all its turns.
func TestNoticesUnderFaults(t *testing.T) {
	t.Parallel()
	const sessions, ttl = 4, time.Minute
	const turns, most = 20, 400 // if turns rarely overlap, few notices are sent and more turns are needed: at most this many
	lab.One(t, server.Need{Notices: true}, func(t *testing.T, s *server.Server) {
		r := newRoom(t, s)
		var faults atomic.Int64
		var holders, last, taken atomic.Int64
		var all sync.WaitGroup
		draw := lab.Rand(t.Name())
		for range sessions {
			faulty := noticeFaults(rand.New(rand.NewPCG(draw.Uint64(), 0)), time.Second)
			session := r.faulty(t, dsync.Options{TTL: ttl, PollInterval: 500 * time.Millisecond}, func(r dsynctest.Request) dsynctest.Fault {
				f := faulty(r)
				if f != (dsynctest.Fault{}) {
					faults.Add(1)
				}
				return f
			})
			all.Go(func() {
				m := session.Mutex("key")
				for i := 0; i < turns || faults.Load() < sessions && i < most; i++ {
					h, err := m.Hold(t.Context())
					if err != nil {
						t.Error(err)
						return
					}
					taken.Add(1)
					if n := holders.Add(1); n != 1 {
						t.Errorf("%d holders at the same time, want 1", n)
					}
					if token := h.Token(); token <= last.Swap(token) {
						t.Errorf("token %d is not greater than the one before", token)
					}
					time.Sleep(2 * time.Millisecond)
					holders.Add(-1)
					if err := h.Release(t.Context()); err != nil {
						t.Error(err)
						return
					}
				}
			})
		}
		begin := time.Now()
		all.Wait()
		if faults.Load() < sessions {
			t.Errorf("only %d notices had faults, so this test shows little", faults.Load())
		}
		lab.Note(t, "%d turns in %.1f s, %d notices had faults", taken.Load(), time.Since(begin).Seconds(), faults.Load())
	})
}

// If every notice is lost, a waiter gets the key at its next poll.
func TestNoticesLost(t *testing.T) {
	t.Parallel()
	const poll = 400 * time.Millisecond
	for name, lost := range map[string]dsynctest.Method{"sent": dsynctest.MethodNotify, "heard": dsynctest.MethodNotice} {
		t.Run(fmt.Sprint("none is ", name), func(t *testing.T) {
			lab.Each(t, server.Need{Notices: true}, func(t *testing.T, s *server.Server) {
				r := newRoom(t, s)
				lose := func(r dsynctest.Request) dsynctest.Fault {
					return dsynctest.Fault{LoseRequest: r.Method == lost && r.Notice != driver.NoticeReady}
				}
				opt := dsync.Options{TTL: time.Minute, PollInterval: poll}
				a, b := r.faulty(t, opt, lose).Mutex("key"), r.faulty(t, opt, lose).Mutex("key")
				store := r.store()
				for range 5 {
					h := lock(t, a)
					ch := locking(t.Context(), b)
					eventually(t, "the other is queued", func() bool { return load(t, store, "key").Waiting == 1 })
					begin := time.Now()
					release(t, h)
					g := granted(t, ch)
					if took := g.at.Sub(begin); took > poll+poll/5+wakeUp {
						t.Errorf("granted after %v, want it at the next poll; the poll interval is %v", took, poll)
					}
					release(t, g.h)
				}
			})
		})
	}
}

// r.faulty opens a session whose requests and notices suffer the faults that decide returns.
func (r *room) faulty(t *testing.T, o dsync.Options, decide func(dsynctest.Request) dsynctest.Fault) *dsync.Session {
	t.Helper()
	o.Logger = r.logger()
	store, err := dsyncmongo.NewStore(r.opening(), r.Client(t).Database(r.DB), &dsyncmongo.Options{Session: o})
	noErr(t, err)
	faulty := dsynctest.NewFaulty(store, decide)
	s, err := dsync.New(faulty, &o)
	noErr(t, err)
	t.Cleanup(func() {
		s.Close(t.Context()) // t.Context has ended before the cleanup
		faulty.Close()
	})
	return s
}
