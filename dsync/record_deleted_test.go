package dsync_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/leasehold-go/leasehold/dsync"
	"github.com/leasehold-go/leasehold/dsync/admin"
	"github.com/leasehold-go/leasehold/dsync/driver"
	"github.com/leasehold-go/leasehold/dsync/dsynctest"
	"github.com/leasehold-go/leasehold/internal/engine"
)

// A heldAs is one way to hold the key "k". hold returns a context that ends with the acquired hold, and a function that
// releases that hold.
type heldAs struct {
	name string
	hold func(t *testing.T, s *dsync.Session) (over context.Context, release func())
}

// running calls do in the background. The function that running passes to do waits until its own context ends.
// running returns this context, and a function that ends the context and waits until do has returned.
func running(do func(ctx context.Context, f func(context.Context) error) error) (over context.Context, release func()) {
	begun, done := make(chan context.Context, 1), make(chan struct{})
	ctx, cancel := context.WithCancel(background)
	go func() {
		defer close(done)
		do(ctx, func(ctx context.Context) error {
			begun <- ctx
			<-ctx.Done()
			return ctx.Err()
		})
	}()
	return <-begun, func() { cancel(); <-done }
}

// contextOf returns the context of h, and a function that releases h.
func contextOf(h *dsync.Hold) (context.Context, func()) {
	return h.Context(background), func() { h.Release(background) }
}

func heldAsEach() []heldAs {
	return []heldAs{
		{"Mutex", func(t *testing.T, s *dsync.Session) (context.Context, func()) { return running(s.Mutex("k").Do) }},
		{"RWMutex, writer", func(t *testing.T, s *dsync.Session) (context.Context, func()) { return running(s.RWMutex("k").Do) }},
		{"RWMutex, reader", func(t *testing.T, s *dsync.Session) (context.Context, func()) {
			return contextOf(take(t, s.RWMutex("k").RHold))
		}},
		{"Semaphore", func(t *testing.T, s *dsync.Session) (context.Context, func()) {
			return contextOf(units(t, s.Semaphore("k", 3), 2))
		}},
		{"Once", func(t *testing.T, s *dsync.Session) (context.Context, func()) { return running(s.Once("k").Do) }},
		{"Periodic", func(t *testing.T, s *dsync.Session) (context.Context, func()) {
			return running(func(ctx context.Context, f func(context.Context) error) error {
				_, err := s.Periodic("k").Do(ctx, time.Now().Truncate(time.Second), f)
				return err
			})
		}},
		{"Lease", func(t *testing.T, s *dsync.Session) (context.Context, func()) {
			l, err := s.Mutex("k").Lease(background, time.Hour)
			noErr(t, err)
			over, end := context.WithCancelCause(background)
			go func() {
				<-l.Lost()
				_, err := l.Extend(background)
				end(err)
			}()
			return over, func() { l.Release(background) }
		}},
	}
}

// wantClosed checks that a holder is notified. It waits until the channel is closed, and gives up only after much
// longer than that may take.
func wantClosed(t *testing.T, over <-chan struct{}) {
	t.Helper()
	select {
	case <-over:
	case <-time.After(100 * ttl):
		t.Error("the holder is not notified")
	}
}

// B38: somebody deletes the record of a held key. The holder is notified within a heartbeat interval, with the cause
// ErrRecordDeleted, and the log has an error that names the record. A session that has acquired the key in the meantime
// keeps it.
func TestRecordOfAHeldKeyDeleted(t *testing.T) {
	for _, u := range heldAsEach() {
		inBubble(t, u.name, func(t *testing.T) {
			var log bytes.Buffer
			store := dsynctest.NewMemory()
			a := newSession(t, store, &dsync.Options{Retention: -1, Logger: slog.New(slog.NewTextHandler(&log, &slog.HandlerOptions{Level: slog.LevelError}))})
			b := newSession(t, store, nil)
			over, release := u.hold(t, a)
			time.Sleep(5 * ttl)
			if over.Err() != nil {
				t.Fatal("the hold ended before the record was deleted:", context.Cause(over))
			}
			store.DeleteRecord("k")
			deleted := time.Now()
			theirs, releaseTheirs := u.hold(t, b)
			wantClosed(t, over.Done())
			if d := time.Since(deleted); d > ttl/3*11/10 {
				t.Errorf("the holder was notified after %v, want within a heartbeat interval", d)
			}
			wantErr(t, "the cause", context.Cause(over), dsync.ErrLost, dsync.ErrRecordDeleted)
			release()
			time.Sleep(5 * ttl)
			if theirs.Err() != nil {
				t.Error("the new holder has lost the key:", context.Cause(theirs))
			}
			releaseTheirs()
			synctest.Wait() // the log is written by another goroutine
			if said := log.String(); strings.Count(said, "level=ERROR") != 1 || !strings.Contains(said, `key \"k\" in memory`) {
				t.Errorf("the log has %q, want one error that names the record", said)
			}
			if err := a.Healthy(); err != nil {
				t.Error("Healthy:", err)
			}
			if strings.HasPrefix(u.name, "Once") {
				return
			}
			again, releaseAgain := u.hold(t, a)
			if again.Err() != nil {
				t.Error("the next hold has ended:", context.Cause(again))
			}
			releaseAgain()
		})
	}
}

// With each heartbeat, a session that holds many keys checks some of their records, so that it checks all records in
// turn.
func TestRecordOfOneOfManyDeleted(t *testing.T) {
	bubble(t, func(t *testing.T) {
		const n, perLook = 1_200, 500
		store := &measuringStore{Memory: dsynctest.NewMemory()}
		s := newSession(t, store, nil)
		var all []*dsync.Mutex
		for i := range n {
			all = append(all, s.Mutex(fmt.Sprint(i)))
			lock(t, all[i])
		}
		time.Sleep(3 * ttl)
		for _, i := range []int{0, n / 2, n - 1} {
			store.DeleteRecord(fmt.Sprint(i))
			deleted := time.Now()
			if wantClosed(t, all[i].Lost()); t.Failed() {
				t.FailNow()
			}
			if d := time.Since(deleted); d > (n/perLook+1)*ttl/3*11/10 {
				t.Errorf("the holder of key %d was notified after %v", i, d)
			}
			all[i].Unlock()
		}
		for i := range n {
			store.DeleteRecord(fmt.Sprint(i))
		}
		deleted := time.Now()
		for i, mu := range all {
			if i == 0 || i == n/2 || i == n-1 {
				continue
			}
			wantClosed(t, mu.Lost())
			mu.Unlock()
		}
		if d := time.Since(deleted); d > (n/perLook+1)*ttl/3*11/10 {
			t.Errorf("the holders were notified too late, after %v", d)
		}
		if id := s.ID(); id == "" {
			t.Error("the session was lost")
		}
		if got := store.most.Load(); got != perLook {
			t.Errorf("the command that read the most keys read %d, want %d", got, perLook)
		}
	})
}

// A measuringStore records the greatest number of keys read by one command.
type measuringStore struct {
	*dsynctest.Memory
	most atomic.Int64
}

func (s *measuringStore) Keys(ctx context.Context, q driver.KeyQuery) ([]driver.State, error) {
	if n := int64(len(q.Keys)); n > s.most.Load() {
		s.most.Store(n)
	}
	return s.Memory.Keys(ctx, q)
}

// If a call in the holder's process finds that another session holds the key, the process's own hold ends at once.
func TestReadingShowsAnotherHolder(t *testing.T) {
	for name, read := range map[string]func(s *dsync.Session) error{
		"Status": func(s *dsync.Session) error { _, err := admin.New(s).Status(background, "k"); return err },
		"List": func(s *dsync.Session) error {
			for _, err := range admin.New(s).List(background, "") {
				return err
			}
			return errors.New("no keys")
		},
		"Queue": func(s *dsync.Session) error { _, err := engine.Of(s).Queue(background, "k"); return err },
	} {
		inBubble(t, name, func(t *testing.T) {
			store := dsynctest.NewMemory()
			a, b := newSession(t, store, nil), newSession(t, store, nil)
			ma, mb := a.Mutex("k"), b.Mutex("k")
			maHold := take(t, ma.Hold)
			time.Sleep(time.Second)
			if err := read(a); err != nil || isClosed(maHold.Lost()) {
				t.Fatalf("%v; the first reading ended the hold: %t", err, isClosed(maHold.Lost()))
			}
			store.DeleteRecord("k")
			lock(t, mb)
			noErr(t, read(a))
			if !isClosed(maHold.Lost()) {
				t.Fatal("the reading did not end the hold")
			}
			wantErr(t, "Release", maHold.Release(background), dsync.ErrLost, dsync.ErrRecordDeleted)
			if mb.Token() == 0 {
				t.Error("the other holder has lost the key")
			}
			mb.Unlock()
		})
	}
}

// If a session observes a key that it holds, it sees no other holder before its own hold has ended.
func TestObserverSeesTheNextHolder(t *testing.T) {
	bubble(t, func(t *testing.T) {
		store := dsynctest.NewMemory()
		a, b := newSession(t, store, nil), newSession(t, store, nil)
		ma, mb := a.Mutex("k"), b.Mutex("k")
		lock(t, ma)
		ctx, cancel := context.WithCancel(background)
		defer cancel()
		var both atomic.Bool
		engine.Of(a).Observe(ctx, "k", func(st driver.State, err error) {
			if len(st.Holders) > 0 && st.Holders[0].Session == b.ID() && ma.Token() != 0 {
				both.Store(true)
			}
		}, func() {})
		time.Sleep(time.Second)
		store.DeleteRecord("k")
		lock(t, mb)
		synctest.Wait()
		if both.Load() || !isClosed(ma.Lost()) {
			t.Errorf("the observer saw b hold the key while a did: %t; lost: %t", both.Load(), isClosed(ma.Lost()))
		}
		ma.Unlock()
		mb.Unlock()
	})
}

// Stale readings, for example from a deposed primary, do not end a hold.
func TestStaleReadingEndsNoHold(t *testing.T) {
	bubble(t, func(t *testing.T) {
		store := &forgetfulStore{Memory: dsynctest.NewMemory()}
		s := newSession(t, store, nil)
		mu := s.Mutex("k")
		lock(t, mu)
		before := store.Counts()
		for range 20 {
			store.stale.Store(true)
			time.Sleep(ttl)
		}
		if isClosed(mu.Lost()) {
			t.Error("a stale reading ended the hold")
		}
		if d := store.Counts().Since(before); d.Commands[dsynctest.MethodHeartbeat] > 20*3*12/10+20 {
			t.Errorf("sent %v, want at most one more heartbeat for each stale reading", d.Commands)
		}
		mu.Unlock()
	})
}

// Once stale is set, the next reading from a forgetfulStore omits what a session holds.
type forgetfulStore struct {
	*dsynctest.Memory
	stale atomic.Bool
}

func (s *forgetfulStore) Keys(ctx context.Context, q driver.KeyQuery) ([]driver.State, error) {
	if q.Session != "" && s.stale.Swap(false) {
		return nil, nil
	}
	return s.Memory.Keys(ctx, q)
}

// If the record of a key is deleted, the key's waiters request it again on their own. The first waiter to do so
// becomes the holder, and the others join the queue. The former holder is notified.
func TestWaiterJoinsAgain(t *testing.T) {
	for _, polling := range []bool{false, true} {
		inBubble(t, fmt.Sprint("polling ", polling), func(t *testing.T) {
			store := dsynctest.NewMemory()
			store.Polling = polling
			a, b, c := newSession(t, store, nil), newSession(t, store, nil), newSession(t, store, nil)
			ma, mb, mc := a.Mutex("k"), b.Mutex("k"), c.Mutex("k")
			lock(t, ma)
			got := make(chan *dsync.Mutex, 2)
			for _, m := range []*dsync.Mutex{mb, mc} {
				go func() { m.Lock(); got <- m }()
			}
			time.Sleep(time.Second)
			store.DeleteRecord("k")
			deleted := time.Now()
			first := <-got
			if d := time.Since(deleted); d > ttl*12/10 {
				t.Errorf("the first waiter got the key after %v, want by its next poll", d)
			}
			time.Sleep(2 * ttl)
			if !isClosed(ma.Lost()) || first.Token() == 0 {
				t.Errorf("the first holder is notified: %t; the next one has the key: %t", isClosed(ma.Lost()), first.Token() != 0)
			}
			ma.Unlock()
			first.Unlock()
			(<-got).Unlock()
		})
	}
}
