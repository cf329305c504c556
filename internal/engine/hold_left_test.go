package engine_test

import (
	"errors"
	"sync/atomic"
	"testing"
	"time"

	"github.com/leasehold-go/leasehold/dsync/driver"
	"github.com/leasehold-go/leasehold/dsync/dsynctest"
	"github.com/leasehold-go/leasehold/internal/engine"
)

// Left returns the time until the hold ends. Left decreases while no heartbeat is acknowledged, and is zero once the
// hold has ended for any reason.
func TestHoldLeftIsTheTimeToItsEnd(t *testing.T) {
	for _, c := range []struct {
		name string
		end  func(*engine.Hold)
	}{
		{"lost", func(h *engine.Hold) { <-h.Lost() }},
		{"voluntary", func(h *engine.Hold) { h.WindDown(errors.New("enough")) }},
		{"released", func(h *engine.Hold) { h.Release(background) }},
	} {
		inBubble(t, c.name, func(t *testing.T) {
			var cut atomic.Bool
			f := newFaulty(t, dsynctest.NewMemory(), func(r dsynctest.Request) dsynctest.Fault {
				return dsynctest.Fault{LoseRequest: cut.Load() && r.Method == dsynctest.MethodHeartbeat}
			})
			h, err := engine.Of(newSession(t, f, nil)).Hold(background, engine.Whole("k", driver.KindMutex))
			noErr(t, err)
			if got := h.Left(); got != lease {
				t.Errorf("%v left of a new hold, want %v", got, lease)
			}
			time.Sleep(3 * ttl)
			if got, least := h.Left(), lease-ttl/2; got < least || got > lease {
				t.Errorf("%v left while heartbeats are answered, want %v to %v", got, least, lease)
			}

			cut.Store(true)
			begin, left := time.Now(), h.Left()
			time.Sleep(left / 2)
			if got := h.Left(); got != left-left/2 {
				t.Errorf("%v left after half of %v", got, left)
			}
			c.end(h)
			if c.name == "lost" && time.Since(begin) != left {
				t.Errorf("the hold was lost after %v, want %v", time.Since(begin), left)
			}
			if got := h.Left(); got != 0 {
				t.Errorf("%v left of a hold that is over", got)
			}
			h.Release(background)
		})
	}
}

// If a process was frozen past the deadline, even the first call of Left afterwards returns 0.
func TestHoldLeftAfterFreeze(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := newSession(t, dsynctest.NewMemory(), nil)
		h, err := engine.Of(s).Hold(background, engine.Whole("k", driver.KindMutex))
		noErr(t, err)
		engine.Of(s).Freeze(lease)
		if got := h.Left(); got != 0 {
			t.Errorf("%v left after the deadline, want 0", got)
		}
		if !isClosed(h.Lost()) {
			t.Error("Lost is open although Left returned 0")
		}
		h.Release(background)
	})
}
