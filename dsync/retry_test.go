package dsync_test

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/leasehold-go/leasehold/dsync"
	"github.com/leasehold-go/leasehold/dsync/driver"
	"github.com/leasehold-go/leasehold/dsync/dsynctest"
	"github.com/leasehold-go/leasehold/internal/storecmd"
)

// A farStore is a store behind a slow link, which delays every Register.
type farStore struct {
	driver.Store
	by time.Duration
}

func (s farStore) Register(ctx context.Context, m driver.Member) (time.Time, error) {
	select {
	case <-time.After(s.by):
		return s.Store.Register(ctx, m)
	case <-ctx.Done():
		return time.Time{}, ctx.Err()
	}
}

// A sharedLog can be read while goroutines write to it.
type sharedLog struct {
	mu  sync.Mutex
	all bytes.Buffer
}

func (l *sharedLog) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.all.Write(b)
}

func (l *sharedLog) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.all.String()
}

// If the TTL allows a command less time than the link takes, no command ever succeeds. The error and the log state
// how long an attempt may take.
func TestTTLTooShortForTheLink(t *testing.T) {
	for ttl, want := range map[time.Duration]string{
		time.Second: "no answer within 167ms, a sixth of the TTL; if the store or the link is slower than that, set a longer TTL: context deadline exceeded",
		time.Minute: "no answer within 5s: context deadline exceeded", // a longer TTL would not help
	} {
		bubble(t, func(t *testing.T) {
			var out sharedLog // Close logs, too
			s, err := dsync.New(farStore{dsynctest.NewMemory(), ttl / 5}, &dsync.Options{TTL: ttl, Logger: slog.New(slog.NewTextHandler(&out, nil))})
			noErr(t, err)
			defer s.Close(background)
			ctx, cancel := context.WithTimeout(background, ttl)
			defer cancel()
			err = s.Mutex("k").LockContext(ctx)
			if !errors.Is(err, context.DeadlineExceeded) || !strings.Contains(err.Error(), want) {
				t.Errorf("LockContext with a TTL of %v: %v; want %q in it", ttl, err, want)
			}
			synctest.Wait()
			if !strings.Contains(out.String(), want) {
				t.Errorf("the log with a TTL of %v: %s; want %q in it", ttl, out.String(), want)
			}
		})
	}
}

// In an outage of a minute, the log gets these warnings for each kind of command: one when commands begin to fail,
// one every ten seconds with the number of failures, and one when commands succeed again. Failed attempts are not
// logged one by one, but the hook is called for each. The next outage is logged in the same way. A single failure
// takes one line. The cause of a loss includes why the last heartbeat failed.
func TestLogOfAnOutage(t *testing.T) {
	bubble(t, func(t *testing.T) {
		var out bytes.Buffer
		failed := make(map[string]int)
		f := newFaulty(t, dsynctest.NewMemory(), nil)
		s := newSession(t, f, &dsync.Options{
			Logger: slog.New(slog.NewTextHandler(&out, &slog.HandlerOptions{Level: slog.LevelWarn})),
			Hooks: &dsync.Hooks{
				StoreError: func(op string, _ error) { failed[op]++ },
				Lost: func(l dsync.HoldInfo) {
					if errors.Is(l.Cause, context.DeadlineExceeded) || !strings.Contains(l.Cause.Error(), "; the last: no answer within ") || !strings.HasSuffix(l.Cause.Error(), ": context deadline exceeded") {
						t.Errorf("lost: %v, want a cause that says in words, without matching DeadlineExceeded, why the last heartbeat failed", l.Cause)
					}
				},
			},
		})
		outage := func(d time.Duration) map[string][]string {
			h := take(t, s.Mutex("k").Hold)
			synctest.Wait() // wait for the hooks and the log
			out.Reset()
			clear(failed)
			f.Cut()
			other := s.Mutex("other")
			locked := make(chan error, 1)
			go func() { locked <- other.LockContext(background) }() // it keeps trying
			time.Sleep(d)
			f.Heal()
			h.Release(background) // this hold was lost
			noErr(t, <-locked)
			other.Unlock()
			time.Sleep(2 * ttl) // several heartbeats
			synctest.Wait()
			said := make(map[string][]string)
			for line := range strings.Lines(out.String()) {
				if _, op, ok := strings.Cut(line, " op="); ok {
					op, _, _ = strings.Cut(op, " ")
					said[strings.TrimSpace(op)] = append(said[strings.TrimSpace(op)], line)
				}
			}
			return said
		}
		for range 2 {
			said := outage(time.Minute)
			if failed["Register"] < 20 {
				t.Fatalf("failures: %v; the test needs many", failed)
			}
			if first := said["Register"][0]; !strings.Contains(first, "attempt=") {
				t.Errorf("%q: the log does not say how long an attempt may take", first)
			}
			for _, op := range slices.Sorted(maps.Keys(failed)) {
				lines := said[op]
				switch n := failed[op]; {
				case n > 10 && (len(lines) < 3 || len(lines) > 8):
					t.Errorf("%s failed %d times, and the log has %d lines of it:\n%s", op, n, len(lines), strings.Join(lines, ""))
				case n > 1 && !strings.Contains(lines[len(lines)-1], "again"):
					t.Errorf("%s failed %d times, but the log does not say that they are over:\n%s", op, n, strings.Join(lines, ""))
				case n == 1 && len(lines) != 1:
					t.Errorf("%s failed once, and the log has\n%s", op, strings.Join(lines, ""))
				}
			}
		}
	})
}

// A downStore fails heartbeats at once while down is set.
type downStore struct {
	*dsynctest.Memory
	down  atomic.Bool
	beats chan time.Time // the time of each heartbeat
}

func newDownStore() *downStore {
	return &downStore{Memory: dsynctest.NewMemory(), beats: make(chan time.Time, 1000)}
}

func (s *downStore) Heartbeat(ctx context.Context, session string, given []driver.Revocation) (driver.HeartbeatReply, error) {
	s.beats <- time.Now()
	if s.down.Load() {
		return driver.HeartbeatReply{}, errors.New("connection refused")
	}
	return s.Memory.Heartbeat(ctx, session, given)
}

// Back-off is capped at a twelfth of the TTL. So no hold is lost if an outage ends at least a twelfth of the TTL
// before the deadline.
func TestOutageWithinTheLeaseCostsNothing(t *testing.T) {
	for range 20 {
		bubble(t, func(t *testing.T) {
			store := newDownStore()
			h := take(t, newSession(t, store, nil).Mutex("k").Hold)
			store.down.Store(true)
			time.Sleep(lease - ttl/12 - time.Millisecond)
			store.down.Store(false)
			time.Sleep(ttl)
			if isClosed(h.Lost()) {
				t.Error("the hold was lost, although the outage was over before the deadline")
			}
			h.Release(background)
		})
	}
}

// A success resets the back-off, so the next error is retried quickly.
func TestBackoffResetsAfterSuccess(t *testing.T) {
	bubble(t, func(t *testing.T) {
		store := newDownStore()
		mu := newSession(t, store, nil).Mutex("k")
		lock(t, mu)
		store.down.Store(true)
		time.Sleep(lease * 3 / 4)
		store.down.Store(false)
		time.Sleep(ttl / 12)
		for len(store.beats) > 0 {
			<-store.beats
		}
		store.down.Store(true)
		first := <-store.beats
		if d := (<-store.beats).Sub(first); d > 20*time.Millisecond {
			t.Errorf("the first retry comes after %v, want at most 20ms", d)
		}
		store.down.Store(false)
		mu.Unlock()
	})
}

// If other sessions have expired a session, it learns of the loss by its next heartbeat, before its deadline.
func TestExpiredSessionIsLostAtOnce(t *testing.T) {
	bubble(t, func(t *testing.T) {
		store := dsynctest.NewMemory()
		s := newSession(t, store, nil)
		mu := s.Mutex("k")
		start := time.Now()
		h := take(t, mu.Hold)
		id := s.ID()
		noErr(t, storecmd.Unregister(background, store, id))
		<-h.Lost()
		if d := time.Since(start); d > ttl/2 {
			t.Errorf("the holder was notified after %v, want by the next heartbeat", d)
		}
		h.Release(background)
		lock(t, mu)
		if s.ID() == id {
			t.Error("the session continues under the expired id")
		}
		mu.Unlock()
	})
}

// B09: an unanswered registration may have taken effect, so it is not repeated under the same id.
func TestRegistrationIsNotRepeatedUnderItsID(t *testing.T) {
	bubble(t, func(t *testing.T) {
		ids := map[string]int{}
		f := newFaulty(t, dsynctest.NewMemory(), func(r dsynctest.Request) dsynctest.Fault {
			if r.Method != dsynctest.MethodRegister {
				return dsynctest.Fault{}
			}
			ids[r.Session]++
			return dsynctest.Fault{LoseRequest: len(ids) < 3 && ids[r.Session] < 3}
		})
		mu := newSession(t, f, nil).Mutex("k")
		lock(t, mu)
		mu.Unlock()
		if len(ids) != 3 {
			t.Errorf("registered as %v, want three ids: two requests are lost", ids)
		}
		for id, n := range ids {
			if n != 1 {
				t.Errorf("registered as %s %d times, want once", id, n)
			}
		}
	})
}

// If a session is lost while a release is unanswered, the release is not retried, because the claim is lost with the
// session.
func TestNoReleaseAfterTheLoss(t *testing.T) {
	bubble(t, func(t *testing.T) {
		var lost atomic.Bool
		var late []string
		store := dsynctest.NewMemory()
		f := newFaulty(t, store, func(r dsynctest.Request) dsynctest.Fault {
			if lost.Load() && strings.HasPrefix(string(r.Method), string(dsynctest.MethodRelease)) {
				late = append(late, r.Claim)
			}
			return dsynctest.Fault{}
		})
		h := take(t, newSession(t, f, nil).Mutex("k").Hold)
		f.Cut()
		ctx, cancel := context.WithTimeout(background, time.Second)
		defer cancel()
		wantErr(t, "Release", h.Release(ctx), context.DeadlineExceeded)
		time.Sleep(lease)
		synctest.Wait()
		lost.Store(true)
		f.Heal()
		time.Sleep(ttl)
		if len(late) != 0 {
			t.Errorf("Releases sent after the loss: %v", late)
		}
	})
}

// B31: the reply to one attempt of a request proves nothing about an earlier attempt. The earlier attempt can still
// arrive after the release and join the queue. Its claim must not stay there.
func TestAnswerToOneAttemptDoesNotCountForAnother(t *testing.T) {
	bubble(t, func(t *testing.T) {
		store := &slowResetStore{resetStore{Memory: dsynctest.NewMemory()}}
		s := newSession(t, store, nil)
		lock(t, s.Mutex("warm"))
		store.resets.Store(1) // the first attempt fails at once; the reply to the second comes late
		ctx, cancel := context.WithTimeout(background, slowReset/2)
		defer cancel()
		wantErr(t, "LockContext", s.Mutex("k").LockContext(ctx), context.DeadlineExceeded)
		time.Sleep(ttl)
		if !isClosed(store.late) {
			t.Fatal("the late request did not arrive")
		}
		if h, n := holders(t, store, "k"), queueLength(t, store, "k"); len(h)+n != 0 {
			t.Errorf("left behind under a live session: holders %v and %d in the queue", h, n)
		}
	})
}

const slowReset = 200 * time.Millisecond

// A slowResetStore is a resetStore with slow replies. Each reply has Final set. This means that no other copy of the
// answered attempt can join the queue.
type slowResetStore struct{ resetStore }

func (s *slowResetStore) Edit(ctx context.Context, e driver.Edit) (driver.Edited, error) {
	done, err := s.resetStore.Edit(ctx, e)
	if err == nil && e.Acquire != nil {
		time.Sleep(slowReset)
		done.State.Final = true
	}
	return done, err
}

// If a waiter's session is lost, a new one is registered at once, even if the waiter's next poll is far off.
func TestLossWakesWaiters(t *testing.T) {
	bubble(t, func(t *testing.T) {
		memory := dsynctest.NewMemory()
		other := newSession(t, memory, nil)
		if _, err := other.Mutex("k").Lease(background, 24*time.Hour); err != nil {
			t.Fatal(err)
		}
		faulty := newFaulty(t, memory, nil)
		s := newSession(t, faulty, &dsync.Options{PollInterval: time.Hour})
		ctx, cancel := context.WithCancel(background)
		done := make(chan error)
		go func() { done <- s.Mutex("k").LockContext(ctx) }()
		synctest.Wait()
		id := s.ID()
		faulty.Cut()
		time.Sleep(lease)
		faulty.Heal()
		time.Sleep(ttl / 2)
		if now := s.ID(); now == "" || now == id {
			t.Errorf("the session's id is %q %v after the loss of %q", now, ttl/2, id)
		}
		cancel()
		wantErr(t, "LockContext", <-done, context.Canceled)
	})
}

// If a session learns of a lease's grant from a notice, it sends an Extend to find out when the lease ends. While the
// Extend fails, it is retried with back-off.
func TestDatingALeaseIsRetriedWithBackoff(t *testing.T) {
	bubble(t, func(t *testing.T) {
		memory := dsynctest.NewMemory()
		other := newSession(t, memory, nil).Mutex("k")
		lock(t, other)
		store := &undated{Store: memory}
		ctx, cancel := context.WithCancel(background)
		done := make(chan error)
		go func() {
			_, err := newSession(t, store, nil).Mutex("k").Lease(ctx, time.Minute)
			done <- err
		}()
		synctest.Wait()
		other.Unlock()
		time.Sleep(time.Second)
		cancel()
		wantErr(t, "Lease", <-done, context.Canceled)
		if n := store.asked.Load(); n < 3 || n > 20 {
			t.Errorf("%d Extends within a second, want 3 to 20", n)
		}
	})
}

// An undated store fails every Extend. After 100 Extends it stops answering, so that the test ends even without a
// back-off.
type undated struct {
	driver.Store
	asked atomic.Int64
}

func (u *undated) Edit(ctx context.Context, e driver.Edit) (driver.Edited, error) {
	if e.Extend == nil {
		return u.Store.Edit(ctx, e)
	}
	if u.asked.Add(1) > 100 {
		<-ctx.Done()
	}
	return driver.Edited{}, errors.New("out of order")
}

// If the network silently drops a request, the request is repeated within seconds, however long the TTL is.
func TestAttemptsAreShortWhateverTheTTL(t *testing.T) {
	bubble(t, func(t *testing.T) {
		f := newFaulty(t, dsynctest.NewMemory(), nil)
		s := newSession(t, f, &dsync.Options{TTL: time.Hour})
		mu := s.Mutex("k")
		turn(mu)
		f.Cut()
		time.AfterFunc(5*time.Second, f.Heal)
		began := time.Now()
		lock(t, mu)
		if took := time.Since(began); took > 15*time.Second {
			t.Errorf("Lock of a free key took %v, but the network dropped everything for only 5s", took)
		}
		mu.Unlock()
	})
}

// A turnstile notes when each Acquire comes, and refuses it until it is opened.
type turnstile struct {
	driver.Store
	open atomic.Bool
	mu   sync.Mutex
	came []time.Time
}

func (s *turnstile) Edit(ctx context.Context, e driver.Edit) (driver.Edited, error) {
	if e.Acquire != nil && !s.open.Load() {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.came = append(s.came, time.Now())
		return driver.Edited{}, driver.ErrRefused
	}
	return s.Store.Edit(ctx, e)
}

// If the store refuses a Lock, Lock tries again: soon at first, and then after pauses that grow to half a TTL.
func TestLockPausesAfterRefusals(t *testing.T) {
	bubble(t, func(t *testing.T) {
		store := &turnstile{Store: dsynctest.NewMemory()}
		mu := newSession(t, store, nil).Mutex("k")
		time.AfterFunc(10*ttl, func() { store.open.Store(true) })
		turn(mu)
		n := len(store.came)
		if first := store.came[1].Sub(store.came[0]); first > 20*time.Millisecond {
			t.Errorf("the first pause was %v, want at most 20ms", first)
		}
		if last := store.came[n-1].Sub(store.came[n-2]); last < ttl/4 || last > ttl/2 {
			t.Errorf("after %d refusals the pause was %v, want a quarter to half of the TTL, %v", n, last, ttl)
		}
	})
}
