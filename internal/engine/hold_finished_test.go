package engine_test

import (
	"errors"
	"testing"
	"time"

	"github.com/leasehold-go/leasehold/internal/engine"

	"github.com/leasehold-go/leasehold/dsync/driver"
	"github.com/leasehold-go/leasehold/dsync/dsynctest"
)

// Finished is closed when the store has released the key, not when the release is sent.
func TestFinishedAfterTheRelease(t *testing.T) {
	bubble(t, func(t *testing.T) {
		memory := dsynctest.NewMemory()
		f := newFaulty(t, memory, func(r dsynctest.Request) dsynctest.Fault {
			if r.Method == dsynctest.MethodRelease {
				return dsynctest.Fault{Delay: time.Second}
			}
			return dsynctest.Fault{}
		})
		s := newSession(t, f, nil)
		for _, done := range []bool{true, false} { // false: the holder does not stop before its grace is over
			h, err := engine.Of(s).Hold(background, engine.Whole("k", driver.KindElection))
			noErr(t, err)
			h.WindDown(errors.New("voluntary"))
			if done {
				go h.Release(background)
			}
			<-h.Finished()
			if n := len(holders(t, memory, "k")); n > 0 {
				t.Errorf("done %t: Finished is closed, but the store has %d holders", done, n)
			}
			h.Release(background)
		}
	})
}

// Finished is also closed after a loss: when the holder is done, or at the latest when its grace is over.
func TestFinishedAfterALoss(t *testing.T) {
	for _, done := range []bool{true, false} {
		bubble(t, func(t *testing.T) {
			f := newFaulty(t, dsynctest.NewMemory(), nil)
			s := newSession(t, f, nil)
			h, err := engine.Of(s).Hold(background, engine.Whole("k", driver.KindElection))
			noErr(t, err)
			f.Cut()
			<-h.Lost()
			lost := time.Now()
			want := grace
			if done {
				want = 0
				h.Release(background)
			}
			<-h.Finished()
			if d := time.Since(lost); d != want {
				t.Errorf("done %t: Finished closed %v after the loss, want %v", done, d, want)
			}
		})
	}
}
