package dsync_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/leasehold-go/leasehold/dsync"
	"github.com/leasehold-go/leasehold/dsync/admin"
	"github.com/leasehold-go/leasehold/dsync/dsynctest"
)

// Break keeps trying if its own session is lost or the store is unreachable.
func TestBreakOutlivesItsSession(t *testing.T) {
	for _, mine := range []bool{false, true} {
		inBubble(t, fmt.Sprint("of its own hold ", mine), func(t *testing.T) {
			store := dsynctest.NewMemory()
			faulty, other := newFaulty(t, store, nil), newFaulty(t, store, nil)
			b := newSession(t, faulty, nil)
			holder := b
			if !mine {
				holder = newSession(t, other, nil)
			}
			mu := holder.Mutex("k")
			lock(t, mu)
			lock(t, b.Mutex("warm"))
			id := b.ID()
			if !mine {
				other.Cut()
				time.Sleep(ttl / 2)
			}
			faulty.Cut()
			ctx, cancel := context.WithTimeout(background, 10*ttl)
			defer cancel()
			broken := async(func() error { return admin.New(b).Break(ctx, "k") })
			time.Sleep(2 * ttl)
			if len(broken) > 0 {
				t.Fatalf("Break returned while the store was unreachable: %v", (<-broken).err)
			}
			faulty.Heal()
			healed := time.Now()
			if e := <-broken; e.err != nil || e.at.Sub(healed) > ttl {
				t.Errorf("Break: %v, %v after the store was back", e.err, e.at.Sub(healed))
			}
			if b.ID() == id || len(holders(t, store, "k")) != 0 || !isClosed(mu.Lost()) {
				t.Errorf("the session is %s and was %s; the key's holders are %v", b.ID(), id, holders(t, store, "k"))
			}
		})
	}
	// Break also keeps trying while it waits for a holder that was notified but does not stop.
	bubble(t, func(t *testing.T) {
		store := dsynctest.NewMemory()
		faulty := newFaulty(t, store, nil)
		a, b := newSession(t, store, &dsync.Options{TTL: 100 * time.Second, Grace: 40 * time.Second}), newSession(t, faulty, &dsync.Options{PollInterval: time.Minute})
		mu := a.Mutex("k")
		lock(t, mu)
		broken := breakKey(b)
		<-mu.Lost()
		id := b.ID()
		began := time.Now()
		faulty.Cut()
		time.Sleep(ttl)
		faulty.Heal()
		e := <-broken
		if d := e.at.Sub(began); e.err != nil || d < 40*time.Second || d > 41*time.Second {
			t.Errorf("Break: %v after %v, want after the grace of 40s", e.err, d)
		}
		if b.ID() == id {
			t.Error("the session was not lost")
		}
	})
}

// Break retries after errors of the store. When ctx ends, Break returns ctx's error with the store's last error.
func TestBreakErrors(t *testing.T) {
	for _, method := range []dsynctest.Method{
		dsynctest.MethodLoad, dsynctest.MethodRevoke, dsynctest.MethodExpire,
	} {
		inBubble(t, string(method), func(t *testing.T) {
			broken := errors.New("the store is broken")
			store := &adminStore{Memory: dsynctest.NewMemory()}
			faulty := newFaulty(t, store, nil)
			a, b := newSession(t, faulty, nil), newSession(t, store, &dsync.Options{PollInterval: time.Hour})
			lock(t, a.Mutex("k"))
			if method == dsynctest.MethodExpire { // it is needed only to break the lock of a process that can't be reached
				faulty.Cut()
			}
			store.fail(method, broken)
			ctx, cancel := context.WithTimeout(background, 2*ttl)
			defer cancel()
			err := admin.New(b).Break(ctx, "k")
			wantErr(t, "Break of a broken store", err, context.DeadlineExceeded, broken)
			if !strings.HasPrefix(err.Error(), `dsync: break "k": `) {
				t.Errorf("Break's error is %q, want the key in it", err)
			}
			e := breakKey(b)
			time.Sleep(ttl)
			if len(e) > 0 {
				t.Errorf("Break returned while the store was broken: %v", (<-e).err)
			}
			store.fail(method, nil)
			if e := <-e; e.err != nil {
				t.Errorf("Break when the store is back: %v", e.err)
			}
		})
	}

	bubble(t, func(t *testing.T) {
		store := dsynctest.NewMemory()
		faulty := newFaulty(t, store, nil)
		a, b := newSession(t, faulty, nil), newSession(t, store, nil)
		lock(t, a.Mutex("k"))
		faulty.Cut()
		cause := errors.New("never mind")
		ctx, cancel := context.WithCancelCause(background)
		time.AfterFunc(time.Second, func() { cancel(cause) })
		wantErr(t, "Break when ctx ends", admin.New(b).Break(ctx, "k"), context.Canceled, cause)
		wantErr(t, "Break of an ended ctx", admin.New(b).Break(ctx, "k"), context.Canceled)
		wantErr(t, "Break of an empty key", admin.New(b).Break(background, ""), dsync.ErrInvalidKey)
		wantErr(t, "Break of a bad key", admin.New(b).Break(background, "a\x00"), dsync.ErrInvalidKey)

		closes := breakKey(b)
		time.Sleep(time.Second)
		go b.Close(background)
		wantErr(t, "Break when the session closes", (<-closes).err, dsync.ErrClosed)
		time.Sleep(time.Second)
		wantErr(t, "Break on a closed session", admin.New(b).Break(background, "k"), dsync.ErrClosed)
		wantErr(t, "ForceHold on a closed session", errOf(b.Mutex("k").ForceHold(background)), dsync.ErrClosed)
	})
}

// A revocation stays in effect after the ctx of Break has ended: the holder still gives up the key.
func TestRevocationStandsAfterBreakTimesOut(t *testing.T) {
	bubble(t, func(t *testing.T) {
		store := dsynctest.NewMemory()
		a, b := newSession(t, store, nil), newSession(t, store, nil)
		mu := a.Mutex("k")
		lock(t, mu)
		ctx, cancel := context.WithTimeout(background, 100*time.Millisecond)
		defer cancel()
		wantErr(t, "Break", admin.New(b).Break(ctx, "k"), context.DeadlineExceeded)
		if isClosed(mu.Lost()) {
			t.Fatal("the holder was notified at once without a listener")
		}
		time.Sleep(ttl/2 + grace)
		if !isClosed(mu.Lost()) || len(holders(t, store, "k")) != 0 {
			t.Error("the holder has not given up the key")
		}
	})
}

// Break of a key without a holder costs a heartbeat or a registration, and one read. It does not matter whether the key
// was released, was never used, or had a hold whose fixed end has come.
func TestBreakOfAFreeKey(t *testing.T) {
	bubble(t, func(t *testing.T) {
		store := dsynctest.NewMemory()
		a, b := newSession(t, store, nil), newSession(t, store, nil)
		turn(a.Mutex("free"))
		if _, err := a.Mutex("over").Lease(background, ttl); err != nil {
			t.Fatal(err)
		}
		time.Sleep(ttl)
		for _, key := range []string{"free", "never used", "over"} {
			before, began := store.Counts(), time.Now()
			if err := admin.New(b).Break(background, key); err != nil {
				t.Errorf("Break of %q: %v", key, err)
			}
			if d := store.Counts().Since(before); time.Since(began) > 0 || d.Total() != 2 || d.Commands[dsynctest.MethodLoad] != 1 {
				t.Errorf("Break of %q took %v and the commands %v", key, time.Since(began), d.Commands)
			}
		}
	})
}

// Promise 7 limits the cost of a Break. The holder sends only its heartbeats, the release, and a notice that tells the
// caller of Break of the release.
func TestBreakCost(t *testing.T) {
	for _, listen := range []bool{false, true} {
		inBubble(t, fmt.Sprint("holder listens ", listen), func(t *testing.T) {
			store := dsynctest.NewMemory()
			var begun atomic.Bool
			var sent []dsynctest.Method // by the holder, once begun is set
			spied := newFaulty(t, store, func(r dsynctest.Request) dsynctest.Fault {
				if begun.Load() && r.Method != dsynctest.MethodHeartbeat && r.Method != dsynctest.MethodNotice {
					sent = append(sent, r.Method)
				}
				return dsynctest.Fault{}
			})
			opt := &dsync.Options{}
			opt.AlwaysListen = listen
			a, b := newSession(t, spied, opt), newSession(t, store, nil)
			lock(t, b.Mutex("warm"))
			mu := a.Mutex("k")
			lock(t, mu)
			time.Sleep(ttl / 2)
			begun.Store(true)
			before := store.Counts()
			noErr(t, admin.New(b).Break(background, "k"))
			mu.Unlock()
			d := store.Counts().Since(before)
			time.Sleep(3 * ttl)
			synctest.Wait()
			if want := []dsynctest.Method{dsynctest.MethodRelease, dsynctest.MethodNotify}; !slices.Equal(sent, want) {
				t.Errorf("the holder sent %v, want %v", sent, want)
			}
			delete(d.Commands, dsynctest.MethodHeartbeat)
			delete(d.Commands, dsynctest.MethodOwn)
			want := map[dsynctest.Method]int{
				dsynctest.MethodLoad: 4, dsynctest.MethodRevoke: 1, dsynctest.MethodMembers: 1,
				dsynctest.MethodNotify: 2, dsynctest.MethodListen: 1, dsynctest.MethodRelease: 1,
			}
			for m, n := range d.Commands {
				if n > want[m] {
					t.Errorf("%d %ss, want at most %d", n, m, want[m])
				}
			}
		})
	}
}

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
			inBubble(t, fmt.Sprintf("%s, force %t", test.name, force), func(t *testing.T) {
				store := dsynctest.NewMemory()
				faulty := newFaulty(t, store, nil)
				a, b := newSession(t, faulty, &dsync.Options{AlwaysListen: true}), newSession(t, store, nil)
				test.hold(t, a)
				began := time.Now()
				time.Sleep(time.Second)
				test.after(a, faulty)
				next := b.Mutex("k").ForceHold
				if !force {
					noErr(t, admin.New(b).Break(background, "k"))
					next = b.Mutex("k").TryHold
				}
				h := take(t, next)
				if got := time.Since(began); got < test.want || got > test.want+30*time.Millisecond {
					t.Errorf("the key was free after %v, want after %v", got, test.want)
				}
				h.Release(background)
			})
		}
	}
}

func releaseAfter(d time.Duration) func(*testing.T, *dsync.Session) {
	return func(t *testing.T, s *dsync.Session) {
		h := take(t, s.Mutex("k").Hold)
		noErr(t, h.ReleaseAfter(background, d))
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
		inBubble(t, fmt.Sprint("request under way for ", delay), func(t *testing.T) {
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
	}
}

// B29: even if Close's ctx has ended, the holder keeps the rest of its grace. It does not matter whether its key is
// broken before, during or after the Close.
func TestBreakDuringCloseLeavesTheGrace(t *testing.T) {
	for _, at := range []time.Duration{-100, -41, -19, -10, -3, -1, 0, 1, 5, 10, 15, 20, 25, 30, 40, 50, 60, 100} {
		for _, step := range []time.Duration{1, 7, 20} { // how long a request takes
			at, step := at*time.Millisecond, step*time.Millisecond
			inBubble(t, fmt.Sprintf("%v after, requests take %v", at, step), func(t *testing.T) {
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
		noErr(t, err)
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
