package integration_test

import (
	"sync/atomic"
	"testing"
	"time"
)

// A pulse notes how late this process gets a processor. What nobody can be told in time
// because the machine let the process stand is no fault of what is tested: it is as
// frozen, of which no promise speaks.
type pulse struct {
	late atomic.Int64
	end  chan struct{}
}

func newPulse(t testing.TB) *pulse {
	p := &pulse{end: make(chan struct{})}
	done := make(chan struct{})
	go func() {
		defer close(done)
		const beat = 2 * time.Millisecond
		for {
			begin := time.Now()
			select {
			case <-time.After(beat):
			case <-p.end:
				return
			}
			p.late.Store(max(p.late.Load(), int64(time.Since(begin)-beat)))
		}
	}()
	t.Cleanup(func() {
		close(p.end)
		<-done
	})
	return p
}

// worst returns the longest that the process stood since it was asked last.
func (p *pulse) worst() time.Duration { return time.Duration(p.late.Swap(0)) }

// atLeast fails the test if what came so long after a holder was told came before the
// grace was over, but for the time that the process stood since worst was called. It
// returns the gap; if it is too short by that alone, the grace.
func (p *pulse) atLeast(t testing.TB, what string, gap, grace time.Duration) time.Duration {
	t.Helper()
	stood := p.worst()
	switch {
	case gap >= grace:
		return gap
	case gap+stood < grace:
		t.Errorf("%s %v after the holder was told, want the grace of %v; the process stood still for %v", what, gap, grace, stood)
	default:
		t.Logf("%s %v after the holder was told: the process stood still for %v", what, gap, stood)
	}
	return grace
}
