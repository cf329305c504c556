package dsync_test

import (
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/leasehold-go/leasehold/dsync"
	"github.com/leasehold-go/leasehold/dsync/dsynctest"
	"github.com/leasehold-go/leasehold/internal/testkit"
)

// The revocations of a hundred Breaks do not stay in the session's record for long.
func TestRevocationsAreRemoved(t *testing.T) {
	for _, watch := range []bool{false, true} {
		t.Run(fmt.Sprint("watch ", watch), func(t *testing.T) {
			bubble(t, func(t *testing.T) {
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
		t.Run(fmt.Sprint("heartbeat under way ", slow), func(t *testing.T) {
			bubble(t, func(t *testing.T) {
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
