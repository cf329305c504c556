package core_test

import (
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/leasehold-go/leasehold/dsync/driver"
	"github.com/leasehold-go/leasehold/internal/core"
)

// Lapses returns a time only as long as that time is in the future.
func TestLapses(t *testing.T) {
	r := newRig(t)
	r.waitingHere()
	if got, want := r.c.Lapses("o"), r.clock().Add(5*time.Second); !got.Equal(want) {
		t.Errorf("the session lapses at %v, want %v", got, want)
	}
	r.pass(5 * time.Second)
	if got := r.c.Lapses("o"); !got.IsZero() {
		t.Errorf("the session lapses at %v, which has passed", got)
	}
}

// If an older Extend is answered after a later one, the end that the hold shows stays.
func TestOlderExtendShowsNoEarlierEnd(t *testing.T) {
	r := newRig(t)
	r.leased()
	older := r.extending()
	r.extending()
	until := r.clock().Add(6 * time.Second)
	r.extended(until)
	r.extendedBy(older, until.Add(-time.Second))
	r.c.Claims(func(h core.Held) {
		if !h.Until.Equal(until) {
			t.Errorf("the hold ends at %v, want %v", h.Until, until)
		}
	})
}

// A lost hold does not end with the session, which is lost already.
func TestLives(t *testing.T) {
	r := newRig(t)
	r.held()
	if !r.c.Lives() {
		t.Error("the hold does not end with the session")
	}
	r.deadline()
	if r.c.Lives() {
		t.Error("the lost hold ends with the session")
	}
}

// A Core knows why the last command had no answer, until a command has one.
func TestFailure(t *testing.T) {
	r := newRig(t)
	r.joining()
	r.answer("Acquire", noAnswer)
	if r.c.Failure() == nil {
		t.Error("no failure, although the request had no answer")
	}
	r.pass(time.Second)
	r.answer("Acquire", r.granted(5000))
	if err := r.c.Failure(); err != nil {
		t.Errorf("failure %v, although the request was answered", err)
	}
}

// Refused shows the alphabetically first key that the store refuses to release.
func TestRefused(t *testing.T) {
	r := newRig(t)
	r.held()
	for n := range uint64(2) {
		r.acquire(2+n, func(w *core.Want) { w.Key = "l" + string(rune('b'-n)) })
		r.answer("Acquire", core.Reply{State: driver.State{Holders: []driver.Holder{{Claim: fmt.Sprintf("s.%d", 2+n), Session: "s", Token: 5000}}}})
	}
	for n := range uint64(3) {
		r.step(&core.Done{Claim: 1 + n, Hold: r.calls[1+n]})
		r.answer("Release", core.Reply{Err: driver.ErrRefused})
	}
	if first, n, err := r.c.Refused(); n != 3 || first.Key != "k" || !errors.Is(err, driver.ErrRefused) {
		t.Errorf("%d releases were refused, the first of %v, with %v; want 3, the first of k", n, first, err)
	}
}

// Waits shows callers in the order in which they will be served, beginning with the one that waits in the store.
func TestWaits(t *testing.T) {
	r := newRig(t)
	r.waiting()
	r.acquire(2)
	r.acquire(3)
	var got []string
	r.c.Waits(func(a *core.Call, position, ahead int) {
		got = append(got, fmt.Sprintf("%d: position %d, %d ahead", a.Call, position, ahead))
	})
	if want := []string{"1: position 1, 0 ahead", "2: position 0, 1 ahead", "3: position 0, 2 ahead"}; !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
}
