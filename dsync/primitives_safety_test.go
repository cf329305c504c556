package dsync_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/leasehold-go/leasehold/dsync"
	"github.com/leasehold-go/leasehold/dsync/dsynctest"
)

// A locked has the operations that these tests need on one hold of any primitive.
type locked struct {
	lock   func(context.Context) error
	unlock func(context.Context) error
	lost   func() <-chan struct{}
	token  func() int64
}

// lockedBy returns a locked for the hold that acquire returns.
func lockedBy(acquire func(context.Context) (*dsync.Hold, error)) locked {
	var h *dsync.Hold
	return locked{
		lock:   into(&h, acquire),
		unlock: func(ctx context.Context) error { return h.Release(ctx) },
		lost:   func() <-chan struct{} { return h.Lost() },
		token:  func() int64 { return h.Token() },
	}
}

func writeLocked(s *dsync.Session) locked {
	return lockedBy(s.RWMutex("k").Hold)
}

func readLocked(s *dsync.Session) locked {
	return lockedBy(s.RWMutex("k").RHold)
}

// acquired returns a function that makes a locked for n units of a semaphore of size 3.
func acquired(n int64) func(s *dsync.Session) locked {
	return func(s *dsync.Session) locked {
		m := s.Semaphore("k", 3)
		return lockedBy(func(ctx context.Context) (*dsync.Hold, error) { return m.Hold(ctx, n) })
	}
}

// run returns a locked for a Once: lock begins a run, and unlock ends it.
func run(s *dsync.Session) locked {
	o := s.Once("k")
	var (
		begun = make(chan context.Context, 1)
		end   = make(chan struct{})
		done  = make(chan error, 1)
		ctx   context.Context
	)
	return locked{
		lock: func(c context.Context) error {
			go func() {
				done <- o.Do(c, func(ctx context.Context) error {
					begun <- ctx
					<-end
					return errors.New("not sealed, so that the test can go on")
				})
			}()
			select {
			case ctx = <-begun:
				return nil
			case err := <-done:
				return err
			}
		},
		unlock: func(context.Context) error { close(end); return <-done },
		lost:   func() <-chan struct{} { return ctx.Done() },
		token:  func() int64 { return dsync.HoldFrom(ctx).Token() },
	}
}

// excluding lists pairs of holds that exclude each other.
var excluding = []struct {
	name        string
	first, next func(*dsync.Session) locked
}{
	{"a writer by a writer", writeLocked, writeLocked},
	{"a writer by a reader", writeLocked, readLocked},
	{"a reader by a writer", readLocked, writeLocked},
	{"part of a semaphore", acquired(1), acquired(3)},
	{"all of a semaphore", acquired(3), acquired(1)},
	{"a run", run, run},
}

// Promise 1, B02, B03, B07, B09, B20, B21 for the other primitives. Whatever goes wrong between the holder and the
// store, the holder's Lost closes at least the length of the grace before anyone else acquires a hold that excludes
// the holder's.
func TestPrimitivesLostBeforeTaken(t *testing.T) {
	type network func(r *rand.Rand, begun bool, q dsynctest.Request) dsynctest.Fault
	networks := map[string]network{
		"partition": nil, // the trial calls Cut later
		"hung heartbeat": func(_ *rand.Rand, begun bool, q dsynctest.Request) (f dsynctest.Fault) {
			if begun && q.Method == dsynctest.MethodHeartbeat {
				f.Hang = 3 * ttl
			}
			return f
		},
		"replies lost": func(_ *rand.Rand, begun bool, _ dsynctest.Request) dsynctest.Fault {
			return dsynctest.Fault{LoseReply: begun}
		},
		"requests late": func(r *rand.Rand, begun bool, _ dsynctest.Request) (f dsynctest.Fault) {
			if begun {
				f.Delay = time.Duration(r.Int64N(int64(2 * ttl)))
			}
			return f
		},
		"a bad network": func(r *rand.Rand, begun bool, _ dsynctest.Request) dsynctest.Fault {
			f := dsynctest.Fault{Delay: time.Duration(r.Int64N(int64(ttl / 10)))}
			if begun {
				f.LoseRequest, f.LoseReply = r.IntN(3) == 0, r.IntN(3) == 0
				if r.IntN(3) == 0 {
					f.Again = time.Duration(r.Int64N(int64(ttl)))
				}
			}
			return f
		},
	}
	for _, c := range excluding {
		for name, net := range networks {
			t.Run(c.name+" "+name, func(t *testing.T) {
				for seed := range max(2, trials()/25) {
					bubble(t, func(t *testing.T) {
						r := rand.New(rand.NewPCG(uint64(seed), 2))
						memory := dsynctest.NewMemory()
						memory.Skew(time.Duration(r.Int64N(int64(2*time.Hour))) - time.Hour)
						begin := time.Now().Add(ttl/10 + time.Duration(r.Int64N(int64(ttl))))
						var decide func(dsynctest.Request) dsynctest.Fault
						faults := rand.New(rand.NewPCG(uint64(seed), 3))
						if net != nil {
							decide = func(q dsynctest.Request) dsynctest.Fault {
								return net(faults, time.Now().After(begin), q)
							}
						}
						faulty := dsynctest.NewFaulty(memory, decide)
						defer faulty.Close()
						if net == nil {
							time.AfterFunc(time.Until(begin), faulty.Cut)
						}
						primitiveLostBeforeTaken(t, seed, r, memory, faulty, c.first, c.next)
					})
				}
			})
		}
	}
}

func primitiveLostBeforeTaken(t *testing.T, seed int, r *rand.Rand, memory *dsynctest.Memory, faulty *dsynctest.Faulty, first, next func(*dsync.Session) locked) {
	a, b := newSession(t, faulty, nil), newSession(t, memory, nil)
	mine := first(a)
	if err := mine.lock(background); err != nil {
		t.Fatal(err)
	}
	token := mine.token()

	var (
		lost     time.Time
		tooGood  bool // the hold survived the faults of this trial
		notified = make(chan struct{})
	)
	watched := mine.lost()
	go func() {
		defer close(notified)
		select {
		case <-watched:
			lost = time.Now()
		case <-time.After(10 * ttl):
			tooGood, lost = true, time.Now().Add(-grace)
			go mine.unlock(background)
		}
	}()
	// The store's clock steps by less than the margin.
	step := time.Duration(r.Int64N(int64(2*margin-4*time.Millisecond))) - margin + 2*time.Millisecond
	time.AfterFunc(time.Duration(r.Int64N(int64(2*ttl))), func() { memory.Skew(step) })
	time.Sleep(time.Duration(r.Int64N(int64(2 * ttl))))
	theirs := next(b)
	ctx, cancel := context.WithTimeout(background, 5*time.Minute)
	defer cancel()
	if err := theirs.lock(ctx); err != nil {
		t.Fatalf("seed %d: %v", seed, err)
	}
	taken := time.Now()
	synctest.Wait()
	if !isClosed(notified) {
		t.Fatalf("seed %d: taken while Lost was open", seed)
	}
	if d := taken.Sub(lost); d < grace {
		t.Errorf("seed %d: taken %v after Lost closed, want at least the grace of %v", seed, d, grace)
	}
	got := theirs.token()
	if got <= token {
		t.Errorf("seed %d: token %d after %d", seed, got, token)
	}
	if mine.token() != 0 {
		t.Errorf("seed %d: a hold that is over has a token", seed)
	}

	// B05: the late unlock does not free another holder's hold.
	faulty.Heal()
	if !tooGood {
		wantErr(t, fmt.Sprintf("seed %d: late unlock", seed), mine.unlock(background), dsync.ErrLost)
	}
	time.Sleep(2 * ttl)
	if h := holders(t, memory, "k"); len(h) != 1 || h[0].Token != got || theirs.token() != got || isClosed(theirs.lost()) {
		t.Errorf("seed %d: after the late unlock the holders are %v, want the one with token %d", seed, h, got)
	}
	theirs.unlock(background)
}

// B31 for the other primitives: if all of a session's requests are delivered again later, none of them joins a queue,
// frees a key or seals a key.
func TestPrimitivesReplayedRequestsChangeNothing(t *testing.T) {
	bubble(t, func(t *testing.T) {
		memory := dsynctest.NewMemory()
		faulty := newFaulty(t, memory, nil)
		faulty.Record()
		a, b := newSession(t, faulty, nil), newSession(t, memory, nil)
		failed := errors.New("failed")

		// These keys were used and are free again.
		rw, sem := a.RWMutex("rw"), a.Semaphore("sem", 3)
		for range 3 {
			rlock(t, rw)
			rlock(t, rw)
			rw.RUnlock()
			rw.RUnlock()
			wlock(t, rw)
			rw.Unlock()
			acquire(t, sem, 2)
			acquire(t, sem, 1)
			sem.Release(3)
			wantErr(t, "Do", a.Once("once").Do(background, func(context.Context) error { return failed }), failed)
		}
		sealed(t, a.Once("sealed"), "v")

		// These keys were used, too. Since then, another session has acquired these keys, and this session has given
		// up a wait for each of them.
		var wg sync.WaitGroup
		ctx, cancel := context.WithTimeout(background, time.Second)
		for _, key := range []string{"rw taken", "sem taken"} {
			rlock(t, a.RWMutex(key+" 2")) // this key stays held
			if key == "rw taken" {
				mine, theirs := a.RWMutex(key), b.RWMutex(key)
				rlock(t, mine)
				mine.RUnlock()
				wlock(t, theirs)
				wg.Go(func() { wantErr(t, "a wait", errOf(mine.RHold(ctx)), context.DeadlineExceeded) })
			} else {
				mine, theirs := a.Semaphore(key, 2), b.Semaphore(key, 2)
				acquire(t, mine, 2)
				mine.Release(2)
				acquire(t, theirs, 2)
				wg.Go(func() { wantErr(t, "a wait", mine.Acquire(ctx, 1), context.DeadlineExceeded) })
			}
		}
		wg.Wait()
		cancel()

		// These keys are still held.
		sem = a.Semaphore("part", 5)
		held := []*dsync.Hold{take(t, a.RWMutex("write").Hold), units(t, sem, 1), units(t, sem, 2)}
		time.Sleep(ttl)
		check := func(when string) {
			t.Helper()
			for key, want := range map[string]int64{
				"rw": 0, "sem": 0, "once": 0, "sealed": 0, "rw taken": 1 << 30, "sem taken": 2, "rw taken 2": 1, "write": 1 << 30, "part": 3,
			} {
				if got, n := sum(t, memory, key), queueLength(t, memory, key); got != want || n != 0 {
					t.Errorf("%s: of key %q, %d units are held and %d claims are in the queue, want %d and 0", when, key, got, n, want)
				}
			}
			for _, h := range held {
				if isClosed(h.Lost()) {
					t.Errorf("%s: the hold was lost: %v", when, h)
				}
			}
			if _, done, err := b.Once("once").Value(background); done || err != nil {
				t.Errorf("%s: sealed by a run that failed: %v", when, err)
			}
			wantDone(t, b.Once("sealed"), "v")
		}
		check("before")
		for range 2 {
			if err := faulty.Replay(background); err != nil {
				t.Fatal(err)
			}
			check("replayed")
			time.Sleep(ttl)
			check("later")
		}
		// The replayed requests must not change anything after the session has ended, either.
		for _, h := range held {
			h.Release(background)
		}
		if err := a.Close(background); err != nil {
			t.Fatal(err)
		}
		faulty.Replay(background)
		rw = b.RWMutex("write")
		wlock(t, rw)
		rw.Unlock()
		sem = b.Semaphore("part", 5)
		acquire(t, sem, 5)
		sem.Release(5)
		wantDone(t, b.Once("sealed"), "v")
		sealed(t, b.Once("once"), "w")
	})
}
