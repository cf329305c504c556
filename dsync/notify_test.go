package dsync_test

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/leasehold-go/leasehold/internal/engine"

	"github.com/leasehold-go/leasehold/dsync"
	"github.com/leasehold-go/leasehold/dsync/driver"
	"github.com/leasehold-go/leasehold/dsync/dsynctest"
	"github.com/leasehold-go/leasehold/internal/testkit"
)

// onNotices injects a fault into each notice, both on its way to the store and on its way from the store.
func onNotices(fault func() dsynctest.Fault) func(dsynctest.Request) dsynctest.Fault {
	return func(r dsynctest.Request) dsynctest.Fault {
		if r.Method == dsynctest.MethodNotify || r.Method == dsynctest.MethodNotice {
			return fault()
		}
		return dsynctest.Fault{}
	}
}

// Promise 5: whatever happens to notices, no promise is broken, and no waiter waits longer than it would by polling.
func TestNoticesLostLateDoubledAndReordered(t *testing.T) {
	const poll, hold = ttl, 100 * time.Millisecond
	draws := testkit.Draw(t)
	late := func() time.Duration { return draws.Below(20 * time.Second) }
	faults := map[string]func() dsynctest.Fault{
		"lost":    func() dsynctest.Fault { return dsynctest.Fault{LoseRequest: true} },
		"late":    func() dsynctest.Fault { return dsynctest.Fault{Delay: 10 * time.Second} },
		"doubled": func() dsynctest.Fault { return dsynctest.Fault{Again: 1 + late()} },
		"reordered": func() dsynctest.Fault {
			return dsynctest.Fault{LoseRequest: draws.IntN(2) == 0, Again: 1 + late()}
		},
	}
	for name, fault := range faults {
		for _, linger := range []time.Duration{0, time.Second} {
			inBubble(t, fmt.Sprintf("%s, Linger %v", name, linger), func(t *testing.T) {
				const processes, rounds = 4, 30
				memory := dsynctest.NewMemory()
				var holding atomic.Int64
				var last atomic.Int64
				var wg sync.WaitGroup
				for range processes {
					s := newSession(t, newFaulty(t, memory, onNotices(fault)), &dsync.Options{Linger: linger})
					wg.Go(func() {
						mu := s.Mutex("k")
						for range rounds {
							began := time.Now()
							mu.Lock()
							if holding.Add(1) != 1 {
								t.Error("the key has two holders")
							}
							if token := mu.Token(); token <= last.Swap(token) {
								t.Errorf("token %d after a greater one", token)
							}
							// At most three other waiters are in the queue. Each of these waiters may learn of
							// its grant only by its own poll. A lingering key may stay held until the first
							// waiter in the queue polls.
							if d := time.Since(began); d > 2*processes*poll {
								t.Errorf("Lock waited %v, want at most two polls per process", d)
							}
							time.Sleep(hold)
							holding.Add(-1)
							mu.Unlock()
						}
					})
				}
				wg.Wait()
				time.Sleep(10 * ttl)
				if h := holders(t, memory, "k"); len(h) > 0 {
					t.Errorf("still held in the end by %v", h)
				}
			})
		}
	}
}

// If the notice of a grant is lost, the waiter learns of the grant by its next poll.
func TestLostNoticeCostsAPoll(t *testing.T) {
	bubble(t, func(t *testing.T) {
		memory := dsynctest.NewMemory()
		lost := newFaulty(t, memory, onNotices(func() dsynctest.Fault { return dsynctest.Fault{LoseRequest: true} }))
		held, mu := newSession(t, lost, nil).Mutex("k"), newSession(t, memory, nil).Mutex("k")
		lock(t, held)
		time.AfterFunc(time.Minute, held.Unlock)
		began := time.Now()
		lock(t, mu)
		if d := time.Since(began) - time.Minute; d > ttl*12/10 {
			t.Errorf("the key was locked %v after the Unlock, want at most a poll interval", d)
		}
		mu.Unlock()
	})
}

// Unlock does not wait until the notice has been sent. Close does wait, so that after an orderly end of a process no
// waiter has to wait for its next poll.
func TestCloseWaitsForNoticesButUnlockDoesNot(t *testing.T) {
	const slow = 200 * time.Millisecond
	bubble(t, func(t *testing.T) {
		memory := dsynctest.NewMemory()
		f := newFaulty(t, memory, func(r dsynctest.Request) (f dsynctest.Fault) {
			if r.Method == dsynctest.MethodNotify {
				f.Delay = slow
			}
			return f
		})
		s := newSession(t, f, nil)
		held := s.Mutex("k")
		lock(t, held)
		mu := newSession(t, memory, &dsync.Options{PollInterval: time.Hour}).Mutex("k")
		locked := make(chan time.Time, 1)
		go func() {
			mu.Lock()
			locked <- time.Now()
		}()
		time.Sleep(time.Second)
		began := time.Now()
		held.Unlock()
		if d := time.Since(began); d > 0 {
			t.Errorf("Unlock took %v", d)
		}
		noErr(t, s.Close(background))
		if d := time.Since(began); d < slow {
			t.Errorf("Close took %v, want at least the %v that sending the notice takes", d, slow)
		}
		if d := (<-locked).Sub(began); d != slow {
			t.Errorf("the key was locked %v after Unlock, want %v", d, slow)
		}
		mu.Unlock()
	})
}

// If a notice can't be sent, the session retries it for a short time.
func TestNotifyIsRetried(t *testing.T) {
	bubble(t, func(t *testing.T) {
		memory := dsynctest.NewMemory()
		tries := 0
		f := newFaulty(t, memory, func(r dsynctest.Request) (f dsynctest.Fault) {
			if r.Method == dsynctest.MethodNotify {
				tries++
				f.LoseRequest = tries == 1
			}
			return f
		})
		held := newSession(t, f, nil).Mutex("k")
		mu := newSession(t, memory, &dsync.Options{PollInterval: time.Hour}).Mutex("k")
		lock(t, held)
		time.AfterFunc(time.Second, held.Unlock)
		lock(t, mu)
		if tries != 2 {
			t.Errorf("sent %d times, want 2", tries)
		}
		mu.Unlock()
	})
}

// The session retries a notice for as long as the election of a new primary can take. So even if the key is granted
// just before an election, the waiter learns of it without waiting for its next poll. Meanwhile, other releases do
// not wait for the notice.
func TestNotifyOutlastsAnElection(t *testing.T) {
	cases := map[time.Duration]int{ // number of notices, by TTL
		time.Second: 40,
		ttl:         40, // more than the session may send at once
		time.Minute: 30, // fewer, because all first attempts together take ten seconds
	}
	for ttl, notices := range cases {
		inBubble(t, "TTL "+ttl.String(), func(t *testing.T) {
			const election = 12 * time.Second
			store := &electing{Memory: dsynctest.NewMemory()}
			s := newSession(t, store, &dsync.Options{TTL: ttl})
			held, waits := make([]*dsync.Mutex, notices), make([]*dsync.Mutex, notices)
			var wg sync.WaitGroup
			other := newSession(t, store.Memory, &dsync.Options{PollInterval: time.Hour})
			for i := range held {
				held[i], waits[i] = s.Mutex(fmt.Sprint("k", i)), other.Mutex(fmt.Sprint("k", i))
				lock(t, held[i])
			}
			began := time.Now()
			for i := range held {
				wg.Go(func() {
					waits[i].Lock()
					if d := time.Since(began) - election; d < 0 || d > ttl/12 {
						t.Errorf("the key was locked %v after the election", d)
					}
				})
			}
			time.Sleep(500 * time.Millisecond)
			store.until(began.Add(election))
			for i := range held {
				held[i].Unlock()
			}
			time.Sleep(4 * time.Second) // by then the notices are under way or being retried
			for range 10 {
				asked := time.Now()
				mu := s.Mutex("another")
				lock(t, mu)
				mu.Unlock()
				if d := time.Since(asked); d > 0 {
					t.Errorf("Lock and Unlock took %v", d)
				}
			}
			wg.Wait()
		})
	}
}

// Close retries notices that could not be sent, but for no longer than the grace and one attempt. If its ctx has ended,
// it sends each notice once more. Close reports no error for a notice that was never sent, because the waiter has the
// key and learns of its grant later.
func TestCloseSendsNoticesThatFailed(t *testing.T) {
	for _, tt := range []struct {
		name     string
		ended    bool          // Close's ctx
		election time.Duration // from Close on
		want     time.Duration // the longest time that Close may take
		locked   time.Duration // the longest time until each waiter has its lock; 0: not checked, because waiters must poll
	}{
		{"the primary is back in time", false, grace, grace + time.Second, grace + time.Second},
		{"ctx has ended, and the primary is back within one attempt", true, ttl / 12, ttl / 6, ttl / 6},
		{"no primary", false, time.Hour, grace + ttl/6, 0},
		{"ctx has ended, no primary", true, time.Hour, ttl / 6, 0},
	} {
		inBubble(t, tt.name, func(t *testing.T) {
			store := &electing{Memory: dsynctest.NewMemory()}
			s, other := newSession(t, store, nil), newSession(t, store.Memory, nil)
			const keys = 20
			locked := make(chan time.Time, keys)
			for i := range keys {
				key := fmt.Sprint("k", i)
				mu := s.Mutex(key)
				lock(t, mu)
				go func() {
					other.Mutex(key).Lock()
					locked <- time.Now()
				}()
				synctest.Wait()
				store.until(time.Now().Add(time.Hour))
				mu.Unlock()
			}
			time.Sleep(3 * time.Second) // each notice has failed at least once
			began := time.Now()
			store.until(began.Add(tt.election))
			ctx, cancel := context.WithCancel(background)
			defer cancel()
			if tt.ended {
				cancel()
			}
			if err := s.Close(ctx); err != nil {
				t.Errorf("Close: %v", err)
			}
			if d := time.Since(began); d > tt.want {
				t.Errorf("Close took %v, want at most %v", d, tt.want)
			}
			for range keys {
				if d := (<-locked).Sub(began); tt.locked > 0 && d > tt.locked {
					t.Errorf("the key was locked %v after Close began, want within %v", d, tt.locked)
				}
			}
		})
	}
}

// An electing store can't send notices while it has no primary. An attempt succeeds as soon as the store has a
// primary, and fails if its context ends first.
type electing struct {
	*dsynctest.Memory
	mu  sync.Mutex
	end time.Time
}

func (s *electing) until(end time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.end = end
}

func (s *electing) Notify(ctx context.Context, notices []driver.Notice) error {
	s.mu.Lock()
	end := s.end
	s.mu.Unlock()
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(time.Until(end)):
		return s.Memory.Notify(ctx, notices)
	}
}

// If a session's release grants another of the session's own claims, no notice is sent.
func TestOwnNoticesAreNotSent(t *testing.T) {
	bubble(t, func(t *testing.T) {
		store := dsynctest.NewMemory()
		s := newSession(t, store, nil)
		a, b := s.Semaphore("k", 2), s.Semaphore("k", 2)
		acquire(t, a, 2)
		acquired := make(chan struct{})
		go func() {
			acquire(t, b, 1)
			close(acquired)
		}()
		synctest.Wait()
		before := store.Counts()
		a.Release(2)
		<-acquired
		synctest.Wait()
		if d := store.Counts().Since(before); d.Commands[dsynctest.MethodNotify] != 0 || d.Total() != 1 {
			t.Errorf("commands %v, want one Release", d.Commands)
		}
		b.Release(1)
	})
}

// If an observed key changes constantly, the number of notices stays bounded, and observers still see the last
// change.
func TestChangesAreMerged(t *testing.T) {
	testkit.Large(t)
	bubble(t, func(t *testing.T) {
		const turns = 10_000
		memory := dsynctest.NewMemory()
		slow := newFaulty(t, memory, func(dsynctest.Request) dsynctest.Fault {
			return dsynctest.Fault{Delay: time.Millisecond / 2, ReplyDelay: time.Millisecond / 2}
		})
		observer, s := newSession(t, memory, nil), newSession(t, slow, &dsync.Options{HandOffTime: -1})
		ctx, cancel := context.WithCancel(background)
		var seen driver.State
		ended := make(chan struct{})
		engine.Of(observer).Observe(ctx, "k", func(st driver.State, _ error) { seen = st }, func() { close(ended) })
		time.Sleep(time.Second)
		mu := s.Mutex("k")
		before, began := memory.Counts(), time.Now()
		for range turns {
			turn(mu)
		}
		lock(t, mu)
		took := time.Since(began)
		time.Sleep(time.Second)
		d := memory.Counts().Since(before)
		if n, most := d.Commands[dsynctest.MethodNotify], int(took/(20*time.Millisecond))+2; n > most || n < most/2 {
			t.Errorf("%d notices of %d changes in %v, want about %d", n, 2*turns, took, most)
		}
		mu.Unlock()
		time.Sleep(5 * time.Millisecond)
		lock(t, mu) // it is too soon after the Unlock's notice for another one
		time.Sleep(time.Second)
		cancel()
		<-ended
		if len(seen.Holders) != 1 || seen.Holders[0].Token != mu.Token() {
			t.Errorf("the last holders observed are %v", seen.Holders)
		}
		mu.Unlock()
	})
}

// A waiter's polls send no notices to the observers of the key.
func TestPollsAreNotChanges(t *testing.T) {
	bubble(t, func(t *testing.T) {
		memory := dsynctest.NewMemory()
		observer, s := newSession(t, memory, nil), newSession(t, memory, &dsync.Options{Retention: -1, PollInterval: 100 * time.Millisecond})
		held := newSession(t, memory, nil).Mutex("k")
		lock(t, held)
		ctx, cancel := context.WithCancel(background)
		ended := make(chan struct{})
		engine.Of(observer).Observe(ctx, "k", func(driver.State, error) {}, func() { close(ended) })
		wait, stop := context.WithTimeout(background, time.Minute)
		defer stop()
		time.AfterFunc(3*time.Second, func() {
			before := memory.Counts()
			time.Sleep(10 * time.Second)
			if s.Mutex("k").TryLock() {
				t.Error("locked a key that is held")
			}
			if d := memory.Counts().Since(before).Commands; d[dsynctest.MethodNotify] != 0 || d[dsynctest.MethodAcquire] < 50 {
				t.Errorf("commands %v, want polls and no notices", d)
			}
		})
		wantErr(t, "LockContext", s.Mutex("k").LockContext(wait), context.DeadlineExceeded)
		cancel()
		<-ended
		held.Unlock()
	})
}

// Promise 5: a waiter has the key as soon as a notice reports its grant, no matter how many requests for other keys
// are under way.
func TestGrantedWaiterDoesNotWaitForOtherRequests(t *testing.T) {
	bubble(t, func(t *testing.T) {
		const polls = 100 // many more requests than may be under way at once
		memory := dsynctest.NewMemory()
		var hang atomic.Bool
		slow := newFaulty(t, memory, func(r dsynctest.Request) (f dsynctest.Fault) {
			if r.Method == dsynctest.MethodAcquire && r.Key != "k" && hang.Load() {
				f.Delay = ttl / 7
			}
			return f
		})
		a, b := newSession(t, memory, nil), newSession(t, slow, nil)
		ctx, cancel := context.WithCancel(background)
		defer cancel()
		var others []*dsync.Hold
		for i := range polls {
			key := fmt.Sprint("other ", i)
			others = append(others, take(t, a.Mutex(key).Hold))
			go b.Mutex(key).LockContext(ctx)
		}
		mine, theirs := a.Mutex("k"), b.Mutex("k")
		lock(t, mine)
		locked := make(chan struct{})
		go func() {
			defer close(locked)
			lock(t, theirs)
		}()
		time.Sleep(time.Second)
		hang.Store(true)
		for _, h := range others {
			if err := h.ReleaseAfter(background, time.Hour); err != nil { // this wakes the key's waiter, which requests the key again
				t.Error(err)
			}
		}
		synctest.Wait()
		began := time.Now()
		mine.Unlock()
		<-locked
		if d := time.Since(began); d > 0 {
			t.Errorf("the key was locked %v after Unlock", d)
		}
		theirs.Unlock()
		hang.Store(false)
	})
}
