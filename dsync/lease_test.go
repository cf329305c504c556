package dsync_test

import (
	"math/rand/v2"
	"testing"
	"testing/synctest"
	"time"

	"github.com/leasehold-go/leasehold/dsync"
	"github.com/leasehold-go/leasehold/dsync/admin"
	"github.com/leasehold-go/leasehold/dsync/driver"
	"github.com/leasehold-go/leasehold/dsync/dsynctest"
	"github.com/leasehold-go/leasehold/internal/testkit"
)

// L7, B25: a lease ends without a Release. Extend prolongs the lease and returns its new end by the store's clock.
// After the lease has ended, Extend fails.
func TestLeaseExtendAndLapse(t *testing.T) {
	bubble(t, func(t *testing.T) {
		const d = 20 * time.Second
		store := dsynctest.NewMemory()
		a, b := newSession(t, store, nil), newSession(t, store, nil)
		l, err := a.Mutex("k").Lease(background, d)
		noErr(t, err)
		check := func(until time.Time) {
			t.Helper()
			if h := holders(t, store, "k")[0]; !h.Until.Equal(until) || !l.Until().Equal(until) || h.Token != l.Token() {
				t.Errorf("the store has %+v; Until is %v, Token %d, want until %v", h, l.Until(), l.Token(), until)
			}
		}
		check(l.Until())
		time.Sleep(d / 2)
		until, err := l.Extend(background)
		noErr(t, err)
		check(until)
		start := time.Now()
		if b.Mutex("k").TryLock() {
			t.Fatal("TryLock succeeded while another session had the lease")
		}
		<-l.Lost()
		if took, want := time.Since(start), d-d/1000-margin-grace; took != want {
			t.Errorf("the hold was lost %v after Extend, want %v", took, want)
		}
		_, err = l.Extend(background)
		wantErr(t, "Extend after the end", err, dsync.ErrLost)
		if l.Token() != 0 {
			t.Error("the lease still has a token after its end")
		}
		mu := b.Mutex("k")
		lock(t, mu)
		if took := time.Since(start); took < d || took > d+50*time.Millisecond {
			t.Errorf("the key was taken %v after Extend, want %v", took, d)
		}
		wantErr(t, "Release after the end", l.Release(background), dsync.ErrLost)
		time.Sleep(time.Second)
		if isClosed(mu.Lost()) || len(holders(t, store, "k")) != 1 {
			t.Error("the late Release freed another holder's lock")
		}
		mu.Unlock()
	})
}

// A lease excludes Mutexes and other leases of its key, in the same process and in others. A lease that is over needs
// no Release.
func TestLeaseExcludes(t *testing.T) {
	bubble(t, func(t *testing.T) {
		const d = 20 * time.Second
		store := dsynctest.NewMemory()
		a, b := newSession(t, store, nil), newSession(t, store, nil)
		if _, err := a.Mutex("k").Lease(background, d); err != nil {
			t.Fatal(err)
		}
		for _, s := range []*dsync.Session{a, b} {
			_, err := s.Mutex("k").TryLease(background, d)
			wantErr(t, "TryLease", err, dsync.ErrHeld)
			wantErr(t, "TryHold", errOf(s.Mutex("k").TryHold(background)), dsync.ErrHeld)
		}
		l, err := b.Mutex("k").Lease(background, d)
		noErr(t, err)
		if err := l.Release(background); err != nil {
			t.Errorf("Release: %v", err)
		}
		if err := l.Release(background); err != nil {
			t.Errorf("second Release: %v", err)
		}
		if l, err = a.Mutex("k").TryLease(background, d); err != nil {
			t.Errorf("TryLease after the first lease has lapsed and the second was released: %v", err)
		}
		l.Release(background)
	})
}

// A lease does not end with its session, but at its own end.
func TestLeaseOutlivesItsSession(t *testing.T) {
	bubble(t, func(t *testing.T) {
		const d = 5 * ttl
		memory := dsynctest.NewMemory()
		faulty := newFaulty(t, memory, nil)
		a, b := newSession(t, faulty, nil), newSession(t, memory, nil)
		l, err := a.Mutex("k").Lease(background, d)
		noErr(t, err)
		until := l.Until()
		faulty.Cut()
		time.Sleep(3 * ttl)
		if isClosed(l.Lost()) || l.Token() == 0 {
			t.Error("the lease was lost with its session")
		}
		lock(t, b.Mutex("k"))
		if !isClosed(l.Lost()) {
			t.Error("the key was taken while Lost was open")
		}
		if since := holders(t, memory, "k")[0].Since; since.Before(until) || since.Sub(until) > 50*time.Millisecond {
			t.Errorf("the key was taken at %v, want at the end %v", since, until)
		}
	})
}

// Promise 1 for leases: Lost closes at least the grace before anyone else acquires the key. This is true whether the
// process learned of the grant from a notice, a repeated request or a late reply.
func TestLeaseLostBeforeTaken(t *testing.T) {
	draws := testkit.Draw(t)
	for i := range trials() {
		bubble(t, func(t *testing.T) {
			const d = 4 * time.Second
			r := rand.New(rand.NewPCG(uint64(i), 0))
			memory := dsynctest.NewMemory()
			slow := newFaulty(t, memory, func(q dsynctest.Request) dsynctest.Fault {
				f := dsynctest.Fault{Delay: draws.Below(200 * time.Millisecond), ReplyDelay: draws.Below(1500 * time.Millisecond)}
				f.LoseReply = q.Method == dsynctest.MethodAcquire && draws.IntN(2) == 0
				return f
			})
			a, b, c := newSession(t, slow, nil), newSession(t, memory, nil), newSession(t, memory, nil)
			first := c.Mutex("k")
			lock(t, first)
			time.AfterFunc(time.Duration(r.Int64N(int64(time.Second))), first.Unlock)
			l, err := a.Mutex("k").Lease(background, d)
			noErr(t, err)
			var lost time.Time
			notified := make(chan struct{})
			go func() {
				<-l.Lost()
				lost = time.Now()
				close(notified)
			}()
			if r.IntN(2) == 0 {
				go l.Extend(background)
			}
			mu := b.Mutex("k")
			lock(t, mu)
			synctest.Wait()
			if !isClosed(notified) {
				t.Fatalf("trial %d: taken while Lost was open", i)
			}
			if gap := time.Since(lost); gap < d/10 {
				t.Errorf("trial %d: taken %v after Lost closed, want at least %v", i, gap, d/10)
			}
			mu.Unlock()
		})
	}
}

func TestLeaseArguments(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := newSession(t, dsynctest.NewMemory(), nil)
		refuses := func(s *dsync.Session, all ...time.Duration) {
			t.Helper()
			for _, d := range all {
				if _, err := s.Mutex("k").Lease(background, d); err == nil {
					t.Errorf("Lease accepted %v", d)
				}
				if _, err := s.Mutex("k").TryLease(background, d); err == nil {
					t.Errorf("TryLease accepted %v", d)
				}
			}
		}
		refuses(s, 0, -1, time.Second-time.Millisecond, time.Minute+time.Microsecond, driver.MaxDuration+time.Millisecond)
		set := newSession(t, dsynctest.NewMemory(), &dsync.Options{Margin: time.Second, Grace: 2 * time.Second})
		refuses(set, time.Second, 6*time.Second)
		if _, err := set.Mutex("k").Lease(background, 6001*time.Millisecond); err != nil {
			t.Error(err)
		}
	})
}

// A lease may be as short as a second. Its margin is a tenth of its length or the session's margin, whichever is
// shorter; the same applies to its grace.
func TestShortLeases(t *testing.T) {
	for d, want := range map[time.Duration]time.Duration{
		time.Second:      time.Second - time.Millisecond - 2*100*time.Millisecond,
		7 * time.Second:  7*time.Second - 7*time.Millisecond - margin - 700*time.Millisecond,
		20 * time.Second: 20*time.Second - 20*time.Millisecond - margin - grace,
	} {
		inBubble(t, d.String(), func(t *testing.T) {
			store := dsynctest.NewMemory()
			a, b := newSession(t, store, nil), newSession(t, store, nil)
			l, err := a.Mutex("k").Lease(background, d)
			noErr(t, err)
			start := time.Now()
			go func() {
				mu := b.Mutex("k")
				lock(t, mu)
				if took := time.Since(start); took < d || took > d+d/100+50*time.Millisecond {
					t.Errorf("the key was taken after %v, want right after the end of the lease", took)
				}
				mu.Unlock()
			}()
			<-l.Lost()
			if took := time.Since(start); took != want {
				t.Errorf("over for its holder after %v, want %v", took, want)
			}
			// The next lease in this process need not wait for the session's grace.
			l, err = a.Mutex("k").Lease(background, d)
			noErr(t, err)
			if took := time.Since(start); took > d+d/10 {
				t.Errorf("leased again in this process after %v", took)
			}
			l.Release(background)
		})
	}
}

// Close ends a lease for its holder. Unless the lease was released before Close, the key stays held until the lease
// ends, as it does after a crash.
func TestCloseKeepsLeases(t *testing.T) {
	bubble(t, func(t *testing.T) {
		store := dsynctest.NewMemory()
		s, other := newSession(t, store, nil), newSession(t, store, nil)
		l, err := s.Mutex("k").Lease(background, 2*time.Minute)
		noErr(t, err)
		start := time.Now()
		noErr(t, s.Close(background))
		if !isClosed(l.Lost()) {
			t.Error("Lost is open after Close")
		}
		if took := time.Since(start); took != 0 {
			t.Errorf("Close took %v, want no time", took)
		}
		wantErr(t, "Release", l.Release(background), dsync.ErrLost)
		mu := other.Mutex("k")
		lock(t, mu)
		if d := time.Since(start); d < 2*time.Minute || d > 2*time.Minute+time.Second {
			t.Errorf("the key was free %v after Close, want two minutes", d)
		}
	})
}

// After a lease's Lost has closed, its grace is still running. Break and ForceHold in the same session, and Break in
// another session, all wait for the grace. The key is free little more than a margin after the end of the grace.
func TestLapsedLeaseHasItsGrace(t *testing.T) {
	for _, who := range []string{"own ForceHold", "own Break", "another's Break"} {
		inBubble(t, who, func(t *testing.T) {
			store := dsynctest.NewMemory()
			opt := &dsync.Options{AlwaysListen: true}
			s, other := newSession(t, store, opt), newSession(t, store, opt)
			lock(t, other.Mutex("another"))
			l, err := s.Mutex("k").Lease(background, 20*time.Second)
			noErr(t, err)
			<-l.Lost()
			lost := time.Now()
			time.Sleep(grace / 4)
			switch who {
			case "own ForceHold":
				err = errOf(s.Mutex("k").ForceHold(background))
			case "own Break":
				err = admin.New(s).Break(background, "k")
			default:
				err = admin.New(other).Break(background, "k")
			}
			noErr(t, err)
			if d := time.Since(lost); d < grace {
				t.Errorf("the key was taken %v after Lost closed, want at least the grace of %v", d, grace)
			} else if d > margin+grace+time.Second {
				t.Errorf("the key was taken %v after Lost closed, want little more than margin and grace", d)
			}
		})
	}
}

// A second Release of a lease does nothing. In particular, it does not wait for the reply to the first Release.
func TestSecondReleaseOfALeaseDoesNotWait(t *testing.T) {
	bubble(t, func(t *testing.T) {
		store := newFaulty(t, dsynctest.NewMemory(), func(r dsynctest.Request) dsynctest.Fault {
			if r.Method == dsynctest.MethodRelease {
				return dsynctest.Fault{ReplyDelay: ttl / 10}
			}
			return dsynctest.Fault{}
		})
		l, err := newSession(t, store, nil).Mutex("k").Lease(background, 20*time.Second)
		noErr(t, err)
		first := make(chan error, 1)
		go func() { first <- l.Release(background) }()
		synctest.Wait()
		began := time.Now()
		if err := l.Release(background); err != nil || time.Since(began) != 0 {
			t.Errorf("the second Release returned %v after %v, want nil at once", err, time.Since(began))
		}
		if err := <-first; err != nil || time.Since(began) != ttl/10 {
			t.Errorf("the first Release returned %v after %v, want nil after %v", err, time.Since(began), ttl/10)
		}
	})
}

// After an Extend, as after an Acquire, the deadline counts from the time at which the request was sent.
func TestExtendCountsFromTheSend(t *testing.T) {
	bubble(t, func(t *testing.T) {
		f := newFaulty(t, dsynctest.NewMemory(), func(r dsynctest.Request) dsynctest.Fault {
			if r.Method == dsynctest.MethodExtend {
				return dsynctest.Fault{ReplyDelay: time.Second}
			}
			return dsynctest.Fault{}
		})
		l, err := newSession(t, f, nil).Mutex("k").Lease(background, ttl)
		noErr(t, err)
		time.Sleep(ttl / 4)
		sent := time.Now()
		if _, err := l.Extend(background); err != nil {
			t.Fatal(err)
		}
		<-l.Lost()
		if d := time.Since(sent); d != lease {
			t.Errorf("the hold was lost %v after the Extend was sent, want %v", d, lease)
		}
		l.Release(background)
	})
}

// The end of a lease is not computed from the time of a repeated request, because the reply may report the grant of an
// earlier request.
func TestLeaseIsNotDatedByARepeatedRequest(t *testing.T) {
	bubble(t, func(t *testing.T) {
		asked := 0
		f := newFaulty(t, dsynctest.NewMemory(), func(r dsynctest.Request) dsynctest.Fault {
			if r.Method != dsynctest.MethodAcquire {
				return dsynctest.Fault{}
			}
			asked++
			return dsynctest.Fault{LoseReply: asked == 1}
		})
		l, err := newSession(t, f, nil).Mutex("k").Lease(background, ttl)
		noErr(t, err)
		<-l.Lost()
		if d := time.Until(l.Until()); asked != 2 || d < margin+grace {
			t.Errorf("after %d attempts: lost %v before its end, want at least a margin and a grace", asked, d)
		}
		l.Release(background)
	})
}
