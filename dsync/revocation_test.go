package dsync_test

import (
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
	"github.com/leasehold-go/leasehold/internal/testkit"
)

// The revocations of a hundred Breaks do not stay in the session's record for long.
func TestRevocationsAreRemoved(t *testing.T) {
	for _, watch := range []bool{false, true} {
		inBubble(t, fmt.Sprint("watch ", watch), func(t *testing.T) {
			store := dsynctest.NewMemory()
			a, b := newSession(t, store, &dsync.Options{AlwaysListen: watch}), newSession(t, store, nil)
			mu := a.Mutex("k")
			for range 100 {
				lock(t, mu)
				broken := breakKey(b)
				<-mu.Lost()
				mu.Unlock()
				if e := <-broken; e.err != nil {
					t.Fatal(e.err)
				}
			}
			// Each heartbeat removes the revocations that the session has already handled.
			time.Sleep(ttl)
			if n := revocations(t, store, a.ID()); n != 0 {
				t.Errorf("%d of 100 revocations are still in the record after a TTL", n)
			}
		})
	}
}

// If a heartbeat is under way while a revoked claim is released, the reply to the heartbeat reports the revocation
// again. This does not cost a command.
func TestRepeatedRevocation(t *testing.T) {
	bubble(t, func(t *testing.T) {
		store := dsynctest.NewMemory()
		faulty := newFaulty(t, store, func(r dsynctest.Request) dsynctest.Fault {
			switch r.Method {
			case dsynctest.MethodHeartbeat:
				return dsynctest.Fault{ReplyDelay: ttl / 10}
			case dsynctest.MethodNotice:
				return dsynctest.Fault{Again: 1}
			}
			return dsynctest.Fault{}
		})
		var log strings.Builder
		opt := &dsync.Options{AlwaysListen: true, Logger: slog.New(slog.NewTextHandler(&log, nil))}
		a, b := newSession(t, faulty, opt), newSession(t, store, nil)
		mu := a.Mutex("k")
		draws := testkit.Draw(t)
		for range 50 {
			lock(t, mu)
			time.Sleep(draws.Below(ttl / 4))
			broken := breakKey(b)
			<-mu.Lost()
			time.Sleep(draws.Below(grace / 4))
			mu.Unlock()
			<-broken
		}
		time.Sleep(ttl)
		synctest.Wait()
		if n := strings.Count(log.String(), "this process does not know"); n != 0 || !strings.Contains(log.String(), "hold ended") {
			t.Errorf("%d of 50 holds were released once more, or the log reports no loss", n)
		}
	})
}

// If the notice of a revocation is lost, the holder learns of the revocation from the reply to its next heartbeat.
func TestMissedRevocationComesWithTheHeartbeat(t *testing.T) {
	bubble(t, func(t *testing.T) {
		store := dsynctest.NewMemory()
		deaf := newFaulty(t, store, func(r dsynctest.Request) dsynctest.Fault {
			return dsynctest.Fault{LoseRequest: r.Method == dsynctest.MethodNotice}
		})
		a, b := newSession(t, deaf, &dsync.Options{AlwaysListen: true}), newSession(t, store, nil)
		lock(t, b.Mutex("warm"))
		for range 10 {
			mu := a.Mutex("k")
			lock(t, mu)
			began := time.Now()
			broken := breakKey(b)
			<-mu.Lost()
			if d := time.Since(began); d > ttl*4/10 {
				t.Errorf("the holder was notified after %v, want at most 2/5 of a TTL", d)
			}
			mu.Unlock()
			<-broken
		}
	})
}

// A hold may be revoked while the holder's listener is being opened. The holder then learns of the revocation as soon
// as the listener is ready, without waiting for its next regular heartbeat.
func TestRevocationBeforeTheListenerIsReady(t *testing.T) {
	for _, slow := range []bool{false, true} { // whether a heartbeat is under way when the listener becomes ready
		inBubble(t, fmt.Sprint("heartbeat under way ", slow), func(t *testing.T) {
			store := dsynctest.NewMemory()
			const open = ttl * 4 / 10
			faulty := newFaulty(t, store, func(r dsynctest.Request) dsynctest.Fault {
				switch {
				case r.Method == dsynctest.MethodListen:
					return dsynctest.Fault{Delay: open}
				case r.Method == dsynctest.MethodHeartbeat && slow:
					return dsynctest.Fault{ReplyDelay: ttl / 7}
				}
				return dsynctest.Fault{}
			})
			a, b := newSession(t, faulty, &dsync.Options{AlwaysListen: true}), newSession(t, store, nil)
			lock(t, b.Mutex("warm"))
			mu := a.Mutex("k")
			began := time.Now()
			lock(t, mu)
			time.Sleep(open - 50*time.Millisecond)
			broken := breakKey(b)
			<-mu.Lost()
			most := open
			if slow {
				most += 2 * ttl / 7
			}
			if d := time.Since(began); d > most {
				t.Errorf("the holder was notified after %v, want within %v", d, most)
			}
			mu.Unlock()
			<-broken
		})
	}
}

// A session with AlwaysListen keeps its listener. After a loss it opens a new listener under its new id, so the
// notice of a revocation still arrives at once.
func TestListenerIsKept(t *testing.T) {
	bubble(t, func(t *testing.T) {
		store := dsynctest.NewMemory()
		faulty := newFaulty(t, store, nil)
		a := newSession(t, faulty, &dsync.Options{AlwaysListen: true})
		lock(t, a.Mutex("other"))
		time.Sleep(20 * ttl)
		if n := store.Counts().Commands[dsynctest.MethodListen]; n != 1 {
			t.Errorf("%d listeners, want 1", n)
		}
		faulty.Cut()
		time.Sleep(2 * ttl)
		faulty.Heal()
		mu := a.Mutex("k")
		lock(t, mu)
		time.Sleep(20 * ttl)
		began := time.Now()
		broken := breakKey(newSession(t, store, nil))
		<-mu.Lost()
		if d := time.Since(began); d > 0 {
			t.Errorf("the holder was notified after %v, want at once", d)
		}
		mu.Unlock()
		<-broken
	})
}

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
			inBubble(t, fmt.Sprintf("%s after %v", name, held), func(t *testing.T) {
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
				noErr(t, force(other))
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
		inBubble(t, name, func(t *testing.T) {
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
			noErr(t, admin.New(other).Break(background, "k"))
			if d := time.Since(began); d > ttl*12/10+grace {
				t.Errorf("Break took %v, want at most 1.2 TTLs and the grace", d)
			}
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
