package integration_test

import (
	"sync/atomic"
	"testing"
	"time"
)

// A stallMeter measures how long the machine keeps this process from running. The library promises
// nothing during such a stall, because a frozen process can't be notified.
type stallMeter struct {
	late atomic.Int64 // the longest stall, in ns
	end  chan struct{}
}

func newStallMeter(t testing.TB) *stallMeter {
	m := &stallMeter{end: make(chan struct{})}
	done := make(chan struct{})
	go func() {
		defer close(done)
		const interval = 2 * time.Millisecond
		for {
			begin := time.Now()
			select {
			case <-time.After(interval):
			case <-m.end:
				return
			}
			m.late.Store(max(m.late.Load(), int64(time.Since(begin)-interval)))
		}
	}()
	t.Cleanup(func() {
		close(m.end)
		<-done
	})
	return m
}

// worst returns the longest stall since the last call.
func (m *stallMeter) worst() time.Duration { return time.Duration(m.late.Swap(0)) }

// atLeast checks gap, the time from a holder's notification to an event. It fails the test if gap
// plus the longest stall since the last call of worst is shorter than the grace. It returns gap or
// the grace, whichever is longer.
func (m *stallMeter) atLeast(t testing.TB, what string, gap, grace time.Duration) time.Duration {
	t.Helper()
	stalled := m.worst()
	switch {
	case gap >= grace:
		return gap
	case gap+stalled < grace:
		t.Errorf("%s %v after the holder was notified, want the grace of %v; the process stalled for %v", what, gap, grace, stalled)
	default:
		t.Logf("%s %v after the holder was notified: the process stalled for %v", what, gap, stalled)
	}
	return grace
}
