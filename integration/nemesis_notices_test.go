package integration_test

import (
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/leasehold-go/leasehold/dsync"
	"github.com/leasehold-go/leasehold/dsync/driver"
	"github.com/leasehold-go/leasehold/dsync/dsynctest"
	dsyncmongo "github.com/leasehold-go/leasehold/dsync/mongo"
	"github.com/leasehold-go/leasehold/integration/internal/server"
)

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
	lab.Each(t, server.Need{Notices: true}, func(t *testing.T, s *server.Server) {
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
	if err != nil {
		t.Fatal(err)
	}
	faulty := dsynctest.NewFaulty(store, decide)
	s, err := dsync.New(faulty, &o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		s.Close(t.Context()) // t.Context has ended before the cleanup
		faulty.Close()
	})
	return s
}
