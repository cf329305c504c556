package core_test

import (
	"fmt"
	"slices"
	"testing"
	"time"

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
