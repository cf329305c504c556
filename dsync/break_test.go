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
		t.Run(fmt.Sprint("of its own hold ", mine), func(t *testing.T) {
			bubble(t, func(t *testing.T) {
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
		t.Run(string(method), func(t *testing.T) {
			bubble(t, func(t *testing.T) {
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

// Break of a key without a holder costs one read. It does not matter whether the key was released, was never used, or
// had a hold whose fixed end has come.
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
			if d := store.Counts().Since(before); time.Since(began) > 0 || d.Total() != 1 || d.Writes != 0 {
				t.Errorf("Break of %q took %v and the commands %v", key, time.Since(began), d.Commands)
			}
		}
	})
}

// Promise 7 limits the cost of a Break. The holder sends only its heartbeats, the release, and a notice that tells the
// caller of Break of the release.
func TestBreakCost(t *testing.T) {
	for _, listen := range []bool{false, true} {
		t.Run(fmt.Sprint("holder listens ", listen), func(t *testing.T) {
			bubble(t, func(t *testing.T) {
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
				if err := admin.New(b).Break(background, "k"); err != nil {
					t.Fatal(err)
				}
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
		})
	}
}
