package dsync_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/leasehold-go/leasehold/dsync"
	"github.com/leasehold-go/leasehold/dsync/admin"
	"github.com/leasehold-go/leasehold/dsync/driver"
	"github.com/leasehold-go/leasehold/dsync/dsynctest"
	"github.com/leasehold-go/leasehold/internal/storecmd"
	"github.com/leasehold-go/leasehold/internal/testkit"
)

// at returns the n-th tick of a schedule.
func at(n int) time.Time {
	return time.Date(2026, 11, 1, 2, 0, 0, 0, time.UTC).Add(time.Duration(n) * time.Minute)
}

func nothing(context.Context) error { return nil }

// wantRan calls Do for tick n and checks whether the function runs.
func wantRan(t testing.TB, p *dsync.Periodic, n int, want bool) {
	t.Helper()
	called := false
	ran, err := p.Do(background, at(n), func(context.Context) error { called = true; return nil })
	if ran != want || called != want || err != nil {
		t.Errorf("Do of tick %d: ran %t, called %t, %v; want %t", n, ran, called, err, want)
	}
}

// wantLast checks that Last returns tick n and its value. An n of -1 means no tick.
func wantLast(t testing.TB, p *dsync.Periodic, n int, value string) {
	t.Helper()
	tick, got, err := p.Last(background)
	if n < 0 {
		if !tick.IsZero() || got != nil || err != nil {
			t.Errorf("Last: %v, %q, %v; want none", tick, got, err)
		}
	} else if tick != at(n) || got == nil || string(got) != value || err != nil {
		t.Errorf("Last: %v, %q (nil %t), %v; want %v, %q", tick, got, got == nil, err, at(n), value)
	}
}

// When a run has succeeded, its tick and all earlier ticks are over for all processes. Later ticks are not over.
func TestPeriodicTicksAreOver(t *testing.T) {
	bubble(t, func(t *testing.T) {
		store := dsynctest.NewMemory()
		a, b := newSession(t, store, nil).Periodic("k"), newSession(t, store, nil).Periodic("k")
		wantLast(t, a, -1, "")
		wantRan(t, a, 3, true)
		for _, n := range []int{3, 2, 0} {
			wantRan(t, b, n, false)
		}
		wantRan(t, b, 4, true)
		wantRan(t, a, 4, false)
		wantRan(t, a, 7, true) // ticks 5 and 6 are skipped
		before := store.Counts()
		wantRan(t, a, 7, false)
		wantRan(t, a, 5, false)
		wantRan(t, b, 4, false)
		if c := store.Counts().Since(before); c.Total() > 3 || c.Writes > 0 {
			t.Errorf("%d commands and %d writes for three ticks that are over", c.Total(), c.Writes)
		}
		wantRan(t, b, 6, false)
		wantLast(t, a, 7, "")
		wantLast(t, b, 7, "")
	})
}

// Last returns the result of the last run that succeeded, even if a later run is in progress or has failed.
func TestPeriodicLast(t *testing.T) {
	bubble(t, func(t *testing.T) {
		store := dsynctest.NewMemory()
		p := newSession(t, store, nil).Periodic("k")
		given := []byte("up to here")
		if _, ran, err := p.DoValue(background, at(1), func(context.Context) ([]byte, error) { return given, nil }); !ran || err != nil {
			t.Fatal(ran, err)
		}
		given[0] = 'U'
		wantLast(t, p, 1, "up to here")
		failed := errors.New("failed")
		_, ran, err := p.DoValue(background, at(2), func(context.Context) ([]byte, error) {
			wantLast(t, newSession(t, store, nil).Periodic("k"), 1, "up to here")
			return []byte("no"), failed
		})
		if wantErr(t, "DoValue", err, failed); !ran {
			t.Error("DoValue returned false for ran, although the function has run (and failed)")
		}
		wantLast(t, p, 1, "up to here")
		wantLast(t, newSession(t, store, nil).Periodic("k"), 1, "up to here")
		if tick, _, _ := p.Last(background); tick.Location() != time.UTC {
			t.Errorf("Last returned a time in %v", tick.Location())
		}
	})
}

// While one caller runs a tick, other callers with the same tick wait. If the run fails, one of these callers runs
// the tick next. Once a run has succeeded, the remaining callers return. A caller with a later tick waits, and then
// runs its own tick.
func TestPeriodicWaitersTakeOver(t *testing.T) {
	for name, polling := range deliveries {
		inBubble(t, name, func(t *testing.T) {
			store := dsynctest.NewMemory()
			store.Polling = polling
			var mu sync.Mutex
			var order []string
			var wg sync.WaitGroup
			began := time.Now()
			call := func(host, n int, fails bool) {
				p := newSession(t, store, nil).Periodic("k")
				wg.Go(func() {
					ran, err := p.Do(background, at(n), func(context.Context) error {
						time.Sleep(ttl)
						if fails {
							return errors.New("failed")
						}
						return nil
					})
					mu.Lock()
					defer mu.Unlock()
					if ran {
						order = append(order, fmt.Sprintf("%d ran %d: %t", host, n, err == nil))
					} else if err != nil {
						t.Errorf("host %d: %v", host, err)
					}
				})
				synctest.Wait()
			}
			call(0, 1, true)
			call(1, 1, true)
			call(2, 2, false)
			call(3, 1, false)
			call(4, 1, false)
			call(5, 3, false)
			wg.Wait()
			// The caller with tick 2 came before two callers with tick 1, but one of these two runs first.
			want := []string{"0 ran 1: false", "1 ran 1: false", "3 ran 1: true", "2 ran 2: true", "5 ran 3: true"}
			if fmt.Sprint(order) != fmt.Sprint(want) {
				t.Errorf("the runs were %q, want %q", order, want)
			}
			if d := time.Since(began); !polling && d != 5*ttl {
				t.Errorf("the calls took %v, want %v", d, 5*ttl)
			}
			wantLast(t, newSession(t, store, nil).Periodic("k"), 3, "")
			wantFree(t, store, "k")
		})
	}
}

// Within a process and among processes, waiters are served in the order of their ticks, not in FIFO order. So a
// process that has fallen behind runs its missed ticks before another process runs the current tick. A caller that
// waits for a run in its own process is not in the store's queue.
func TestPeriodicOrder(t *testing.T) {
	for name, polling := range deliveries {
		inBubble(t, name, func(t *testing.T) {
			store := dsynctest.NewMemory()
			store.Polling = polling
			var mu sync.Mutex
			var order []int
			var wg sync.WaitGroup
			call := func(p *dsync.Periodic, n int) {
				wg.Go(func() {
					_, err := p.Do(background, at(n), func(context.Context) error {
						time.Sleep(3 * ttl)
						mu.Lock()
						defer mu.Unlock()
						order = append(order, n)
						if waiting := queueLength(t, store, "k"); n == 8 && waiting != 1 {
							t.Errorf("%d in the queue, want only the caller with tick 9", waiting)
						}
						return nil
					})
					wantErr(t, "Do", err, nil)
				})
				synctest.Wait()
			}
			one := newSession(t, store, nil).Periodic("k")
			for _, n := range []int{1, 6, 8, 7, 8} {
				call(one, n)
			}
			for _, n := range []int{9, 5, 2, 4, 3} {
				call(newSession(t, store, nil).Periodic("k"), n)
			}
			wg.Wait()
			if want := []int{1, 2, 3, 4, 5, 6, 7, 8, 9}; !slices.Equal(order, want) {
				t.Errorf("ticks %d have run, want %d", order, want)
			}
			wantFree(t, store, "k")
		})
	}
}

// Runs in one process never overlap. If a run's hold is over but its function has not returned, callers with a later
// tick in this process wait for the function. Meanwhile other processes can get the key.
func TestPeriodicWaitsForAnEndlessRun(t *testing.T) {
	for how, end := range map[string]func(*testing.T, *dsynctest.Memory, *dsync.Session){
		"break": func(t *testing.T, _ *dsynctest.Memory, other *dsync.Session) {
			wantErr(t, "Break", admin.New(other).Break(background, "k"), nil)
		},
		"by hand": func(t *testing.T, store *dsynctest.Memory, _ *dsync.Session) { // as if somebody had deleted the claim from the key's record
			st, err := store.Load(background, "k", 1)
			noErr(t, err)
			_, notices, err := storecmd.Release(background, store, driver.Claim{Key: "k", ID: st.Holders[0].Claim}, driver.Release{})
			wantErr(t, "Release", errors.Join(err, store.Notify(background, notices)), nil)
		},
	} {
		for name, polling := range deliveries {
			inBubble(t, how+", "+name, func(t *testing.T) {
				store := dsynctest.NewMemory()
				store.Polling = polling
				var requests atomic.Int64
				net := dsynctest.NewFaulty(store, func(dsynctest.Request) dsynctest.Fault {
					if requests.Add(1) > 1000 {
						panic("the session sends requests without end")
					}
					return dsynctest.Fault{}
				})
				p, other := newSession(t, net, nil).Periodic("k"), newSession(t, store, nil)
				var wg sync.WaitGroup
				began := time.Now()
				wg.Go(func() {
					_, err := p.Do(background, at(1), func(context.Context) error { // the function ignores its context
						time.Sleep(20 * ttl)
						return nil
					})
					wantErr(t, "Do of the endless run", err, dsync.ErrLost)
				})
				synctest.Wait()
				wg.Go(func() {
					wantRan(t, p, 3, true)
					if d := time.Since(began); d < 20*ttl {
						t.Errorf("the next run in this process began after %v, while the previous one was still running", d)
					}
				})
				synctest.Wait()
				end(t, store, other)
				wantRan(t, other.Periodic("k"), 2, true)
				if d := time.Since(began); d > 5*ttl {
					t.Errorf("another process got the key only after %v", d)
				}
				wg.Wait()
			})
		}
	}
}

// Within a process, a hold for one tick is not handed off to a caller with another tick, because the other tick may
// already be over.
func TestPeriodicHandsOffOneTick(t *testing.T) {
	for _, opt := range []*dsync.Options{nil, {Linger: time.Minute}} {
		bubble(t, func(t *testing.T) {
			s := newSession(t, dsynctest.NewMemory(), opt)
			wantRan(t, s.Periodic("k"), 4, true)
			var wg sync.WaitGroup
			run, failed := make(chan struct{}), errors.New("failed")
			wg.Go(func() {
				_, err := s.Periodic("k").Do(background, at(5), func(context.Context) error { <-run; return failed })
				wantErr(t, "Do", err, failed)
			})
			synctest.Wait()
			for _, n := range []int{3, 4} {
				wg.Go(func() { wantRan(t, s.Periodic("k"), n, false) })
				synctest.Wait()
			}
			wg.Go(func() { wantRan(t, s.Periodic("k"), 5, true) })
			synctest.Wait()
			wg.Go(func() { wantRan(t, s.Periodic("k"), 6, true) })
			synctest.Wait()
			close(run)
			wg.Wait()
			wantLast(t, s.Periodic("k"), 6, "")
		})
	}
}

// Do refuses a time that other processes would not compute in the same way. It sends no command then.
func TestPeriodicRefusesTicks(t *testing.T) {
	bubble(t, func(t *testing.T) {
		store := dsynctest.NewMemory()
		p := newSession(t, store, nil).Periodic("k")
		for tick, want := range map[time.Time]string{
			{}:                         "after 1970-01-01",
			time.Unix(0, 0):            "after 1970-01-01",
			time.UnixMilli(-1):         "after 1970-01-01",
			at(1).Add(1):               "2026-11-01T02:01:00.000000001Z is not a whole number of milliseconds",
			at(1).Add(1500_000):        "milliseconds",
			time.Unix(1<<62, 0).UTC():  "",
			time.Unix(-1<<62, 0).UTC(): "",
		} {
			ran, err := p.Do(background, tick, unwanted(t))
			if ran || err == nil {
				t.Errorf("Do of %v returned no error, ran %t", tick, ran)
				continue
			}
			if !strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), `periodic "k"`) {
				t.Errorf("Do of %v: %v; want %q in it", tick, err, want)
			}
		}
		if n := store.Counts().Total(); n > 0 {
			t.Errorf("%d commands were sent, want none", n)
		}
		wantRan(t, p, 1, true)
		if ran, err := p.Do(background, at(2).Add(time.Millisecond), nothing); !ran || err != nil {
			t.Errorf("a tick in milliseconds: %t, %v", ran, err)
		}
	})
}

// A key can't be both a Once and a Periodic, even while nobody holds it.
func TestPeriodicIsNoOnce(t *testing.T) {
	bubble(t, func(t *testing.T) {
		store := dsynctest.NewMemory()
		s := newSession(t, store, nil)
		sealed(t, s.Once("once"), "v")
		wantRan(t, s.Periodic("periodic"), 1, true)
		_, err := newSession(t, store, nil).Periodic("once").Do(background, at(1), unwanted(t))
		wantErr(t, "Periodic of a Once's key", err, dsync.ErrMismatch)
		wantErr(t, "Once of a Periodic's key", newSession(t, store, nil).Once("periodic").Do(background, unwanted(t)), dsync.ErrMismatch)
		wantLast(t, s.Periodic("once"), -1, "")
		if _, done, err := s.Once("periodic").Value(background); done || err != nil {
			t.Errorf("Value of a Periodic's key: %t, %v", done, err)
		}
	})
}

// B43: after Forget, a Periodic starts anew. This holds even for processes that know its last tick because they ran a
// tick, called Do for a tick that was over, or called Last.
func TestPeriodicForgotten(t *testing.T) {
	bubble(t, func(t *testing.T) {
		store := dsynctest.NewMemory()
		s := newSession(t, store, nil)
		ran, late, read := s.Periodic("k"), newSession(t, store, nil).Periodic("k"), newSession(t, store, nil).Periodic("k")
		for range 3 {
			wantRan(t, ran, 9, true)
			wantRan(t, late, 9, false)
			wantLast(t, read, 9, "")
			noErr(t, admin.New(s).Forget(background, "k"))
			for n, p := range []*dsync.Periodic{ran, late, read} {
				wantLast(t, p, n-1, "")
				wantRan(t, p, n, true)
			}
		}
	})
}

// B43: whatever the host's clock shows, a tick too far ahead of the store's clock is refused before anything is
// written to the key's record. The key stays usable.
func TestPeriodicRefusesFarTicks(t *testing.T) {
	bubble(t, func(t *testing.T) {
		store := dsynctest.NewMemory()
		store.Skew(-2 * time.Hour)
		now, p := time.Now().Truncate(time.Hour), newSession(t, store, nil).Periodic("k")
		for _, tick := range []time.Time{time.UnixMilli(now.UnixMicro()), now.Add(driver.MaxDuration - time.Hour)} {
			for range 2 { // once before the session is registered, and once afterwards
				ran, err := p.Do(background, tick, unwanted(t))
				if ran || err == nil || !strings.Contains(err.Error(), "at most 438000h0m0s ahead") || !strings.Contains(err.Error(), tick.UTC().Format("2006-01-02T15")) {
					t.Errorf("Do of %v: %t, %v", tick, ran, err)
				}
			}
		}
		if n := len(store.Records()); n > 0 {
			t.Errorf("the store has %d records of keys, want none", n)
		}
		wantLast(t, p, -1, "")
		if ran, err := p.Do(background, now.Add(driver.MaxDuration-3*time.Hour), nothing); !ran || err != nil {
			t.Errorf("a tick that is not too far ahead: %t, %v", ran, err)
		}
	})
}

// Sweeps do not remove the last tick from the store.
func TestPeriodicIsKept(t *testing.T) {
	bubble(t, func(t *testing.T) {
		store := dsynctest.NewMemory()
		s := newSession(t, store, &dsync.Options{Retention: time.Hour})
		wantRan(t, s.Periodic("k"), 5, true)
		turn(s.Mutex("other"))
		time.Sleep(24 * time.Hour)
		for _, key := range store.Records() {
			if key == "other" {
				t.Error("nothing was swept")
			}
		}
		wantRan(t, newSession(t, store, nil).Periodic("k"), 5, false)
	})
}

// For hours, ten hosts call Do for a tick each minute. Meanwhile processes die or are cut off, and runs fail. No tick
// succeeds twice, and ticks succeed in order. When Do returns without an error, its tick is over. This holds even if
// the hosts' clocks are up to an hour apart. If the clocks agree, no tick is missed.
func TestPeriodicFleet(t *testing.T) {
	testkit.Large(t)
	for seed := range uint64(testkit.Rounds(4, 20)) {
		bubble(t, func(t *testing.T) {
			f := &periodicFleet{store: dsynctest.NewMemory(), called: make(map[int64]bool), ends: time.Now().Add(4 * time.Hour)}
			f.apart = time.Duration(seed%2) * time.Hour
			var wg sync.WaitGroup
			for host := range 10 {
				r := rand.New(rand.NewPCG(seed, uint64(host)))
				wg.Go(func() {
					for time.Now().Before(f.ends) {
						f.live(t, r)
					}
				})
			}
			wg.Wait()
			f.check(t)
		})
	}
}

// A periodicFleet is a set of processes that share a Periodic. It records the runs and calls of these processes.
type periodicFleet struct {
	store *dsynctest.Memory
	apart time.Duration // greatest difference between the hosts' clocks
	ends  time.Time

	mu     sync.Mutex
	runs   []*fleetRun // in the order in which their functions returned
	called map[int64]bool
	calls  int
}

// A fleetRun is a run whose function has succeeded.
type fleetRun struct {
	tick   int64 // in minutes
	counts bool  // Do returned no error, so the run counts
}

// live runs one process until it dies or the test ends.
func (f *periodicFleet) live(t *testing.T, r *rand.Rand) {
	off := time.Duration(r.Int64N(int64(f.apart+1))) - f.apart/2
	faults := rand.New(rand.NewPCG(r.Uint64(), 0))
	net := dsynctest.NewFaulty(f.store, func(dsynctest.Request) dsynctest.Fault {
		switch faults.IntN(60) {
		case 0, 1:
			return dsynctest.Fault{LoseReply: true}
		case 2:
			return dsynctest.Fault{LoseRequest: true}
		case 3:
			return dsynctest.Fault{Again: 3 * time.Second}
		}
		return dsynctest.Fault{}
	})
	defer net.Close()
	s, err := dsync.New(net, &dsync.Options{TTL: ttl, Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Error(err)
		return
	}
	over, cancel := context.WithCancel(background)
	cancel()
	defer s.Close(over) // its context has ended, so Close does not wait for holders
	p := s.Periodic("k")
	ctx, die := context.WithTimeout(background, time.Duration(r.Int64N(int64(40*time.Minute))))
	defer die()
	var wg sync.WaitGroup
	defer wg.Wait()
	for ctx.Err() == nil && time.Now().Before(f.ends) {
		mine := time.Now().Add(off)
		next := mine.Truncate(time.Minute).Add(time.Minute)
		time.Sleep(next.Sub(mine))
		n := next.Unix() / 60
		takes, fails := time.Duration(r.Int64N(int64(20*time.Second))), r.IntN(5) == 0
		if r.IntN(20) == 0 { // the session is cut off long enough to be lost
			net.Cut()
			time.AfterFunc(2*ttl, net.Heal)
		}
		wg.Go(func() { f.call(t, ctx, p, n, takes, fails) })
	}
	if r.IntN(2) == 0 {
		net.Cut() // the process crashes without releasing anything
	}
}

// call calls Do for a tick and checks the result.
func (f *periodicFleet) call(t *testing.T, ctx context.Context, p *dsync.Periodic, n int64, takes time.Duration, fails bool) {
	var run *fleetRun
	tick := time.Unix(60*n, 0)
	ran, err := p.Do(ctx, tick, func(ctx context.Context) error {
		select {
		case <-time.After(takes):
		case <-ctx.Done():
			return ctx.Err()
		}
		if fails {
			return errors.New("failed")
		}
		f.mu.Lock()
		defer f.mu.Unlock()
		run = &fleetRun{tick: n}
		f.runs = append(f.runs, run)
		return nil
	})
	f.mu.Lock()
	defer f.mu.Unlock()
	f.calls++
	f.called[n] = true
	if err != nil {
		return
	}
	if ran {
		run.counts = true
	}
	st, err := f.store.Load(background, "k", 1)
	if err != nil || st.Sealed < tick.UnixMilli() {
		t.Errorf("Do of tick %d has returned without an error, but the last tick is %v, %v", n, time.UnixMilli(st.Sealed).UTC(), err)
	}
}

// check checks that the runs that count have succeeded in the order of their ticks. If the clocks agree, no tick may
// have been missed.
func (f *periodicFleet) check(t *testing.T) {
	last, count := int64(0), 0
	ran := make(map[int64]bool)
	for _, r := range f.runs {
		ran[r.tick] = true
		if !r.counts {
			continue
		}
		if r.tick <= last {
			t.Errorf("tick %d has succeeded after tick %d", r.tick, last)
		}
		last = r.tick
		count++
	}
	for n := range f.called {
		if f.apart == 0 && n < last && !ran[n] {
			t.Errorf("tick %d was missed", n)
		}
	}
	t.Logf("clocks %v apart: %d calls for %d ticks; %d ticks have certainly succeeded, and the outcome of %d runs is unknown",
		f.apart, f.calls, len(f.called), count, len(f.runs)-count)
	if count < 100 {
		t.Errorf("only %d ticks have succeeded", count)
	}
}
