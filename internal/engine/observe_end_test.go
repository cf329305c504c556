package engine_test

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/leasehold-go/leasehold/internal/engine"

	"github.com/leasehold-go/leasehold/dsync"
	"github.com/leasehold-go/leasehold/dsync/driver"
	"github.com/leasehold-go/leasehold/dsync/dsynctest"
)

// An observed counts the calls that Observe makes, and records the last number of holders and the state that came with
// the last error.
type observed struct {
	states, errs, ends atomic.Int64
	holders            atomic.Int64
	withError          atomic.Pointer[driver.State] // the state that came with the last error
}

func observe(ctx context.Context, s *dsync.Session, key string) *observed {
	o := &observed{}
	engine.Of(s).Observe(ctx, key, func(st driver.State, err error) {
		if err != nil {
			o.errs.Add(1)
			o.withError.Store(&st)
			return
		}
		o.states.Add(1)
		o.holders.Store(int64(len(st.Holders)))
	}, func() { o.ends.Add(1) })
	return o
}

// An observer reads the key at once after each of the first changes, and then at most ten times a second. So when many
// processes start together, the observer makes far fewer readings than there are notices, but still ends up with the
// latest state.
func TestObserveReadsAtAPace(t *testing.T) {
	bubble(t, func(t *testing.T) {
		store := dsynctest.NewMemory()
		o := observe(t.Context(), newSession(t, store, &dsync.Options{PollInterval: time.Hour}), "k")
		time.Sleep(ttl)
		mu := newSession(t, store, nil).Mutex("k")
		readings := func(what string, changes int, at, atMost int64) {
			t.Helper()
			before := o.states.Load()
			for i := range changes {
				if i%2 == 0 {
					lock(t, mu)
				} else {
					mu.Unlock()
				}
				time.Sleep(25 * time.Millisecond) // changes within 20 ms share a notice
			}
			time.Sleep(90 * time.Millisecond) // the last reading can be a tenth of a second late
			if n := o.states.Load() - before; n < at || n > atMost {
				t.Errorf("%s: read %d times, want %d to %d", what, n, at, atMost)
			}
			if n := o.holders.Load(); n != int64(changes%2) {
				t.Errorf("%s: observed %d holders, want 1 after an odd number of changes and 0 after an even number", what, n)
			}
		}
		readings("six changes", 6, 6, 6)
		time.Sleep(time.Second)
		readings("100 changes in 2.5 s", 100, 25, 8+26)
		time.Sleep(time.Second)
		readings("later", 6, 6, 6)
	})
}

// If the key changes while an observer reads it, the reading may be older than the change. Therefore the observer reads
// again at once, without waiting for its next poll.
func TestObserveSeesAChangeDuringAReading(t *testing.T) {
	bubble(t, func(t *testing.T) {
		memory := dsynctest.NewMemory()
		slow := newFaulty(t, memory, func(r dsynctest.Request) dsynctest.Fault {
			if r.Method == dsynctest.MethodLoad {
				return dsynctest.Fault{ReplyDelay: time.Second}
			}
			return dsynctest.Fault{}
		})
		ctx, cancel := context.WithCancel(background)
		defer cancel()
		o := observe(ctx, newSession(t, slow, &dsync.Options{PollInterval: time.Hour}), "k")
		time.Sleep(ttl)
		mu := newSession(t, memory, nil).Mutex("k")
		lock(t, mu)
		time.Sleep(time.Second / 2)
		mu.Unlock() // while the observer reads the state as the Lock left it
		time.Sleep(2 * time.Second)
		if n := o.holders.Load(); n != 0 {
			t.Errorf("observed %d holders 2 s after the Unlock", n)
		}
	})
}

// An observer gets the error of each failed attempt, together with the last known state. After that, the observation
// continues.
func TestObserveReportsErrors(t *testing.T) {
	bubble(t, func(t *testing.T) {
		store := &loadStore{Memory: dsynctest.NewMemory()}
		ctx, cancel := context.WithCancel(background)
		defer cancel()
		o := observe(ctx, newSession(t, store, nil), "k")
		mu := newSession(t, store.Memory, nil).Mutex("k")
		lock(t, mu)
		time.Sleep(ttl)
		if o.holders.Load() != 1 || o.errs.Load() != 0 {
			t.Fatalf("observed %d holders and %d errors, want one holder and no error", o.holders.Load(), o.errs.Load())
		}
		store.down.Store(true)
		time.Sleep(2 * ttl)
		// After a few quick retries, the delay between two retries is 1/24 to 1/12 of the TTL, so there are 24 to 48 of
		// them in two TTLs.
		if n := o.errs.Load(); n < 10 || n > 80 {
			t.Errorf("%d errors were reported in 2 TTLs, want a few dozen", n)
		}
		if st := o.withError.Load(); st == nil || len(st.Holders) != 1 || st.Holders[0].Token != mu.Token() {
			t.Errorf("the error came with %+v, want the last known state", st)
		}
		store.down.Store(false)
		mu.Unlock()
		time.Sleep(ttl)
		if n := o.holders.Load(); n != 0 {
			t.Errorf("observed %d holders after the Unlock", n)
		}
		if n := o.ends.Load(); n != 0 {
			t.Error("the observation has ended")
		}
		store.down.Store(true)
		o.errs.Store(0)
		lock(t, mu)
		time.Sleep(ttl / 12)
		if n := o.errs.Load(); n < 4 {
			t.Errorf("after a success, %d errors were reported within the longest pause, want some quick retries again", n)
		}
	})
}

// While down is set, a loadStore fails every Load at once.
type loadStore struct {
	*dsynctest.Memory
	down atomic.Bool
}

func (s *loadStore) Load(ctx context.Context, key string, waiters int) (driver.State, error) {
	if s.down.Load() {
		return driver.State{}, errors.New("the store is down")
	}
	return s.Memory.Load(ctx, key, waiters)
}

// Whatever ends the observation, Observe reports the end exactly once. It does so on a closed session too, where the
// observation never begins.
func TestObserveEnds(t *testing.T) {
	for _, how := range []string{"ctx", "Close", "after Close"} {
		inBubble(t, how, func(t *testing.T) {
			s := newSession(t, dsynctest.NewMemory(), nil)
			turn(s.Mutex("k"))
			if how == "after Close" {
				s.Close(background)
			}
			ctx, cancel := context.WithCancel(background)
			defer cancel()
			o := observe(ctx, s, "k")
			time.Sleep(time.Second)
			switch how {
			case "ctx":
				cancel()
			case "Close":
				s.Close(background)
			}
			synctest.Wait()
			if n := o.ends.Load(); n != 1 {
				t.Errorf("the end was reported %d times, want once", n)
			}
			if n := o.states.Load(); (n > 0) != (how != "after Close") || o.errs.Load() > 0 {
				t.Errorf("%d states and %d errors were reported, want no error, and states unless the session was closed first", n, o.errs.Load())
			}
		})
	}
}

// Promise 5: if a key changes before the observer's listener is ready, the observer sees the change as soon as the
// listener is ready.
func TestObserveSeesAChangeBeforeTheListenerIsReady(t *testing.T) {
	bubble(t, func(t *testing.T) {
		memory := dsynctest.NewMemory()
		slow := newFaulty(t, memory, func(r dsynctest.Request) (f dsynctest.Fault) {
			if r.Method == dsynctest.MethodListen {
				f.Delay = time.Second
			}
			return f
		})
		ctx, cancel := context.WithCancel(background)
		defer cancel()
		o := observe(ctx, newSession(t, slow, &dsync.Options{PollInterval: time.Hour}), "k")
		time.Sleep(time.Second / 2)
		mu := newSession(t, memory, nil).Mutex("k")
		lock(t, mu)
		time.Sleep(time.Second)
		if n := o.holders.Load(); n != 1 {
			t.Errorf("observed %d holders, want 1", n)
		}
		mu.Unlock()
	})
}

// If a session begins to observe several keys in quick succession, it opens one listener for all of them.
func TestObservedKeysShareOneListener(t *testing.T) {
	bubble(t, func(t *testing.T) {
		memory := dsynctest.NewMemory()
		s := newSession(t, memory, nil)
		ctx, cancel := context.WithCancel(background)
		defer cancel()
		for i := range 100 {
			observe(ctx, s, fmt.Sprint(i))
			synctest.Wait()
		}
		time.Sleep(time.Second)
		if n := memory.Counts().Commands[dsynctest.MethodListen]; n != 1 {
			t.Errorf("%d listeners for 100 keys, want 1", n)
		}
	})
}

// If a listener is closed before it is ready, its late report that it is ready is ignored, because the next listener
// may not be ready yet.
func TestNoticesOfAClosedListenerAreIgnored(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := newSession(t, &lateReady{Memory: dsynctest.NewMemory()}, &dsync.Options{AlwaysListen: true})
		turn(s.Mutex("k"))
		time.Sleep(time.Second)
		ctx, cancel := context.WithCancel(background)
		defer cancel()
		observe(ctx, s, "k") // needs another listener
		time.Sleep(time.Second)
		if engine.Of(s).Local().Listening {
			t.Error("the session reports that it listens, but no listener is open")
		}
	})
}

// A lateReady store reports that a listener is ready only after the listener has ended.
type lateReady struct{ *dsynctest.Memory }

func (s *lateReady) Listen(ctx context.Context, _ string, _ []string, f func(driver.Notice)) error {
	<-ctx.Done()
	time.Sleep(10 * time.Millisecond) // until the next listener is open
	f(driver.Notice{Type: driver.NoticeReady})
	return ctx.Err()
}
