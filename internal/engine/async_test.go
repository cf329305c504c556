package engine_test

import (
	"bytes"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/leasehold-go/leasehold/dsync"
	"github.com/leasehold-go/leasehold/dsync/dsynctest"
)

// With AsyncUnlock, an unlock without a context does not wait for the store. Whatever follows it
// does: the next Lock in this process, a Lock elsewhere, and Close.
func TestAsyncUnlock(t *testing.T) {
	const slow = 500 * time.Millisecond // less than an attempt may take
	write := func(s *dsync.Session) func() {
		rw := s.RWMutex("k")
		rw.Lock()
		return rw.Unlock
	}
	for _, test := range []struct {
		name string
		lock func(*dsync.Session) (unlock func())
		next func(*dsync.Session) (unlock func()) // nil: lock
	}{
		{"Mutex", func(s *dsync.Session) func() {
			mu := s.Mutex("k")
			mu.Lock()
			return mu.Unlock
		}, nil},
		{"RWMutex, writing", write, nil},
		{"RWMutex, reading", func(s *dsync.Session) func() {
			rw := s.RWMutex("k")
			rw.RLock()
			return rw.RUnlock
		}, write},
		{"Semaphore", func(s *dsync.Session) func() {
			sem := s.Semaphore("k", 1)
			if err := sem.Acquire(background, 1); err != nil {
				t.Fatal(err)
			}
			return func() { sem.Release(1) }
		}, nil},
	} {
		t.Run(test.name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				memory := dsynctest.NewMemory()
				store := newFaulty(t, memory, func(r dsynctest.Request) dsynctest.Fault {
					if r.Method == dsynctest.MethodRelease {
						return dsynctest.Fault{Delay: slow}
					}
					return dsynctest.Fault{}
				})
				s := newSession(t, store, &dsync.Options{AsyncUnlock: true})
				follow := test.next
				if follow == nil {
					follow = test.lock
				}
				for _, next := range []struct {
					name string
					do   func()
				}{
					{"Lock here", func() { follow(s)() }},
					{"Lock elsewhere", func() { follow(newSession(t, memory, nil))() }},
					{"Close", func() {
						if err := s.Close(background); err != nil {
							t.Error(err)
						}
					}},
				} {
					time.Sleep(2 * slow) // for the release before it
					unlock := test.lock(s)
					begin := time.Now()
					unlock()
					if took := time.Since(begin); took != 0 {
						t.Errorf("unlocking took %v, want no wait", took)
					}
					next.do()
					if took := time.Since(begin); took < slow {
						t.Errorf("%s took %v, want the %v of the release", next.name, took, slow)
					}
				}
				if st, err := memory.Load(background, "k", 1000); err != nil || len(st.Holders) > 0 {
					t.Errorf("after Close: %+v, %v, want the key free", st, err)
				}
			})
		})
	}
}

// With AsyncUnlock, UnlockContext still waits until the key is free.
func TestAsyncUnlockContextWaits(t *testing.T) {
	bubble(t, func(t *testing.T) {
		memory := dsynctest.NewMemory()
		store := newFaulty(t, memory, func(r dsynctest.Request) dsynctest.Fault {
			return dsynctest.Fault{Delay: 100 * time.Millisecond}
		})
		mu := newSession(t, store, &dsync.Options{AsyncUnlock: true}).Mutex("k")
		lock(t, mu)
		if err := mu.UnlockContext(background); err != nil {
			t.Fatal(err)
		}
		if st, err := memory.Load(background, "k", 1000); err != nil || len(st.Holders) > 0 {
			t.Errorf("%+v, %v, want the key free", st, err)
		}
	})
}

// With AsyncUnlock, an Unlock that could not release in time is logged.
func TestAsyncUnlockLogs(t *testing.T) {
	bubble(t, func(t *testing.T) {
		var log bytes.Buffer
		store := newFaulty(t, dsynctest.NewMemory(), func(r dsynctest.Request) dsynctest.Fault {
			return dsynctest.Fault{LoseRequest: r.Method == dsynctest.MethodRelease}
		})
		s := newSession(t, store, &dsync.Options{AsyncUnlock: true, Logger: slog.New(slog.NewTextHandler(&log, nil))})
		mu := s.Mutex("k")
		lock(t, mu)
		mu.Unlock()
		time.Sleep(ttl)
		s.Close(background)
		synctest.Wait() // for the log of the background release
		if got := log.String(); !strings.Contains(got, `"dsync: Unlock"`) || !strings.Contains(got, "key=k") {
			t.Errorf("logged %q, want that the release of k was not answered", got)
		}
	})
}
