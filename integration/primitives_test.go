package integration_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/leasehold-go/leasehold/dsync"
	"github.com/leasehold-go/leasehold/integration/internal/server"
)

// Readers in several processes hold an RWMutex together, but a writer holds it alone.
func TestRWMutex(t *testing.T) {
	const processes, goroutines, rounds = 3, 4, 5
	lab.One(t, server.Need{}, func(t *testing.T, s *server.Server) {
		r := newRoom(t, s)
		var readers, writers, together atomic.Int64
		var wg sync.WaitGroup
		for range processes {
			session := r.session(r.short(20 * time.Second))
			for i := range goroutines {
				rw := session.RWMutex("rw")
				wg.Go(func() {
					for range rounds {
						if i == 0 {
							h, err := rw.Hold(t.Context())
							if err != nil {
								t.Error(err)
								return
							}
							if w, n := writers.Add(1), readers.Load(); w != 1 || n != 0 || h.Token() == 0 {
								t.Errorf("a writer holds it together with others: %d writers and %d readers", w, n)
							}
							time.Sleep(2 * time.Millisecond)
							writers.Add(-1)
							release(t, h)
							continue
						}
						h, err := rw.RHold(t.Context())
						if err != nil {
							t.Error(err)
							return
						}
						if n := readers.Add(1); n > 1 {
							together.Add(1)
						}
						if w := writers.Load(); w != 0 || h.Token() == 0 {
							t.Errorf("a reader holds it together with %d writers", w)
						}
						time.Sleep(5 * time.Millisecond)
						readers.Add(-1)
						release(t, h)
					}
				})
			}
		}
		wg.Wait()
		if together.Load() == 0 {
			t.Error("the RWMutex never had several readers at the same time")
		}
		if st := load(t, r.store(), "rw"); len(st.Holders) != 0 || st.Waiting != 0 {
			t.Errorf("at the end the key's state is %+v, want no holder and no waiter", st)
		}
	})
}

// B20: a reader or writer whose process is cut off blocks others until its lease ends, but no
// longer.
func TestB20ExpiredReadersAndWriters(t *testing.T) {
	t.Parallel()
	lab.One(t, server.Need{}, func(t *testing.T, s *server.Server) {
		const ttl = 2 * time.Second
		for _, writes := range []bool{false, true} {
			t.Run(fmt.Sprint("writes ", writes), func(t *testing.T) {
				r := newRoom(t, s)
				p := r.proxy()
				gone := r.via(p, r.short(ttl)).RWMutex("rw")
				next := r.session(r.short(patient)).RWMutex("rw")
				holds, takes := gone.RHold, next.Hold
				if writes {
					holds, takes = gone.Hold, next.RHold
				}
				ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
				defer cancel()
				h, err := holds(ctx)
				noErr(t, err)
				ended := h.Lost()
				p.Cut()
				taken, err := takes(ctx)
				noErr(t, err)
				if !closed(ended) {
					t.Error("another session acquired the lock before Lost closed")
				}
				release(t, taken)
			})
		}
	})
}

// Together, a semaphore's holders never exceed its size. If a process uses another size without resizing the semaphore,
// it gets an error with both sizes.
func TestSemaphore(t *testing.T) {
	const processes, goroutines, rounds = 3, 4, 5
	lab.One(t, server.Need{}, func(t *testing.T, s *server.Server) {
		r := newRoom(t, s)
		var held, most atomic.Int64
		var wg sync.WaitGroup
		for range processes {
			session := r.session(r.short(20 * time.Second))
			for i := range goroutines {
				n := int64(1 + i%3)
				sem := session.Semaphore("sem", 5)
				wg.Go(func() {
					for range rounds {
						if err := sem.Acquire(t.Context(), n); err != nil {
							t.Error(err)
							return
						}
						sum := held.Add(n)
						if sum > 5 {
							t.Errorf("the holders together have %d units", sum)
						}
						for m := most.Load(); sum > m && !most.CompareAndSwap(m, sum); m = most.Load() {
						}
						time.Sleep(3 * time.Millisecond)
						held.Add(-n)
						sem.Release(n)
					}
				})
			}
		}
		wg.Wait()
		if most.Load() < 3 {
			t.Errorf("the holders together never had more than %d units", most.Load())
		}

		a, b := r.session(r.short(20*time.Second)), r.session(r.short(20*time.Second))
		old, renewed := a.Semaphore("sized", 2), b.Semaphore("sized", 3)
		noErr(t, old.Acquire(t.Context(), 2))
		_, err := renewed.TryHold(t.Context(), 1)
		if !errors.Is(err, dsync.ErrMismatch) || !strings.Contains(err.Error(), "size 2, not 3") {
			t.Errorf("with another size: %v, want ErrMismatch with both sizes", err)
		}
		noErr(t, renewed.Resize(t.Context(), 3))
		if !renewed.TryAcquire(1) || old.TryAcquire(1) {
			t.Error("after the resize to 3, the third unit was refused, or a fourth was granted")
		}
		old.Release(2)
		if !old.TryAcquire(1) {
			t.Error("a process that uses the old size was refused after the resize")
		}
		old.Release(1)
		renewed.Release(1)
	})
}

// With Once, a function succeeds once in the whole fleet. The other processes wait for the run, and its result is kept.
func TestOnce(t *testing.T) {
	const processes, goroutines = 3, 5
	lab.One(t, server.Need{}, func(t *testing.T, s *server.Server) {
		r := newRoom(t, s)
		var runs atomic.Int64
		var wg sync.WaitGroup
		failed := errors.New("the first run fails")
		for range processes {
			session := r.session(r.short(20 * time.Second))
			for range goroutines {
				wg.Go(func() {
					value, err := session.Once("migration").DoValue(t.Context(), func(ctx context.Context) ([]byte, error) {
						if runs.Add(1) == 1 {
							return nil, failed
						}
						time.Sleep(100 * time.Millisecond)
						return []byte("done"), nil
					})
					if !errors.Is(err, failed) && (err != nil || string(value) != "done") {
						t.Errorf("DoValue: %q, %v, want done, or the error of the run", value, err)
					}
				})
			}
		}
		wg.Wait()
		if runs.Load() != 2 {
			t.Errorf("%d runs, want one that fails and one that succeeds", runs.Load())
		}
		value, done, err := r.session(r.short(20 * time.Second)).Once("migration").Value(t.Context())
		if err != nil || !done || string(value) != "done" {
			t.Errorf("Value: %q, %v, %v, want done", value, done, err)
		}
	})
}

// Promises 2 and 8: goroutines of one process mostly hand off holds without sending commands. Even so, other processes
// get their turns, and tokens grow with each hold.
func TestHandOff(t *testing.T) {
	const processes, goroutines, rounds = 3, 8, 200
	lab.One(t, server.Need{}, func(t *testing.T, s *server.Server) {
		r := newRoom(t, s)
		mon := newMonitor(r.DB)
		var wg sync.WaitGroup
		var last int64 // guarded by the lock
		var passed int
		holder := -1
		for i := range processes {
			session := r.session(r.short(20*time.Second), mon.client())
			warm(t, session, fmt.Sprint("warm ", i))
			for range goroutines {
				mu := session.Mutex("handed off")
				wg.Go(func() {
					for range rounds {
						mu.Lock()
						if token := mu.Token(); token <= last {
							t.Errorf("token %d came after %d, want a greater one", token, last)
						} else {
							last = token
						}
						if holder != i {
							holder = i
							passed++
						}
						time.Sleep(100 * time.Microsecond)
						mu.Unlock()
					}
				})
			}
		}
		mon.reset()
		wg.Wait()
		const holds = processes * goroutines * rounds
		n := len(mon.commands(onKeyName("handed off")))
		if n > holds/5 {
			t.Errorf("%d commands for %d holds, want at most a fifth as many", n, holds)
		}
		if passed < 2*processes {
			t.Errorf("the key passed between processes only %d times", passed)
		}
		lab.Note(t, "%d holds of %d processes: %d commands, handed off %d times", holds, processes, n, passed)
	})
}

// onKeyName matches the commands on the key's record.
func onKeyName(key string) func(command) bool {
	return func(c command) bool { return c.id == "k/"+key }
}

// A lingering key is locked again without a command, and is released when another session requests
// it. If the server has notices, the key is released before any poll or heartbeat.
func TestLinger(t *testing.T) {
	t.Parallel()
	lab.One(t, server.Need{}, func(t *testing.T, s *server.Server) {
		r := newRoom(t, s)
		pushes := s.Has(server.Need{Notices: true})
		mon := newMonitor(r.DB)
		linger, plain := idleOptions(), idleOptions()
		linger.Linger = time.Minute
		if !pushes {
			linger.Linger, plain.PollInterval = 8*time.Second, 50*time.Millisecond
		}
		mu := warm(t, r.session(linger, mon.client()), "mine")
		if pushes {
			eventually(t, "the session listens", func() bool { return len(mon.commands(awaits)) > 0 })
			release(t, lock(t, mu)) // a new grant, because the previous one no longer lingers
		}
		mon.reset()
		for range 50 {
			mu.Lock()
			//lint:ignore SA2001 the commands of Lock and Unlock are counted
			mu.Unlock()
		}
		if n := len(mon.commands(onKeyName("mine"))); n != 0 {
			t.Errorf("%d commands for a key that lingers, want none", n)
		}
		other := r.session(plain)
		if _, err := other.Mutex("mine").TryHold(t.Context()); sentinel(err) != "held" {
			t.Errorf("a try elsewhere: %v, want ErrHeld", err)
		}
		next := lock(t, other.Mutex("mine")) // with notices, far sooner than by Linger or a poll
		if st := load(t, r.store(), "mine"); len(st.Holders) != 1 || st.Holders[0].Session != other.ID() {
			t.Errorf("the key is held by %+v, want the other session", st.Holders)
		}
		release(t, next)
	})
}
