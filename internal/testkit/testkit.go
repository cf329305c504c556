// Package testkit has helpers for the tests of several packages, such as sessions that are closed when the test ends.
// The packages' helpers_test.go give them short names.
package testkit

import (
	"context"
	"errors"
	"fmt"
	"hash/fnv"
	"log/slog"
	"math/rand/v2"
	"os"
	"runtime/debug"
	"strconv"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/leasehold-go/leasehold/dsync"
	"github.com/leasehold-go/leasehold/dsync/driver"
	"github.com/leasehold-go/leasehold/dsync/dsynctest"
)

// TTL is the default TTL of the sessions of [NewSession].
const TTL = 10 * time.Second

// Long reports whether LEASEHOLD_LONG is set, as in CI. If so, tests run all their cases, which takes a long time;
// otherwise they run some of their cases.
func Long() bool { return os.Getenv("LEASEHOLD_LONG") != "" }

// Large skips a test of sizes or counts (thousands of goroutines or keys, or hours of time) if -short is given, as with
// the race detector in .ci/run, or if LEASEHOLD_REPEATED is set: see [Once].
func Large(t testing.TB) {
	t.Helper()
	if testing.Short() {
		t.Skip("large, and -short is given")
	}
	Once(t)
}

// Once skips a test if LEASEHOLD_REPEATED is set. In that case, tests are repeated so that goroutines wake in different
// orders, and this test does not depend on that order.
func Once(t testing.TB) {
	t.Helper()
	if os.Getenv("LEASEHOLD_REPEATED") != "" {
		t.Skip("LEASEHOLD_REPEATED is set")
	}
}

// Rounds returns the number of rounds that a test runs: the second argument if [Long] returns true, otherwise the
// first.
func Rounds(short, long int) int {
	if Long() {
		return long
	}
	return short
}

// Main is the TestMain of packages whose tests take much of their time for the garbage collector: up to 2 GiB, the heap
// may grow to nine times what is in use, not to twice that.
func Main(m *testing.M) {
	debug.SetGCPercent(800)
	debug.SetMemoryLimit(2 << 30)
	os.Exit(m.Run())
}

// Draws are random numbers for a test. Several goroutines may use them.
type Draws struct{ *rand.Rand }

// Draw returns the Draws of a test. They depend on the test's name and are the same in every run, so that a test does
// not fail by chance. LEASEHOLD_SEED sets another seed. If LEASEHOLD_REPEATED is set, tests are repeated to find new
// failures, so each run uses and logs a seed of its own.
func Draw(t testing.TB) Draws {
	t.Helper()
	name := fnv.New64()
	fmt.Fprint(name, t.Name())
	var seed uint64
	switch s := os.Getenv("LEASEHOLD_SEED"); {
	case s != "":
		var err error
		if seed, err = strconv.ParseUint(s, 10, 64); err != nil {
			t.Fatalf("LEASEHOLD_SEED: %v", err)
		}
	case os.Getenv("LEASEHOLD_REPEATED") != "":
		seed = rand.Uint64() >> 11
		t.Logf("LEASEHOLD_SEED=%d", seed)
	}
	return Draws{rand.New(&locked{source: rand.NewPCG(seed, name.Sum64())})}
}

// Below returns a random duration of at least 0 and less than d.
func (r Draws) Below(d time.Duration) time.Duration { return time.Duration(r.Int64N(int64(d))) }

// locked is a random source for several goroutines.
type locked struct {
	mu     sync.Mutex
	source rand.Source
}

func (l *locked) Uint64() uint64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.source.Uint64()
}

// NewSession returns a session and closes it at the end of the test. The session logs nothing unless opt has a Logger.
// Unless opt has a Retention, the session never sweeps, because tests count commands and sweeps come at random times.
func NewSession(t testing.TB, store driver.Store, opt *dsync.Options) *dsync.Session {
	t.Helper()
	var o dsync.Options
	if opt != nil {
		o = *opt
	}
	if o.TTL == 0 {
		o.TTL = TTL
	}
	if o.Retention == 0 {
		o.Retention = -1
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	s, err := dsync.New(store, &o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close(context.Background()) })
	return s
}

// NewFaulty returns a Faulty that is closed at the end of the test, after the sessions that [NewSession] made with it.
func NewFaulty(t testing.TB, store driver.Store, decide func(dsynctest.Request) dsynctest.Fault) *dsynctest.Faulty {
	f := dsynctest.NewFaulty(store, decide)
	t.Cleanup(f.Close)
	return f
}

// Lock locks m. It fails the test if m can't be locked within five minutes.
func Lock(t testing.TB, m *dsync.Mutex) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Minute)
	defer cancel()
	if err := m.LockContext(ctx); err != nil {
		t.Fatalf("LockContext: %v", err)
	}
}

// InBubble runs f as a subtest, in a bubble of its own.
func InBubble(t *testing.T, name string, f func(t *testing.T)) {
	t.Helper()
	t.Run(name, func(t *testing.T) { synctest.Test(t, f) })
}

// A Gauge counts calls that are under way.
type Gauge struct {
	mu        sync.Mutex
	now, peak int
}

// Begin counts a call until end is called.
func (g *Gauge) Begin() (end func()) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.now++
	g.peak = max(g.peak, g.now)
	return func() {
		g.mu.Lock()
		defer g.mu.Unlock()
		g.now--
	}
}

// Peak returns the greatest number of calls that were under way at once since the last Peak.
func (g *Gauge) Peak() int {
	g.mu.Lock()
	defer g.mu.Unlock()
	peak := g.peak
	g.peak = g.now
	return peak
}

// NoErr ends the test if err is not nil.
func NoErr(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// WantErr fails the test unless err matches each of want.
func WantErr(t testing.TB, what string, err error, want ...error) {
	t.Helper()
	for _, w := range want {
		if !errors.Is(err, w) {
			t.Errorf("%s: error is %v, want one that matches %v", what, err, w)
		}
	}
}

// WaitAt starts a goroutine that calls the function locked, which waits for key. It fails the test unless key has n
// waiters 50 ms later. The returned channel receives the error that the function returns.
func WaitAt(t testing.TB, store driver.Store, key string, n int, locked func(context.Context) error, ctx context.Context) <-chan error {
	t.Helper()
	done := make(chan error, 1)
	go func() { done <- locked(ctx) }()
	time.Sleep(50 * time.Millisecond)
	if st, err := store.Load(ctx, key, 1000); err != nil || st.Waiting != n {
		t.Fatalf("%d waiters in the queue for %q (error %v), want %d", st.Waiting, key, err, n)
	}
	return done
}

// WantString fails the test unless value.String() returns want and sends no command to store.
func WantString(t testing.TB, store *dsynctest.Memory, value fmt.Stringer, want string) {
	t.Helper()
	before := store.Counts()
	if got := fmt.Sprint(value); got != want {
		t.Errorf("got %s, want %s", got, want)
	}
	if n := store.Counts().Since(before).Total(); n != 0 {
		t.Errorf("String of %s sent %d commands", want, n)
	}
}

// IsClosed reports whether c is closed.
func IsClosed(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}

// Turn locks and unlocks m.
func Turn(m sync.Locker) {
	m.Lock()
	defer m.Unlock()
}

// Holders returns the holders of key in the store.
func Holders(t testing.TB, store driver.Store, key string) []driver.Holder {
	t.Helper()
	st, err := store.Load(context.Background(), key, 1000)
	if err != nil {
		t.Fatal(err)
	}
	return st.Holders
}

// WantFree checks that nobody holds the key in the store or waits for it there.
func WantFree(t testing.TB, store driver.Store, key string) {
	t.Helper()
	if h, n := Holders(t, store, key), QueueLength(t, store, key); len(h)+n != 0 {
		t.Errorf("the key is not free: holders %v and %d waiters", h, n)
	}
}

// QueueLength returns the number of waiters for key in the store.
func QueueLength(t testing.TB, store driver.Store, key string) int {
	t.Helper()
	st, err := store.Load(context.Background(), key, 1000)
	if err != nil {
		t.Fatal(err)
	}
	return st.Waiting
}

// Take calls acquire, for example Mutex.Hold, and returns the hold. It fails the test if acquire returns an error.
// The ctx of acquire ends after five minutes.
func Take(t testing.TB, acquire func(context.Context) (*dsync.Hold, error)) *dsync.Hold {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Minute)
	defer cancel()
	h, err := acquire(ctx)
	if err != nil {
		t.Fatalf("Hold: %v", err)
	}
	return h
}

// Units acquires n units of m. It fails the test if that does not succeed within five minutes.
func Units(t testing.TB, m *dsync.Semaphore, n int64) *dsync.Hold {
	t.Helper()
	return Take(t, func(ctx context.Context) (*dsync.Hold, error) { return m.Hold(ctx, n) })
}

// ErrOf returns the error of a call that returns a hold.
func ErrOf(_ *dsync.Hold, err error) error { return err }

// Into returns a function that calls acquire and stores the hold in h.
func Into(h **dsync.Hold, acquire func(context.Context) (*dsync.Hold, error)) func(context.Context) error {
	return func(ctx context.Context) (err error) {
		*h, err = acquire(ctx)
		return err
	}
}

// MakeLinger makes m's key linger. It locks and unlocks m twice, because a claim lingers only if it was requested after
// the listener was open. The first Unlock releases its claim: other sessions may have joined the queue before the
// listener was open.
func MakeLinger(m sync.Locker) {
	Turn(m)
	synctest.Wait()
	Turn(m)
}
