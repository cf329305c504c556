package dsync_test

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/leasehold-go/leasehold/dsync"
	"github.com/leasehold-go/leasehold/dsync/admin"
	"github.com/leasehold-go/leasehold/dsync/driver"
	"github.com/leasehold-go/leasehold/dsync/dsynctest"
)

// Promise 9: with the default options, an idle holder learns of a Break or ForceHold within a few round trips. If its
// hold is new, it learns of them within a second. It need not wait for its next heartbeat.
func TestForceReachesAnIdleHolderAtOnce(t *testing.T) {
	const trip = 10 * time.Millisecond
	force := map[string]func(*dsync.Session) error{
		"Break":     func(s *dsync.Session) error { return admin.New(s).Break(background, "k") },
		"ForceHold": func(s *dsync.Session) error { return errOf(s.Mutex("k").ForceHold(background)) },
	}
	for name, force := range force {
		for _, held := range []time.Duration{100 * time.Millisecond, 25 * time.Second} {
			t.Run(fmt.Sprintf("%s after %v", name, held), func(t *testing.T) {
				bubble(t, func(t *testing.T) {
					memory := dsynctest.NewMemory()
					slow := newFaulty(t, memory, func(dsynctest.Request) dsynctest.Fault {
						return dsynctest.Fault{Delay: trip / 2, ReplyDelay: trip / 2}
					})
					s, other := newSession(t, slow, &dsync.Options{TTL: 30 * time.Second}), newSession(t, slow, nil)
					mu := s.Mutex("k")
					lock(t, mu)
					lost := mu.Lost()
					go func() {
						<-lost
						mu.Unlock()
					}()
					turn(other.Mutex("what has the other registered"))
					time.Sleep(held)
					began := time.Now()
					if err := force(other); err != nil {
						t.Fatal(err)
					}
					// A session does not open a listener for a hold in the hold's first second. During this second, notices
					// about the hold arrive only if the session is already listening.
					most := 12 * trip
					if held < time.Second {
						most += time.Second
					}
					if d := time.Since(began); d > most {
						t.Errorf("the key was taken after %v, with round trips of %v", d, trip)
					}
				})
			})
		}
	}
}

// A notice may be lost, late or repeated, or no listener may open. The holder still learns of a revocation, at the
// latest from the reply to its next heartbeat.
func TestForceInBadNetworks(t *testing.T) {
	faults := map[string]func(dsynctest.Request) dsynctest.Fault{
		"lost": func(r dsynctest.Request) dsynctest.Fault {
			return dsynctest.Fault{LoseReply: r.Method == dsynctest.MethodNotice}
		},
		"late and twice": func(r dsynctest.Request) (f dsynctest.Fault) {
			if r.Method == dsynctest.MethodNotice {
				f.Delay, f.Again = time.Minute, time.Second
			}
			return f
		},
		"never listens": func(r dsynctest.Request) dsynctest.Fault {
			return dsynctest.Fault{LoseRequest: r.Method == dsynctest.MethodListen}
		},
		"not notified": func(r dsynctest.Request) dsynctest.Fault {
			return dsynctest.Fault{LoseRequest: r.Method == dsynctest.MethodNotify}
		},
	}
	for name, fault := range faults {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				memory := dsynctest.NewMemory()
				f := newFaulty(t, memory, fault)
				s, other := newSession(t, f, nil), newSession(t, f, nil)
				mu := s.Mutex("k")
				lock(t, mu)
				time.Sleep(5 * time.Second)
				lost := mu.Lost()
				go func() {
					<-lost
					mu.Unlock()
				}()
				began := time.Now()
				if err := admin.New(other).Break(background, "k"); err != nil {
					t.Fatal(err)
				}
				if d := time.Since(began); d > ttl*12/10+grace {
					t.Errorf("Break took %v, want at most 1.2 TTLs and the grace", d)
				}
			})
		})
	}
}

// A session opens no listener for short holds. A longer hold opens a listener, which is closed within two TTLs after
// the hold's end, or with the session.
func TestListensWhileItHolds(t *testing.T) {
	bubble(t, func(t *testing.T) {
		store := &listenCounter{Memory: dsynctest.NewMemory()}
		s := newSession(t, store, nil)
		mu := s.Mutex("k")
		for range 1000 {
			turn(mu)
			time.Sleep(7 * time.Millisecond) // so that short holds follow each other for seven seconds
		}
		synctest.Wait()
		if n := store.begun.Load(); n > 0 {
			t.Errorf("listened %d times, although nothing was held for long", n)
		}
		lock(t, mu)
		time.Sleep(2 * time.Second)
		if n := store.open.Load(); n != 1 {
			t.Errorf("%d listeners while the session holds, want 1", n)
		}
		time.Sleep(5 * ttl)
		if n := store.begun.Load(); n != 1 {
			t.Errorf("listened %d times in one hold, want 1", n)
		}
		mu.Unlock()
		time.Sleep(2*ttl + time.Second)
		if n := store.open.Load(); n != 0 {
			t.Errorf("%d listeners two TTLs after the last hold", n)
		}
		lock(t, mu)
		time.Sleep(2 * time.Second)
		s.Close(background)
		if n := store.open.Load(); n != 0 {
			t.Errorf("%d listeners after Close", n)
		}
	})
}

// If the store can't notify, the session calls Listen only once. If the listener breaks as soon as it is open, it is
// reopened with back-off.
func TestListenerThatBreaks(t *testing.T) {
	for _, tc := range []struct {
		err  error
		most int64
	}{{errors.ErrUnsupported, 1}, {errors.New("broken"), 200}} {
		bubble(t, func(t *testing.T) {
			store := &listenCounter{Memory: dsynctest.NewMemory(), err: tc.err}
			mu := newSession(t, store, nil).Mutex("k")
			lock(t, mu)
			time.Sleep(time.Minute)
			if n := store.begun.Load(); n < 1 || n > tc.most {
				t.Errorf("%v: listened %d times in a minute, want at most %d", tc.err, n, tc.most)
			}
			mu.Unlock()
		})
	}
}

// A listenCounter counts the calls of Listen, and those that have not returned. If err is set, each call returns err at
// once.
type listenCounter struct {
	*dsynctest.Memory
	open, begun atomic.Int64
	err         error
}

func (s *listenCounter) Listen(ctx context.Context, session string, keys []string, f func(driver.Notice)) error {
	s.begun.Add(1)
	s.open.Add(1)
	defer s.open.Add(-1)
	if s.err != nil {
		f(driver.Notice{Type: driver.NoticeReady})
		return s.err
	}
	return s.Memory.Listen(ctx, session, keys, f)
}
