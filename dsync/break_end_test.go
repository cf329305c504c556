package dsync_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/leasehold-go/leasehold/dsync"
	"github.com/leasehold-go/leasehold/dsync/admin"
	"github.com/leasehold-go/leasehold/dsync/dsynctest"
)

// Break and ForceHold end a hold with a fixed end (ReleaseAfter or a lease) early if the session that acquired it is
// alive and reachable. Otherwise the hold lasts until its fixed end.
func TestBreakOfAHoldWithAnEnd(t *testing.T) {
	const d = 90 * time.Second
	for _, test := range []struct {
		name  string
		hold  func(t *testing.T, s *dsync.Session)
		after func(s *dsync.Session, f *dsynctest.Faulty) // runs a second after the hold has begun
		want  time.Duration                               // since the hold began
	}{
		{"released after, live", releaseAfter(d), func(*dsync.Session, *dsynctest.Faulty) {}, time.Second},
		{"released after, closed", releaseAfter(d), func(s *dsync.Session, _ *dsynctest.Faulty) { s.Close(background) }, d},
		{"released after, cut off", releaseAfter(d), func(_ *dsync.Session, f *dsynctest.Faulty) { f.Cut() }, d},
		{"released after, session lost since", releaseAfter(d), func(_ *dsync.Session, f *dsynctest.Faulty) {
			f.Cut()
			time.Sleep(2 * ttl)
			f.Heal()
		}, d},
		{"lease, live", holdLease(d), func(*dsync.Session, *dsynctest.Faulty) {}, time.Second + grace},
		{"lease, cut off", holdLease(d), func(_ *dsync.Session, f *dsynctest.Faulty) { f.Cut() }, d},
		{"lease, cut off and lapsed", holdLease(d), func(_ *dsync.Session, f *dsynctest.Faulty) {
			f.Cut()
			time.Sleep(2 * ttl)
		}, d},
		{"lease, over", holdLease(d), func(_ *dsync.Session, f *dsynctest.Faulty) { f.Cut(); time.Sleep(d) }, d + time.Second},
	} {
		for _, force := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, force %t", test.name, force), func(t *testing.T) {
				bubble(t, func(t *testing.T) {
					store := dsynctest.NewMemory()
					faulty := newFaulty(t, store, nil)
					a, b := newSession(t, faulty, &dsync.Options{AlwaysListen: true}), newSession(t, store, nil)
					test.hold(t, a)
					began := time.Now()
					time.Sleep(time.Second)
					test.after(a, faulty)
					next := b.Mutex("k").ForceHold
					if !force {
						if err := admin.New(b).Break(background, "k"); err != nil {
							t.Fatal(err)
						}
						next = b.Mutex("k").TryHold
					}
					h := take(t, next)
					if got := time.Since(began); got < test.want || got > test.want+30*time.Millisecond {
						t.Errorf("the key was free after %v, want after %v", got, test.want)
					}
					h.Release(background)
				})
			})
		}
	}
}

func releaseAfter(d time.Duration) func(*testing.T, *dsync.Session) {
	return func(t *testing.T, s *dsync.Session) {
		h := take(t, s.Mutex("k").Hold)
		if err := h.ReleaseAfter(background, d); err != nil {
			t.Fatal(err)
		}
	}
}

func holdLease(d time.Duration) func(*testing.T, *dsync.Session) {
	return func(t *testing.T, s *dsync.Session) {
		if _, err := s.Mutex("k").Lease(background, d); err != nil {
			t.Fatal(err)
		}
	}
}

// After a Break, ReleaseAfter does not keep the key, and a run of a Once does not seal its key.
func TestBrokenHoldLeavesNoEndAndNoSeal(t *testing.T) {
	bubble(t, func(t *testing.T) {
		store := dsynctest.NewMemory()
		a, b := newSession(t, store, &dsync.Options{AlwaysListen: true}), newSession(t, store, nil)
		h := take(t, a.Mutex("k").Hold)
		broken := breakKey(b)
		<-h.Lost()
		wantErr(t, "ReleaseAfter", h.ReleaseAfter(background, time.Hour), dsync.ErrLost, dsync.ErrRevoked)
		if e := <-broken; e.err != nil || time.Since(e.at) > 0 || len(holders(t, store, "k")) != 0 {
			t.Errorf("Break: %v; holders %v; want nil, and a free key", e.err, holders(t, store, "k"))
		}

		o := a.Once("o")
		err := o.Do(background, func(ctx context.Context) error {
			go admin.New(b).Break(background, "o")
			<-ctx.Done()
			wantErr(t, "cause", context.Cause(ctx), dsync.ErrLost, dsync.ErrRevoked)
			return nil
		})
		wantErr(t, "Do", err, dsync.ErrLost, dsync.ErrRevoked)
		if st, err := admin.New(b).Status(background, "o"); err != nil || st.Sealed || st.Held() {
			t.Errorf("a run that did not count has left the key sealed or held, or Status failed:\n%s", st)
		}
	})
}

// A revocation takes effect even if it arrives while the Release of ReleaseAfter is under way.
func TestBreakDuringReleaseAfter(t *testing.T) {
	for _, delay := range []time.Duration{0, 400 * time.Millisecond} {
		t.Run(fmt.Sprint("request under way for ", delay), func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				store := dsynctest.NewMemory()
				faulty := newFaulty(t, store, func(r dsynctest.Request) dsynctest.Fault {
					if r.Method == dsynctest.MethodRelease {
						return dsynctest.Fault{Delay: delay, ReplyDelay: 500*time.Millisecond - delay}
					}
					return dsynctest.Fault{}
				})
				a, b := newSession(t, faulty, &dsync.Options{AlwaysListen: true}), newSession(t, store, nil)
				h := take(t, a.Mutex("k").Hold)
				unlocked := async(func() error { return h.ReleaseAfter(background, time.Hour) })
				time.Sleep(100 * time.Millisecond)
				ctx, cancel := context.WithTimeout(background, ttl)
				defer cancel()
				if err := admin.New(b).Break(ctx, "k"); err != nil {
					t.Errorf("Break: %v", err)
				}
				if e := <-unlocked; e.err != nil {
					t.Errorf("ReleaseAfter: %v", e.err)
				}
				time.Sleep(ttl)
				if n := revocations(t, store, a.ID()); n != 0 {
					t.Errorf("%d revocations are left", n)
				}
			})
		})
	}
}

// B29: even if Close's ctx has ended, the holder keeps the rest of its grace. It does not matter whether its key is
// broken before, during or after the Close.
func TestBreakDuringCloseLeavesTheGrace(t *testing.T) {
	for _, at := range []time.Duration{-100, -41, -19, -10, -3, -1, 0, 1, 5, 10, 15, 20, 25, 30, 40, 50, 60, 100} {
		for _, step := range []time.Duration{1, 7, 20} { // how long a request takes
			at, step := at*time.Millisecond, step*time.Millisecond
			t.Run(fmt.Sprintf("%v after, requests take %v", at, step), func(t *testing.T) {
				bubble(t, func(t *testing.T) {
					store := dsynctest.NewMemory()
					slow := func(dsynctest.Request) dsynctest.Fault {
						return dsynctest.Fault{Delay: step / 2, ReplyDelay: step / 2}
					}
					a := newSession(t, newFaulty(t, store, slow), &dsync.Options{AlwaysListen: true})
					b := newSession(t, newFaulty(t, store, slow), nil)
					lock(t, b.Mutex("warm"))
					mu := a.Mutex("k")
					lock(t, mu)
					lost := closedAt(mu.Lost())
					time.Sleep(ttl)
					closed := make(chan ended, 1)
					time.AfterFunc(200*time.Millisecond, func() {
						ctx, cancel := context.WithCancel(background)
						cancel()
						err := a.Close(ctx)
						closed <- ended{err, time.Now()}
					})
					time.Sleep(200*time.Millisecond + at)
					next := take(t, b.Mutex("k").ForceHold)
					if d := time.Since(<-lost); d < grace {
						t.Errorf("the key was taken %v after Lost closed, want at least the grace of %v", d, grace)
					}
					<-closed
					next.Release(background)
				})
			})
		}
	}
}

// Break removes the claims of expired sessions. While the holders of a session that has just closed still have their
// grace, Break does not remove that session's claims.
func TestBreakDuringCloseTakesNothingInItsGrace(t *testing.T) {
	for ms := range time.Duration(60) {
		bubble(t, func(t *testing.T) {
			store := dsynctest.NewMemory()
			slow := func(dsynctest.Request) dsynctest.Fault {
				return dsynctest.Fault{Delay: 5 * time.Millisecond, ReplyDelay: 5 * time.Millisecond}
			}
			a := newSession(t, newFaulty(t, store, slow), nil)
			b := newSession(t, newFaulty(t, store, slow), nil)
			lock(t, b.Mutex("warm"))
			mu := a.Mutex("k")
			lock(t, mu)
			lost := closedAt(mu.Lost())
			broken := breakKey(b)
			time.Sleep(ms * time.Millisecond)
			ctx, cancel := context.WithCancel(background)
			cancel()
			a.Close(ctx)
			e := <-broken
			if e.err != nil {
				t.Fatal(e.err)
			}
			if d := e.at.Sub(<-lost); d < grace {
				t.Errorf("Close %dms after Break began: free %v after Lost closed, want at least the grace of %v", ms, d, grace)
			}
		})
	}
}

// If a lease has outlived its session, a Break by the process that has the lease still notifies the holder at once.
func TestBreakOfALeaseOfThePreviousSession(t *testing.T) {
	bubble(t, func(t *testing.T) {
		store := dsynctest.NewMemory()
		faulty := newFaulty(t, store, nil)
		s := newSession(t, faulty, nil)
		l, err := s.Mutex("k").Lease(background, time.Hour)
		if err != nil {
			t.Fatal(err)
		}
		faulty.Cut()
		time.Sleep(2 * ttl)
		faulty.Heal()
		lock(t, s.Mutex("other"))
		if isClosed(l.Lost()) {
			t.Fatal("the lease ended with the session")
		}
		began := time.Now()
		if err := admin.New(s).Break(background, "k"); err != nil || time.Since(began) != grace || !isClosed(l.Lost()) {
			t.Errorf("Break: %v after %v, want nil after the grace, with Lost closed", err, time.Since(began))
		}
	})
}
