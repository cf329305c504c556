package admin_test

import (
	"context"
	"errors"
	"os"
	"testing"
	"time"

	"github.com/leasehold-go/leasehold/dsync"
	"github.com/leasehold-go/leasehold/dsync/admin"
	"github.com/leasehold-go/leasehold/dsync/driver"
	"github.com/leasehold-go/leasehold/dsync/dsynctest"
	"github.com/leasehold-go/leasehold/leader"
)

// A forgotten Once runs again, with a greater token, in a process that has not learned its result.
// What remains of its record is swept like the record of an idle lock.
func TestForgetOnce(t *testing.T) {
	bubble(t, func(t *testing.T) {
		store := dsynctest.NewMemory()
		knows, other := newSession(t, store, nil), newSession(t, store, nil)
		var tokens []int64
		run := func(o *dsync.Once) {
			t.Helper()
			if err := o.Do(background, func(ctx context.Context) error {
				tokens = append(tokens, dsync.HoldFrom(ctx).Token())
				return nil
			}); err != nil {
				t.Fatal(err)
			}
		}
		once := knows.Once("k")
		run(once)
		noErr(t, admin.New(other).Forget(background, "k"))
		run(once)
		if len(tokens) != 1 {
			t.Errorf("the Once ran %d times, want no second run by the Once that knows the result", len(tokens))
		}
		run(other.Once("k"))
		if len(tokens) != 2 || tokens[1] <= tokens[0] {
			t.Errorf("the tokens of the runs are %v, want a second run with a greater token", tokens)
		}
		for range 2 { // the second Forget finds keys that are already forgotten or were never used
			for _, key := range []string{"k", "never"} {
				noErr(t, admin.New(other).Forget(background, key))
			}
		}
		sweeper := newSession(t, store, &dsync.Options{Retention: time.Hour})
		lock(t, sweeper.Mutex("busy"))
		time.Sleep(24 * time.Hour)
		for _, key := range store.Records() {
			if key == "k" {
				t.Error("the forgotten key has a record after a day")
			}
		}
	})
}

// The terms of a forgotten election count from 1 again.
func TestForgetElection(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := newSession(t, dsynctest.NewMemory(), nil)
		e, err := leader.New(s, "e", nil)
		noErr(t, err)
		var last leader.Term
		for _, want := range []int64{1, 2, 1} {
			if want < last.Number {
				noErr(t, admin.New(s).Forget(background, "e"))
			}
			ctx, err := e.Campaign(background)
			noErr(t, err)
			term, _ := leader.TermFrom(ctx)
			if term.Number != want || term.Token <= last.Token {
				t.Errorf("the term is %+v after %+v, want number %d and a greater token", term, last, want)
			}
			last = term
			noErr(t, e.Resign(background))
		}
	})
}

// A key that somebody holds or waits for is not forgotten.
func TestForgetKeyInUse(t *testing.T) {
	bubble(t, func(t *testing.T) {
		store := dsynctest.NewMemory()
		holder, other := newSession(t, store, &dsync.Options{Host: "there", Name: "pod-7"}), newSession(t, store, nil)
		mu := holder.Mutex("k")
		lock(t, mu)
		before := store.Counts().Writes
		var held *dsync.HeldError
		bounded, end := context.WithTimeout(background, time.Hour)
		defer end()
		if err := admin.New(other).Forget(bounded, "k"); !errors.As(err, &held) || held.Session != holder.ID() || held.PID != os.Getpid() || held.Host != "there" || held.Name != "pod-7" {
			t.Fatalf("Forget of a held key: %v, want a HeldError that names the holder", err)
		}
		if st, err := admin.New(other).Status(background, "k"); err != nil || held.Until.IsZero() || !held.Until.Equal(st.Holders[0].Until) {
			t.Errorf("Forget says that the key is held until %v, want the same time as in the status: %v, %v", held.Until, st, err)
		}
		if n := store.Counts().Writes - before; n != 0 {
			t.Errorf("Forget of a held key wrote %d times, want 0", n)
		}
		wantErr(t, "Forget of a bad key", admin.New(other).Forget(background, ""), dsync.ErrInvalidKey)
		ctx, cancel := context.WithCancel(background)
		cancel()
		wantErr(t, "Forget with an ended ctx", admin.New(other).Forget(ctx, "k"), context.Canceled)
		mu.Unlock()
		other.Close(background)
		wantErr(t, "Forget after Close", admin.New(other).Forget(background, "k"), dsync.ErrClosed)
	})
}

// A between is a store that calls f once, between Forget's reading of the key and Forget's edit.
type between struct {
	driver.Store
	f func()
}

func (b *between) Edit(ctx context.Context, e driver.Edit) (driver.Edited, error) {
	if e.Forget != nil && b.f != nil {
		f := b.f
		b.f = nil
		f()
	}
	return b.Store.Edit(ctx, e)
}

// If somebody uses the key between Forget's reading and Forget's edit, Forget reads the key once more.
func TestForgetReadsAgain(t *testing.T) {
	for _, stays := range []bool{false, true} {
		bubble(t, func(t *testing.T) {
			store := dsynctest.NewMemory()
			user := newSession(t, store, nil)
			mu := user.Mutex("k")
			turn(mu)
			s := newSession(t, &between{store, func() {
				lock(t, mu)
				if !stays {
					mu.Unlock()
				}
			}}, nil)
			before := store.Counts()
			err := admin.New(s).Forget(background, "k")
			if stays != errors.Is(err, dsync.ErrHeld) || !stays && err != nil {
				t.Errorf("the key is still held: %t; Forget returned %v", stays, err)
			}
			if n := store.Counts().Since(before).Commands[dsynctest.MethodLoad]; n < 2 {
				t.Errorf("Forget read the key %d times, want at least 2", n)
			}
		})
	}
}

// A silent store notes when each Load comes, and does not answer it.
type silent struct {
	driver.Store
	came []time.Time
}

func (s *silent) Load(context.Context, string, int) (driver.State, error) {
	s.came = append(s.came, time.Now())
	return driver.State{}, errors.New("no answer")
}

// If the store does not answer, Forget tries again: soon at first, and then after pauses that grow to a twelfth of the
// TTL.
func TestForgetPausesWithoutAnswers(t *testing.T) {
	bubble(t, func(t *testing.T) {
		store := &silent{Store: dsynctest.NewMemory()}
		s := newSession(t, store, nil)
		ctx, cancel := context.WithTimeout(background, 3*ttl)
		defer cancel()
		wantErr(t, "Forget", admin.New(s).Forget(ctx, "k"), context.DeadlineExceeded)
		n := len(store.came)
		if first := store.came[1].Sub(store.came[0]); first > 20*time.Millisecond {
			t.Errorf("the first pause was %v, want at most 20ms", first)
		}
		if last := store.came[n-1].Sub(store.came[n-2]); last < ttl/24 || last > ttl/12 {
			t.Errorf("after %d attempts the pause was %v, want a 24th to a twelfth of the TTL, %v", n, last, ttl)
		}
	})
}
