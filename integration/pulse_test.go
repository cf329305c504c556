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
