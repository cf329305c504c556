package dsync_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/leasehold-go/leasehold/dsync"
	"github.com/leasehold-go/leasehold/dsync/driver"
	"github.com/leasehold-go/leasehold/dsync/dsynctest"
	"github.com/leasehold-go/leasehold/internal/storecmd"
	"github.com/leasehold-go/leasehold/internal/testkit"
)

// A taking acquires the key "k" in one of the ways of parties, or acquires a part of it.
type taking = func(context.Context, *dsync.Session) (*holding, error)

// takes returns the way of the party with the given name.
func takes(name string) taking {
	for _, p := range parties {
		if p.name == name {
			return p.hold
		}
	}
	panic("no party is called " + name)
}

// part acquires n units of a semaphore.
func part(n, size int64) taking {
	return func(ctx context.Context, s *dsync.Session) (*holding, error) {
		return holdingOf(s.Semaphore("k", size).Hold(ctx, n))
	}
}

// taken acquires the key within five minutes.
func taken(t testing.TB, s *dsync.Session, take taking) *holding {
	t.Helper()
	h, err := take(within(t), s)
	noErr(t, err)
	return h
}

// Promise 1, B02, B03, B07, B09, B20, B21: whatever goes wrong between the holder and the store, the holder's Lost
// closes at least the length of the grace before anyone else acquires a hold that excludes the holder's.
func TestLostBeforeTaken(t *testing.T) {
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
	for _, c := range []struct {
		name        string
		first, next taking
		seeds       int
	}{
		{"a mutex", takes("mutex"), takes("mutex"), trials() / len(networks)},
		{"a writer by a writer", takes("writer"), takes("writer"), 0},
		{"a writer by a reader", takes("writer"), takes("reader"), 0},
		{"a reader by a writer", takes("reader"), takes("writer"), 0},
		{"part of a semaphore", part(1, 3), part(3, 3), 0},
		{"all of a semaphore", part(3, 3), part(1, 3), 0},
		{"a run", run(errors.ErrUnsupported), run(errors.ErrUnsupported), 0},
	} {
		for name, net := range networks {
			t.Run(c.name+" "+name, func(t *testing.T) {
				for seed := range max(2, trials()/25, c.seeds) {
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
						lostBeforeTaken(t, seed, r, memory, faulty, c.first, c.next)
					})
				}
			})
		}
	}
}

func lostBeforeTaken(t *testing.T, seed int, r *rand.Rand, memory *dsynctest.Memory, faulty *dsynctest.Faulty, first, next taking) {
	a, b := newSession(t, faulty, nil), newSession(t, memory, nil)
	mine := taken(t, a, first)
	token := mine.token()

	var (
		lost     time.Time
		tooGood  bool // the hold survived the faults of this trial
		notified = make(chan struct{})
	)
	go func() {
		defer close(notified)
		select {
		case <-mine.lost:
			lost = time.Now()
		case <-time.After(10 * ttl):
			tooGood, lost = true, time.Now().Add(-grace)
			go mine.done()
		}
	}()
	// The store's clock steps by less than the margin.
	step := time.Duration(r.Int64N(int64(2*margin-4*time.Millisecond))) - margin + 2*time.Millisecond
	time.AfterFunc(time.Duration(r.Int64N(int64(2*ttl))), func() { memory.Skew(step) })
	time.Sleep(time.Duration(r.Int64N(int64(2 * ttl))))
	theirs := taken(t, b, next)
	at := time.Now()
	synctest.Wait()
	if !isClosed(notified) {
		t.Fatalf("seed %d: taken while Lost was open", seed)
	}
	if d := at.Sub(lost); d < grace {
		t.Errorf("seed %d: taken %v after Lost closed, want at least the grace of %v", seed, d, grace)
	}
	got := theirs.token()
	if got <= token {
		t.Errorf("seed %d: token %d after %d", seed, got, token)
	}
	if mine.token() != 0 {
		t.Errorf("seed %d: a hold that is over has a token", seed)
	}

	// B05, B32: the late unlock does not free another holder's hold.
	faulty.Heal()
	if !tooGood {
		wantErr(t, fmt.Sprintf("seed %d: late unlock", seed), mine.done(), dsync.ErrLost)
	}
	time.Sleep(2 * ttl)
	if h := holders(t, memory, "k"); len(h) != 1 || h[0].Token != got || theirs.token() != got || isClosed(theirs.lost) {
		t.Errorf("seed %d: after the late unlock the holders are %v, want the one with token %d", seed, h, got)
	}
	theirs.done()
}

// Promise 1, B06, B19, B20, L13: a crashed holder's hold ends a TTL after its session's last heartbeat, by the store's
// clock, and not earlier. The next waiter is granted the key within 10 ms of that. Other holders keep what they hold.
func TestCrashedHolderIsFollowedAtExpiry(t *testing.T) {
	for _, c := range []struct {
		name    string
		crashed []taking
		living  taking // acquires what nobody holds, after the crash; nil: there is nothing
		next    taking
	}{
		{"a mutex", []taking{takes("mutex")}, nil, takes("mutex")},
		{"readers by a writer", []taking{takes("reader"), takes("reader"), takes("reader")}, nil, takes("writer")}, // of one claim
		{"a writer by a reader", []taking{takes("writer")}, nil, takes("reader")},
		{"a writer by a writer", []taking{takes("writer")}, nil, takes("writer")},
		{"parts of a semaphore", []taking{part(1, 5), part(2, 5)}, part(2, 5), part(3, 5)},
	} {
		for name, polling := range deliveries {
			inBubble(t, c.name+" "+name, func(t *testing.T) {
				draws := testkit.Draw(t)
				for range 10 {
					memory := dsynctest.NewMemory()
					memory.Polling = polling
					faulty := newFaulty(t, memory, nil)
					a, b := newSession(t, faulty, nil), newSession(t, memory, nil)
					for _, take := range c.crashed {
						taken(t, a, take)
					}
					time.Sleep(draws.Below(ttl))
					faulty.Cut() // the store can't tell this from a crash
					m, _, err := storecmd.Members(background, memory, a.ID())
					noErr(t, err)
					held := 1
					living := &holding{lost: make(chan struct{})}
					if c.living != nil {
						held, living = 2, taken(t, b, c.living)
					}
					taken(t, b, c.next)
					h := holders(t, memory, "k")
					if len(h) != held || h[0].Session != b.ID() || isClosed(living.lost) {
						t.Fatalf("the key is held by %v, want by %s alone, whose earlier hold is not lost", h, b.ID())
					}
					if d := h[held-1].Since.Sub(m[0].LastHeartbeat.Add(ttl)); d < 0 || d > 10*time.Millisecond {
						t.Errorf("granted %v after the crashed session's last heartbeat + TTL", d)
					}
				}
			})
		}
	}
}

// L13, B20 for tries: if nobody waits, the try itself expires the crashed holder's session. Before it has lapsed, a try
// fails.
func TestTryTakesALapsedHold(t *testing.T) {
	for name, c := range map[string]struct {
		held taking
		try  func(*dsync.Session) error
	}{
		"mutex":  {takes("mutex"), func(s *dsync.Session) error { return errOf(s.Mutex("k").TryHold(background)) }},
		"reader": {takes("reader"), func(s *dsync.Session) error { _, _, err := dsync.TryLockAll(background, s.RWMutex("k")); return err }},
		"part":   {part(3, 5), func(s *dsync.Session) error { return errOf(s.Semaphore("k", 5).TryHold(background, 3)) }},
	} {
		inBubble(t, name, func(t *testing.T) {
			memory := dsynctest.NewMemory()
			faulty := newFaulty(t, memory, nil)
			a, b := newSession(t, faulty, nil), newSession(t, memory, nil)
			taken(t, a, c.held)
			faulty.Cut()
			wantErr(t, "a try before expiry", c.try(b), dsync.ErrHeld)
			time.Sleep(ttl)
			if err := c.try(b); err != nil {
				t.Errorf("a try after expiry: %v", err)
			}
		})
	}
}

// B10, B30: an error of the store means neither that the call succeeded nor that the key is held. A call without a ctx
// waits until the store is back.
func TestStoreErrorIsReturned(t *testing.T) {
	broken := errors.New("the store is broken")
	for name, c := range map[string]struct {
		try, wait func(context.Context, *dsync.Session) error
		forever   func(*dsync.Session)
	}{
		"mutex": {
			func(ctx context.Context, s *dsync.Session) error { return errOf(s.Mutex("k").TryHold(ctx)) },
			func(ctx context.Context, s *dsync.Session) error { return s.Mutex("k").LockContext(ctx) },
			func(s *dsync.Session) { s.Mutex("k").Lock() },
		},
		"reader": {
			func(_ context.Context, s *dsync.Session) error {
				if s.RWMutex("k").TryRLock() {
					return nil
				}
				return broken
			},
			func(ctx context.Context, s *dsync.Session) error { return errOf(s.RWMutex("k").RHold(ctx)) },
			func(s *dsync.Session) { s.RWMutex("k").RLock() },
		},
		"semaphore": {
			func(ctx context.Context, s *dsync.Session) error { return errOf(s.Semaphore("k", 2).TryHold(ctx, 1)) },
			func(ctx context.Context, s *dsync.Session) error { return s.Semaphore("k", 2).Acquire(ctx, 1) },
			func(s *dsync.Session) { s.Semaphore("k", 2).Acquire(background, 2) },
		},
		"once": {
			nil,
			func(ctx context.Context, s *dsync.Session) error { return s.Once("k").Do(ctx, unwanted(t)) },
			func(s *dsync.Session) { s.Once("k").Do(background, func(context.Context) error { return nil }) },
		},
	} {
		inBubble(t, name, func(t *testing.T) {
			store := &brokenStore{Memory: dsynctest.NewMemory()}
			s := newSession(t, store, nil)
			lock(t, s.Mutex("warm"))
			store.fail(broken)
			if c.try != nil {
				err := c.try(background, s)
				wantErr(t, "a try", err, broken)
				if errors.Is(err, dsync.ErrHeld) {
					t.Errorf("the error of a try with a broken store is ErrHeld: %v", err)
				}
			}
			ctx, cancel := context.WithTimeout(background, time.Second)
			defer cancel()
			wantErr(t, "a wait", c.wait(ctx, s), context.DeadlineExceeded, broken)
			locked := make(chan struct{})
			go func() { c.forever(s); close(locked) }()
			time.Sleep(5 * time.Second)
			if isClosed(locked) {
				t.Fatal("the call without a ctx succeeded with a broken store")
			}
			store.fail(nil)
			<-locked
		})
	}
}

// Using a key as two kinds fails, in one process without a command, and in two. The error names both kinds and both
// limits. A free key can change its kind, unless it is sealed.
func TestKeyOfAnotherKind(t *testing.T) {
	kinds := []struct {
		kind  driver.Kind
		limit int64
		take  taking
		uses  map[string]func(context.Context, *dsync.Session) error
	}{
		{driver.KindMutex, 1, takes("mutex"), map[string]func(context.Context, *dsync.Session) error{
			"LockContext": func(ctx context.Context, s *dsync.Session) error { return s.Mutex("k").LockContext(ctx) },
			"TryHold":     func(ctx context.Context, s *dsync.Session) error { return errOf(s.Mutex("k").TryHold(ctx)) },
			"Lease":       func(ctx context.Context, s *dsync.Session) error { return errOf(s.Mutex("k").Lease(ctx, ttl)) },
		}},
		{driver.KindRWMutex, 1 << 30, takes("reader"), map[string]func(context.Context, *dsync.Session) error{
			"RHold":       func(ctx context.Context, s *dsync.Session) error { return errOf(s.RWMutex("k").RHold(ctx)) },
			"LockContext": func(ctx context.Context, s *dsync.Session) error { return s.RWMutex("k").LockContext(ctx) },
			"TryLockAll": func(ctx context.Context, s *dsync.Session) error {
				_, _, err := dsync.TryLockAll(ctx, s.RWMutex("k"))
				return err
			},
		}},
		{driver.KindSemaphore, 3, part(1, 3), map[string]func(context.Context, *dsync.Session) error{
			"Acquire": func(ctx context.Context, s *dsync.Session) error { return s.Semaphore("k", 3).Acquire(ctx, 1) },
			"TryHold": func(ctx context.Context, s *dsync.Session) error { return errOf(s.Semaphore("k", 3).TryHold(ctx, 1)) },
		}},
		{driver.KindOnce, 1, takes("once"), map[string]func(context.Context, *dsync.Session) error{
			"Do": func(ctx context.Context, s *dsync.Session) error { return s.Once("k").Do(ctx, unwanted(t)) },
		}},
	}
	bubble(t, func(t *testing.T) {
		store := dsynctest.NewMemory()
		s, other := newSession(t, store, nil), newSession(t, store, nil)
		lock(t, s.Mutex("warm"))
		lock(t, other.Mutex("also warm"))
		for _, held := range kinds {
			check := func(when string) {
				t.Helper()
				for where, o := range map[string]*dsync.Session{"here": s, "elsewhere": other} {
					for _, used := range kinds {
						if used.kind == held.kind {
							continue
						}
						for call, use := range used.uses {
							ctx, cancel := context.WithTimeout(background, time.Minute)
							before := store.Counts()
							err := use(ctx, o)
							cancel()
							what := fmt.Sprintf("%s %s of a %s on a key of kind %s, %s", where, call, used.kind, held.kind, when)
							wantErr(t, what, err, dsync.ErrMismatch)
							want := driver.MismatchError{Key: "k", Kind: held.kind, WantKind: used.kind, Limit: held.limit, WantLimit: used.limit}
							var e *driver.MismatchError
							if msg := fmt.Sprint(err); !errors.As(err, &e) || *e != want || !strings.Contains(msg, "kind "+string(held.kind)) || !strings.Contains(msg, "not "+string(used.kind)) {
								t.Errorf("%s: %v, want %+v", what, err, want)
							}
							if d := store.Counts().Since(before); where == "here" && when == "held" && d.Total() != 0 {
								t.Errorf("%s: sent %v, want no commands", what, d.Commands)
							}
						}
					}
					if held.kind != driver.KindSemaphore {
						wantErr(t, "Resize", o.Semaphore("k", 3).Resize(background, 4), dsync.ErrMismatch)
					}
				}
			}
			h := taken(t, s, held.take)
			check("held")
			if err := h.done(); err != nil {
				t.Error(err)
			}
			if held.kind == driver.KindOnce {
				check("sealed")
				time.Sleep(time.Hour)
				check("long sealed")
			}
		}
	})
}

// Close notifies the holders, waits until the last of them has unlocked, and ends all waits.
func TestCloseNotifiesHolders(t *testing.T) {
	for name, c := range map[string]struct {
		holds []taking
		waits []taking
	}{
		"mutex":     {[]taking{takes("mutex")}, []taking{takes("mutex")}},
		"readers":   {[]taking{takes("reader"), takes("reader")}, []taking{takes("writer"), takes("reader")}},
		"semaphore": {[]taking{part(1, 3), part(2, 3)}, []taking{part(1, 3)}},
		"once":      {[]taking{takes("once")}, []taking{takes("once")}}, // the run does not count
	} {
		inBubble(t, name, func(t *testing.T) {
			store := dsynctest.NewMemory()
			s := newSession(t, store, nil)
			var held []*holding
			for _, take := range c.holds {
				held = append(held, taken(t, s, take))
			}
			errs := make(chan error, 2)
			for _, take := range c.waits {
				go func() {
					_, err := take(background, s)
					errs <- err
				}()
				synctest.Wait()
			}
			closed := make(chan error, 1)
			go func() { closed <- s.Close(background) }()
			for _, h := range held {
				<-h.lost
			}
			for range c.waits {
				wantErr(t, "a waiter", <-errs, dsync.ErrClosed)
			}
			last := held[len(held)-1]
			for _, h := range held[:len(held)-1] {
				wantErr(t, "a release", h.done(), dsync.ErrLost, dsync.ErrClosed)
			}
			time.Sleep(grace / 2)
			if len(closed) != 0 || len(holders(t, store, "k")) != 1 {
				t.Errorf("Close has returned %d times and the key is held by %v, before the last holder was done", len(closed), holders(t, store, "k"))
			}
			start := time.Now()
			wantErr(t, "the last release", last.done(), dsync.ErrLost, dsync.ErrClosed)
			if err := <-closed; err != nil || time.Since(start) > 0 {
				t.Errorf("Close: %v, %v after the last holder was done", err, time.Since(start))
			}
			if h := holders(t, store, "k"); len(h) != 0 {
				t.Errorf("holders left behind: %v", h)
			}
			_, err := c.holds[0](background, s)
			wantErr(t, "after Close", err, dsync.ErrClosed)
			wantErr(t, "Resize", s.Semaphore("k", 3).Resize(background, 1), dsync.ErrClosed)
			taken(t, newSession(t, store, nil), c.holds[0]).done()
		})
	}
}

// B31: if all of a session's requests are delivered again later, none of them joins a queue, frees a key or seals a key.
func TestReplayedRequestsChangeNothing(t *testing.T) {
	bubble(t, func(t *testing.T) {
		memory := dsynctest.NewMemory()
		faulty := newFaulty(t, memory, nil)
		faulty.Record()
		a, b := newSession(t, faulty, nil), newSession(t, memory, nil)
		failed := errors.New("failed")

		// These keys were used and are free again.
		rw, sem := a.RWMutex("rw"), a.Semaphore("sem", 3)
		for range 3 {
			turn(a.Mutex("mu"))
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
		gives := func(wait func() error) { wg.Go(func() { wantErr(t, "a wait", wait(), context.DeadlineExceeded) }) }
		turn(a.Mutex("mu taken"))
		lock(t, b.Mutex("mu taken"))
		gives(func() error { return a.Mutex("mu taken").LockContext(ctx) })
		reader := a.RWMutex("rw taken")
		rlock(t, reader)
		reader.RUnlock()
		wlock(t, b.RWMutex("rw taken"))
		gives(func() error { return errOf(reader.RHold(ctx)) })
		mine := a.Semaphore("sem taken", 2)
		acquire(t, mine, 2)
		mine.Release(2)
		acquire(t, b.Semaphore("sem taken", 2), 2)
		gives(func() error { return mine.Acquire(ctx, 1) })
		wg.Wait()
		cancel()

		// These keys are still held.
		sem = a.Semaphore("part", 5)
		held := []*dsync.Hold{take(t, a.Mutex("mine").Hold), take(t, a.RWMutex("read").RHold), take(t, a.RWMutex("write").Hold), units(t, sem, 1), units(t, sem, 2)}
		time.Sleep(ttl)
		check := func(when string) {
			t.Helper()
			for key, want := range map[string]int64{
				"mu": 0, "rw": 0, "sem": 0, "once": 0, "sealed": 0, "mu taken": 1, "rw taken": 1 << 30, "sem taken": 2,
				"mine": 1, "read": 1, "write": 1 << 30, "part": 3,
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
			noErr(t, faulty.Replay(background))
			check("replayed")
			time.Sleep(ttl)
			check("later")
		}
		// The replayed requests must not change anything after the session has ended, either.
		for _, h := range held {
			h.Release(background)
		}
		noErr(t, a.Close(background))
		faulty.Replay(background)
		turn(b.Mutex("mine"))
		rw = b.RWMutex("write")
		wlock(t, rw)
		rw.Unlock()
		sem = b.Semaphore("part", 5)
		acquire(t, sem, 5)
		sem.Release(5)
		wantDone(t, b.Once("sealed"), "v")
		sealed(t, b.Once("once"), "w")
		if m, _, _ := storecmd.Members(background, memory, holders(t, memory, "mu taken")[0].Session); len(m) != 1 || m[0].Expired {
			t.Errorf("the other session is %v", m)
		}
	})
}
