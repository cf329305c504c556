package engine_test

import (
	"context"
	"testing"
	"time"

	"github.com/leasehold-go/leasehold/dsync/driver"
	"github.com/leasehold-go/leasehold/dsync/dsynctest"
	"github.com/leasehold-go/leasehold/internal/engine"
)

// If a hold has a successor, its release gives the key to the successor, even if a goroutine in the holder's process
// waits for the key and would otherwise get it by a hand-off.
func TestReleaseByIsNotHandedOff(t *testing.T) {
	bubble(t, func(t *testing.T) {
		store := dsynctest.NewMemory()
		a, b := engine.Of(newSession(t, store, nil)), engine.Of(newSession(t, store, nil))
		h, err := a.Hold(background, engine.Whole("k", driver.KindElection))
		noErr(t, err)
		ctx, cancel := context.WithCancel(background)
		defer cancel()
		here, there := make(chan *engine.Hold, 1), make(chan *engine.Hold, 1)
		for s, held := range map[*engine.Session]chan *engine.Hold{a: here, b: there} {
			go func() {
				if h, err := s.Hold(ctx, engine.Whole("k", driver.KindElection)); err == nil {
					held <- h
				}
			}()
		}
		time.Sleep(time.Millisecond) // less than HandOffTime
		st, err := store.Load(background, "k", 1000)
		if err != nil || st.Waiting != 1 {
			t.Fatalf("%d wait (%v), want 1", st.Waiting, err)
		}
		if !h.ReleaseBy(driver.Release{Successor: st.WaitersAhead[0].Claim}) || h.ReleaseBy(driver.Release{Successor: "another.1"}) {
			t.Error("ReleaseBy of a live hold: want true for the first call and false for the second")
		}
		if err := h.Release(background); err != nil {
			t.Errorf("Release: %v", err)
		}
		select {
		case <-there:
		case <-here:
			t.Fatal("the hold was handed off in the process")
		}
		<-h.Finished()
		if err := h.ReleasedBy(); err != nil {
			t.Errorf("ReleasedBy: %v", err)
		}
		if h.ReleaseBy(driver.Release{Successor: "another.1"}) {
			t.Error("ReleaseBy returned true for a hold that is over")
		}
	})
}
