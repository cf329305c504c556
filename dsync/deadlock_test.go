package dsync_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/leasehold-go/leasehold/dsync"
	"github.com/leasehold-go/leasehold/dsync/admin"
	"github.com/leasehold-go/leasehold/dsync/driver"
	"github.com/leasehold-go/leasehold/dsync/dsynctest"
	"github.com/leasehold-go/leasehold/internal/engine"
	"github.com/leasehold-go/leasehold/internal/testkit"
)

// longestPoll is the longest default poll interval of a session that listens, jitter included. When a wait has lasted
// that long, the session has searched for deadlocks at least once.
const longestPoll = ttl + ttl/5

// A stuckFleet is a set of named processes that lock keys. It records the deadlocks that they report.
type stuckFleet struct {
	t       *testing.T
	store   driver.Store
	opt     dsync.Options // options of processes that are started from now on
	ctx     context.Context
	process map[string]*dsync.Session

	mu       sync.Mutex
	log      bytes.Buffer
	reported []string // "process: deadlock"
	last     time.Time
}

func newStuckFleet(t *testing.T, store driver.Store) *stuckFleet {
	ctx, cancel := context.WithCancel(background)
	f := &stuckFleet{t: t, store: store, ctx: ctx, process: make(map[string]*dsync.Session)}
	t.Cleanup(cancel)
	return f
}

func (f *stuckFleet) Write(p []byte) (int, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.log.Write(p)
}

// of returns the named process's session. It starts the process if necessary.
func (f *stuckFleet) of(name string) *dsync.Session {
	if f.process[name] == nil {
		opt := f.opt
		opt.Name, opt.Logger = name, slog.New(slog.NewTextHandler(f, nil))
		opt.Hooks = &dsync.Hooks{Deadlock: func(processes, keys []string) {
			f.mu.Lock()
			defer f.mu.Unlock()
			var members []string
			for i, m := range processes {
				who, _, _ := strings.Cut(m, " (") // the process id and the host follow
				members = append(members, fmt.Sprintf("%s has %s wants %s", who, keys[i], keys[(i+1)%len(keys)]))
			}
			i := slices.Index(members, slices.Min(members)) // session ids are random, and so is the order of members
			members = append(slices.Clone(members[i:]), members[:i]...)
			f.reported, f.last = append(f.reported, name+": "+strings.Join(members, ", ")), time.Now()
		}}
		f.process[name] = newSession(f.t, f.store, &opt)
	}
	return f.process[name]
}

// hold locks the keys in the named process.
func (f *stuckFleet) hold(name string, keys ...string) {
	for _, key := range keys {
		lock(f.t, f.of(name).Mutex(key))
	}
}

// wants makes a goroutine of the named process wait for the key. give ends the wait.
func (f *stuckFleet) wants(name, key string) (give func()) {
	return f.waits(func(ctx context.Context) error { return f.of(name).Mutex(key).LockContext(ctx) })
}

func (f *stuckFleet) waits(wait func(context.Context) error) (give func()) {
	ctx, cancel := context.WithCancel(f.ctx)
	go wait(ctx)
	synctest.Wait()
	return func() { cancel(); synctest.Wait() }
}

// take returns what was reported since the last call.
func (f *stuckFleet) take() []string {
	synctest.Wait()
	f.mu.Lock()
	defer f.mu.Unlock()
	got := f.reported
	f.reported = nil
	slices.Sort(got)
	return got
}

func (f *stuckFleet) want(when string, want ...string) {
	f.t.Helper()
	if got := f.take(); !slices.Equal(got, want) {
		f.t.Errorf("%s: reported %q, want %q", when, got, want)
	}
}

// Each process in a cycle of two or three reports the cycle once, with all members. The process whose wait closed the
// cycle reports it within the default poll interval. If the cycle ends and forms again, it is reported again.
func TestDeadlockIsNamedWithinAPoll(t *testing.T) {
	for _, poll := range []time.Duration{0, 100 * time.Millisecond} {
		long := time.Hour
		if poll > 0 && !testkit.Long() {
			long = 10 * time.Minute // an hour of these polls would take a quarter of the package's test time
		}
		bubble(t, func(t *testing.T) {
			f := newStuckFleet(t, dsynctest.NewMemory())
			f.opt.PollInterval = poll
			f.hold("a", "x")
			f.hold("b", "y")
			f.wants("a", "y")
			time.Sleep(3 * time.Minute)
			f.want("a chain")
			give := f.wants("b", "x")
			time.Sleep(longestPoll)
			if got := f.take(); !slices.Contains(got, "b: a has x wants y, b has y wants x") {
				t.Errorf("reported %q within a poll interval, want a report by the process whose wait closed the cycle", got)
			}
			time.Sleep(long)
			f.take()
			if n := strings.Count(f.log.String(), "possible deadlock"); n != 2 || !strings.Contains(f.log.String(), `holds \"x\" and waits for \"y\"; `) {
				t.Errorf("%d warnings, want one by each process, with all members:\n%s", n, f.log.String())
			}
			give()
			f.wants("b", "x")
			time.Sleep(longestPoll)
			if got := f.take(); !slices.Contains(got, "b: a has x wants y, b has y wants x") {
				t.Errorf("reported %q within a poll interval after the cycle had formed again", got)
			}
		})
		bubble(t, func(t *testing.T) {
			f := newStuckFleet(t, dsynctest.NewMemory())
			f.opt.PollInterval = poll
			f.hold("a", "x")
			f.hold("b", "y")
			f.hold("c", "z")
			for i := range 20 {
				f.wants(fmt.Sprint("other ", i), "x") // more waiters than the store shows in a list of keys
			}
			f.wants("a", "y")
			f.wants("b", "z")
			time.Sleep(3 * time.Minute)
			f.want("a chain")
			f.wants("c", "x")
			time.Sleep(longestPoll)
			if got := f.take(); !slices.Contains(got, "c: a has x wants y, b has y wants z, c has z wants x") {
				t.Errorf("reported %q within a poll interval, want a report by the process whose wait closed the cycle", got)
			}
			time.Sleep(long)
			f.take()
			if n := strings.Count(f.log.String(), "possible deadlock"); n != 3 {
				t.Errorf("%d warnings, want one by each process", n)
			}
		})
	}
}

// A session that waits for a member of a cycle is not itself a member, even if it holds a key that others wait for.
func TestDeadlockIsReportedByItsMembers(t *testing.T) {
	bubble(t, func(t *testing.T) {
		f := newStuckFleet(t, dsynctest.NewMemory())
		f.hold("a", "x")
		f.hold("b", "y")
		f.hold("c", "z")
		f.wants("a", "y")
		f.wants("b", "x")
		f.wants("c", "x")
		f.wants("d", "z")
		time.Sleep(time.Hour)
		f.want("in an hour", "a: a has x wants y, b has y wants x", "b: a has x wants y, b has y wants x")
	})
}

// In each case processes wait, some of them perhaps forever, but the store's data does not prove a deadlock.
func TestNoDeadlockWhereThereIsNone(t *testing.T) {
	for name, begin := range map[string]func(*stuckFleet){
		"a chain": func(f *stuckFleet) {
			f.hold("a", "x")
			f.hold("b", "y")
			f.hold("c", "z")
			f.wants("a", "y")
			f.wants("b", "z")
		},
		"goroutines of one process": func(f *stuckFleet) {
			f.hold("a", "x", "y")
			f.wants("a", "x")
			f.wants("a", "y")
			f.wants("b", "x")
		},
		"a semaphore with another holder": func(f *stuckFleet) {
			for _, who := range []string{"a", "b"} {
				f.of(who).Semaphore("s", 2).Acquire(background, 1)
			}
			f.hold("c", "x")
			f.wants("a", "x")
			f.waits(func(ctx context.Context) error { return f.of("c").Semaphore("s", 2).Acquire(ctx, 1) })
		},
		"readers": func(f *stuckFleet) {
			for _, who := range []string{"a", "b"} {
				f.of(who).RWMutex("r").RLock()
			}
			f.hold("c", "x")
			f.wants("a", "x")
			var h *dsync.Hold
			f.waits(into(&h, f.of("b").RWMutex("r").RHold))
		},
		"a lease": func(f *stuckFleet) {
			if _, err := f.of("a").Mutex("x").Lease(background, time.Hour); err != nil {
				f.t.Fatal(err)
			}
			f.hold("b", "y")
			f.wants("a", "y")
			f.wants("b", "x")
		},
		"kept by ReleaseAfter": func(f *stuckFleet) {
			take(f.t, f.of("a").Mutex("x").Hold).ReleaseAfter(background, time.Hour)
			f.hold("b", "y")
			f.wants("a", "y")
			f.wants("b", "x")
		},
		"candidates": func(f *stuckFleet) {
			hold := func(who string) func(context.Context) error {
				return func(ctx context.Context) error {
					_, err := engine.Of(f.of(who)).Hold(ctx, engine.Whole("e", driver.KindElection))
					return err
				}
			}
			hold("a")(background)
			f.hold("b", "x")
			f.wants("a", "x")
			f.waits(hold("b"))
		},
		"singletons": func(f *stuckFleet) { // each process has a goroutine for each singleton; it waits until the process may run the singleton
			x, y := f.of("c").Mutex("x"), f.of("c").Mutex("y")
			lock(f.t, x)
			lock(f.t, y)
			f.wants("a", "x")
			f.wants("b", "y")
			f.wants("a", "y")
			f.wants("b", "x")
			time.Sleep(time.Second)
			x.Unlock()
			y.Unlock()
		},
	} {
		inBubble(t, name, func(t *testing.T) {
			f := newStuckFleet(t, dsynctest.NewMemory())
			begin(f)
			time.Sleep(10 * time.Minute)
			f.want("after ten minutes")
			if got, err := admin.New(f.of("a")).Deadlocks(background, ""); name != "singletons" && (len(got) > 0 || err != nil) {
				t.Errorf("Deadlocks: %v, %v", got, err)
			}
		})
	}
}

// A hold counts as part of a deadlock only when it is at least 4 s old.
func TestYoungHoldsAreInNoDeadlock(t *testing.T) {
	bubble(t, func(t *testing.T) {
		f := newStuckFleet(t, dsynctest.NewMemory())
		f.hold("a", "x")
		f.hold("b", "y")
		f.wants("a", "y")
		f.wants("b", "x")
		for _, c := range []struct {
			wait time.Duration
			want int
		}{{4*time.Second - time.Millisecond, 0}, {time.Millisecond, 1}} {
			time.Sleep(c.wait)
			if got, err := admin.New(f.of("a")).Deadlocks(background, ""); len(got) != c.want || err != nil {
				t.Errorf("%v, %v, want %d deadlocks", got, err, c.want)
			}
		}
		if got, err := admin.New(f.of("a")).Deadlocks(background, "x"); len(got) > 0 || err != nil {
			t.Errorf("%v, %v; want none, since only one key of the cycle has the prefix", got, err)
		}
	})
}

// A cycle with a dead process is not a deadlock, because the keys of that process become free.
func TestDeadlockWithADeadProcess(t *testing.T) {
	bubble(t, func(t *testing.T) {
		memory := dsynctest.NewMemory()
		f := newStuckFleet(t, memory)
		f.hold("a", "x")
		faulty := newFaulty(t, memory, nil)
		f.store = faulty
		f.hold("b", "y")
		f.wants("a", "y")
		f.wants("b", "x")
		time.Sleep(ttl / 2)
		faulty.Cut()
		memory.Expire(background, f.of("b").ID(), true)
		if got, err := admin.New(f.of("a")).Deadlocks(background, ""); len(got) > 0 || err != nil {
			t.Errorf("Deadlocks: %v, %v; want none, and no error", got, err)
		}
	})
}

// A waiting ForceHold is never part of a deadlock, because its wait ends even if the holder's process is cut off.
func TestForceIsInNoDeadlock(t *testing.T) {
	bubble(t, func(t *testing.T) {
		memory := dsynctest.NewMemory()
		f := newStuckFleet(t, memory)
		f.opt.PollInterval = time.Second
		f.hold("a", "x")
		faulty := newFaulty(t, memory, nil)
		f.store = faulty
		f.hold("b", "y")
		f.wants("b", "x")
		time.Sleep(4 * time.Second) // b has sent a heartbeat
		faulty.Cut()
		start := time.Now()
		lock(t, f.of("a").Mutex("warm"))
		noErr(t, errOf(f.of("a").Mutex("y").ForceHold(background)))
		if d := time.Since(start); d < 9*time.Second {
			t.Errorf("ForceHold waited for only %v, want long enough for a search", d)
		}
		f.want("by force")
	})
}

// A changingStore calls its function once, after the next reading of all keys.
type changingStore struct {
	driver.Store
	then func()
}

func (s *changingStore) Keys(ctx context.Context, q driver.KeyQuery) ([]driver.State, error) {
	states, err := s.Store.Keys(ctx, q)
	if q.Session != "" { // this reading is the session's check of its own holds
		return states, err
	}
	if then := s.then; then != nil {
		s.then = nil
		then()
	}
	return states, err
}

// The keys are read at different moments. So a cycle does not count if only the first reading shows it, or if its parts
// did not exist at the same time.
func TestCycleThatNeverWas(t *testing.T) {
	for name, then := range map[string]func(f *stuckFleet, give func()){
		"a wait ends":            func(_ *stuckFleet, give func()) { give() },
		"a wait ends, and again": func(f *stuckFleet, give func()) { give(); f.wants("b", "x") },
	} {
		bubble(t, func(t *testing.T) {
			store := &changingStore{Store: dsynctest.NewMemory()}
			f := newStuckFleet(t, store)
			f.hold("a", "x")
			f.hold("b", "y")
			f.wants("a", "y")
			give := f.wants("b", "x")
			time.Sleep(5 * time.Second)
			store.then = func() { then(f, give) }
			if got, err := admin.New(f.of("a")).Deadlocks(background, ""); len(got) > 0 || err != nil {
				t.Errorf("%s: %v, %v, want none", name, got, err)
			}
		})
	}
}

// While the session holds nothing, a search sends no commands. While nobody waits for the session's keys, it sends one
// Load per held key. If somebody waits, the search reads all keys. A search runs when a wait is half a TTL old, and
// again each time the wait's age has doubled.
func TestLookingForDeadlocksIsCheap(t *testing.T) {
	for _, c := range []struct {
		name        string
		begin       func(*stuckFleet)
		loads, keys int
	}{
		{"holds nothing", func(f *stuckFleet) { f.hold("b", "y"); f.wants("a", "y") }, 0, 0},
		{"nobody waits for it", func(f *stuckFleet) { f.hold("a", "x"); f.hold("b", "y"); f.wants("a", "y") }, 1, 0},
		{"somebody waits for it", func(f *stuckFleet) { f.hold("a", "x"); f.hold("b", "y"); f.wants("a", "y"); f.wants("c", "x") }, 1, 1},
	} {
		bubble(t, func(t *testing.T) {
			store := dsynctest.NewMemory()
			f := newStuckFleet(t, store)
			c.begin(f)
			start := store.Counts()
			time.Sleep(longestPoll)
			d := store.Counts().Since(start)
			if l, k := d.Commands[dsynctest.MethodLoad], d.Commands[dsynctest.MethodKeys]; l != c.loads || k != c.keys {
				t.Errorf("%s: %d loads and %d pages of keys within a poll, want %d and %d", c.name, l, k, c.loads, c.keys)
			}
			time.Sleep(time.Hour)
			d = store.Counts().Since(start)
			looks := 10 // at 5 s · 2ⁿ
			if l, k := d.Commands[dsynctest.MethodLoad], d.Commands[dsynctest.MethodKeys]; l > looks*c.loads || k > looks*c.keys || c.loads+c.keys > 0 && l+k < 8*(c.loads+c.keys) {
				t.Errorf("%s: %d loads and %d pages of keys in an hour, want those of %d searches", c.name, l, k, looks)
			}
			f.want(c.name)
		})
	}
}

// A session that waits for many keys runs one search for all of these waits.
func TestManyWaitsLookTogether(t *testing.T) {
	bubble(t, func(t *testing.T) {
		store := dsynctest.NewMemory()
		f := newStuckFleet(t, store)
		f.hold("a", "x")
		for i := range 50 {
			f.hold("b", fmt.Sprint("key ", i))
			f.wants("a", fmt.Sprint("key ", i))
		}
		start := store.Counts()
		time.Sleep(time.Minute)
		if n := store.Counts().Since(start).Commands[dsynctest.MethodLoad]; n < 3 || n > 4 {
			t.Errorf("%d searches in a minute, want one at 5, 10, 20 and 40 s", n)
		}
	})
}

// If the store does not answer a search, the search is repeated until it does.
func TestLookIsRepeatedUntilItIsAnswered(t *testing.T) {
	bubble(t, func(t *testing.T) {
		failing := 0
		store := newFaulty(t, dsynctest.NewMemory(), func(r dsynctest.Request) dsynctest.Fault {
			if r.Method == dsynctest.MethodLoad && failing < 3 {
				failing++
				return dsynctest.Fault{LoseReply: true}
			}
			return dsynctest.Fault{}
		})
		f := newStuckFleet(t, store)
		f.hold("a", "x")
		f.hold("b", "y")
		f.wants("a", "y")
		f.wants("b", "x")
		time.Sleep(longestPoll + ttl)
		if got := f.take(); failing < 3 || len(got) < 2 {
			t.Errorf("%d reads failed and %q were reported, want 3 failures and 2 reports", failing, got)
		}
	})
}

// A lingering key is not part of a deadlock, because its process gives it up. It does so at once if the store can
// notify, otherwise when the key's Linger is over. Only the holding process knows whether a key lingers or is in use,
// so other processes must wait before they report a deadlock.
func TestLingerIsNoDeadlock(t *testing.T) {
	for _, polling := range []bool{false, true} {
		for _, inUse := range []bool{false, true} {
			inBubble(t, fmt.Sprintf("polling %t, in use %t", polling, inUse), func(t *testing.T) {
				store := dsynctest.NewMemory()
				store.Polling = polling
				began := time.Now()
				var mu sync.Mutex
				told := make(map[string]time.Duration)
				start := func(name string, linger time.Duration) *dsync.Session {
					return newSession(t, store, &dsync.Options{Name: name, Linger: linger, Hooks: &dsync.Hooks{
						Deadlock: func(_, _ []string) {
							mu.Lock()
							defer mu.Unlock()
							told[name] = time.Since(began)
						},
					}})
				}
				a, b := start("a", 2*time.Minute), start("b", 0)
				ctx, cancel := context.WithTimeout(background, 130*time.Minute)
				defer cancel()
				x := a.Mutex("x")
				lock(t, x)
				if !inUse {
					x.Unlock()
				}
				y := b.Mutex("y")
				lock(t, y)
				done := make(chan error)
				go func() {
					err := b.Mutex("x").LockContext(ctx)
					y.Unlock()
					done <- err
				}()
				time.Sleep(time.Second)
				err := errors.Join(a.Mutex("y").LockContext(ctx), <-done)
				synctest.Wait()
				early, late := told["a"] > 0 && told["a"] < time.Minute, told["b"] > 0
				if !inUse && (err != nil || len(told) > 0) {
					t.Errorf("reports after %v; the waits ended with %v", told, err)
				}
				if inUse && (err == nil || !early || !late || polling != (told["b"] > time.Hour)) {
					t.Errorf("reports after %v; the waits ended with %v", told, err)
				}
			})
		}
	}
}
