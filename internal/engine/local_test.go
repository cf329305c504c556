package engine_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/leasehold-go/leasehold/internal/engine"

	"github.com/leasehold-go/leasehold/dsync"
	"github.com/leasehold-go/leasehold/dsync/dsynctest"
)

func TestLocalOfTheSession(t *testing.T) {
	bubble(t, func(t *testing.T) {
		f := newFaulty(t, dsynctest.NewMemory(), nil)
		s := newSession(t, f, &dsync.Options{Name: "n", Host: "h", App: "a"})
		l := engine.Of(s).Local()
		if l.ID != "" || l.Left != 0 || !l.Renewed.IsZero() || l.Listening || l.Polling || l.Closed {
			t.Errorf("unused: %+v", l)
		}
		if l.Name != "n" || l.Host != "h" || l.App != "a" || l.PID == 0 || l.TTL != ttl || l.Margin != margin || l.Grace != grace || l.Heartbeat != ttl/3 {
			t.Errorf("settings: %+v", l)
		}
		lock(t, s.Mutex("k"))
		l = engine.Of(s).Local()
		if l.ID != s.ID() || l.ID == "" || l.Left != lease || l.Lease != lease || time.Since(l.Renewed) != 0 || l.Listening {
			t.Errorf("registered: %+v", l)
		}
		time.Sleep(time.Second / 2)
		if l = engine.Of(s).Local(); l.Left != lease-time.Second/2 || time.Since(l.Renewed) != time.Second/2 {
			t.Errorf("half a second later: %+v", l)
		}
		f.Cut()
		time.Sleep(lease)
		if l = engine.Of(s).Local(); l.ID != "" || l.Left != 0 {
			t.Errorf("lost: %+v", l)
		}
		f.Heal()
		s.Close(background)
		if l = engine.Of(s).Local(); !l.Closed {
			t.Errorf("closed: %+v", l)
		}
	})
}

func TestLocalSaysWhetherTheStoreNotifies(t *testing.T) {
	for _, polling := range []bool{false, true} {
		inBubble(t, fmt.Sprintf("polling %v", polling), func(t *testing.T) {
			store := dsynctest.NewMemory()
			store.Polling = polling
			s := newSession(t, store, &dsync.Options{AlwaysListen: true})
			lock(t, s.Mutex("k"))
			synctest.Wait()
			if l := engine.Of(s).Local(); l.Listening == polling || l.Polling != polling {
				t.Errorf("Listening is %v and Polling %v, want only the one that applies", l.Listening, l.Polling)
			}
		})
	}
}

// summary returns a string for each hold and each wait of a Local, ordered by key. The strings contain what these
// tests compare.
func summary(l engine.Local) (all []string) {
	slices.SortFunc(l.Holds, func(a, b engine.LocalHold) int { return strings.Compare(a.Key, b.Key) })
	slices.SortStableFunc(l.Waits, func(a, b engine.LocalWait) int { return strings.Compare(a.Key, b.Key) })
	for _, h := range l.Holds {
		lost := ""
		if h.Lost != nil {
			lost = fmt.Sprintf(" lost for %v", time.Since(h.LostSince))
		}
		all = append(all, fmt.Sprintf("%s %s %d for %v by %d after %d%s", h.Kind, h.Key, h.Weight, time.Since(h.Since), h.Holders, h.HandOffs, lost))
	}
	for _, w := range l.Waits {
		all = append(all, fmt.Sprintf("%s %s %d waits for %v at %d behind %d", w.Kind, w.Key, w.Weight, time.Since(w.Since), w.Position, w.Ahead))
	}
	return all
}

func wantLocal(t *testing.T, when string, s *dsync.Session, want ...string) {
	t.Helper()
	synctest.Wait()
	if got := summary(engine.Of(s).Local()); fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("%s:\n got %q\nwant %q", when, got, want)
	}
}

func TestLocalListsHoldsAndWaits(t *testing.T) {
	bubble(t, func(t *testing.T) {
		store := dsynctest.NewMemory()
		s, other := newSession(t, store, &dsync.Options{HandOffTime: time.Minute}), newSession(t, store, nil)
		mu, rw, sem := s.Mutex("m"), s.RWMutex("r"), s.Semaphore("s", 5)
		lock(t, mu)
		time.Sleep(time.Second)
		rw.RLock()
		rw.RLock()
		noErr(t, sem.Acquire(background, 2))
		lease, err := s.Mutex("l").Lease(background, 20*time.Second)
		noErr(t, err)
		wantLocal(t, "granted", s, "mutex l 1 for 0s by 1 after 0", "mutex m 1 for 1s by 1 after 0", "rwmutex r 1 for 0s by 2 after 0", "semaphore s 2 for 0s by 1 after 0")
		for _, h := range engine.Of(s).Local().Holds {
			switch h.Key {
			case "m":
				if h.Token != mu.Token() {
					t.Errorf("token is %d, want %d", h.Token, mu.Token())
				}
			case "l":
				if left := h.Left; !h.Until.Equal(lease.Until()) || left != 20*time.Second-20*time.Millisecond-margin-grace {
					t.Errorf("the lease ends at %v, in %v; want %v", h.Until, left, lease.Until())
				}
			}
		}
		rw.RUnlock()
		rw.RUnlock()
		sem.Release(2)
		time.Sleep(20 * time.Second)
		wantLocal(t, "released and lapsed", s, "mutex m 1 for 21s by 1 after 0")

		// Two goroutines wait for the key "o". The first goroutine is in the store's queue, behind a waiter of another
		// process.
		ctx, cancel := context.WithCancel(background)
		held := other.Mutex("o")
		lock(t, held)
		third := newSession(t, store, nil)
		go third.Mutex("o").LockContext(ctx)
		synctest.Wait()
		for range 2 {
			go s.Mutex("o").LockContext(ctx)
			synctest.Wait()
		}
		time.Sleep(time.Second)
		wantLocal(t, "waiting", s, "mutex m 1 for 22s by 1 after 0", "mutex o 1 waits for 1s at 2 behind 0", "mutex o 1 waits for 1s at 0 behind 1")
		cancel()
		wantLocal(t, "given up", s, "mutex m 1 for 22s by 1 after 0")

		// Unlock hands off the key.
		next := s.Mutex("m")
		go next.Lock()
		wantLocal(t, "with one more for m", s, "mutex m 1 for 22s by 1 after 0", "mutex m 1 waits for 0s at 0 behind 0")
		token := mu.Token()
		mu.Unlock()
		wantLocal(t, "handed off", s, "mutex m 1 for 22s by 1 after 1")
		if l := engine.Of(s).Local(); l.Holds[0].Token != token+1 {
			t.Errorf("token is %d, want %d", l.Holds[0].Token, token+1)
		}
		// If a waiter joins the store's queue late, the duration of its wait still counts from its call.
		ctx, cancel = context.WithCancel(background)
		go s.Mutex("m").LockContext(ctx)
		time.Sleep(2 * time.Minute)
		go other.Mutex("m").LockContext(ctx)
		synctest.Wait()
		next.Unlock()
		wantLocal(t, "behind another process", s, "mutex m 1 waits for 2m0s at 1 behind 0")
		cancel()
		wantLocal(t, "given up at last", s)
	})
}

func TestLocalListsLingeringKeys(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := newSession(t, dsynctest.NewMemory(), &dsync.Options{Linger: time.Minute})
		mu := s.Mutex("k")
		makeLinger(mu)
		time.Sleep(time.Minute + time.Second) // the first claim no longer lingers, and the listener is open
		turn(mu)
		time.Sleep(time.Second)
		wantLocal(t, "lingering", s, "mutex k 1 for 1s by 0 after 0")
	})
}

// A lost hold is listed until its holder unlocks it. After the loss, the duration of a wait still counts from the
// waiter's call.
func TestLocalThroughALoss(t *testing.T) {
	bubble(t, func(t *testing.T) {
		store := dsynctest.NewMemory()
		f := newFaulty(t, store, nil)
		s, other := newSession(t, f, nil), newSession(t, store, nil)
		mu, theirs := s.Mutex("k"), other.Mutex("o")
		lock(t, mu)
		lock(t, theirs)
		ctx, cancel := context.WithCancel(background)
		go s.Mutex("o").LockContext(ctx)
		synctest.Wait()
		f.Cut()
		began := time.Now()
		<-mu.Lost()
		lost := time.Since(began)
		time.Sleep(3 * time.Second)
		wantLocal(t, "lost", s, fmt.Sprintf("mutex k 1 for %v by 1 after 0 lost for 3s", lost+3*time.Second),
			fmt.Sprintf("mutex o 1 waits for %v at 0 behind 0", lost+3*time.Second))
		mu.Unlock()
		cancel()
		wantLocal(t, "unlocked", s)
		f.Heal()
		theirs.Unlock()
	})
}

// After a freeze past the deadline, Local lists no hold as live, even before any timer has run.
func TestLocalAfterFreeze(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := newSession(t, dsynctest.NewMemory(), nil)
		if _, err := s.Mutex("fixed").Lease(background, ttl); err != nil {
			t.Fatal(err)
		}
		mu := s.Mutex("k")
		lock(t, mu)
		engine.Of(s).Freeze(ttl)
		l := engine.Of(s).Local()
		if l.ID != "" || l.Left != 0 {
			t.Errorf("session %q with %v left, want none", l.ID, l.Left)
		}
		wantLocal(t, "frozen", s, "mutex k 1 for 10s by 1 after 0 lost for 0s")
		mu.Unlock()
	})
}
