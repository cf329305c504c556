package main

import (
	"context"
	"os"
	"testing"
	"time"
)

// CPU time used by the warm-ups is not counted.
func TestMetered(t *testing.T) {
	for _, tt := range []struct {
		busy        []time.Duration // the CPU time of each call
		least, most time.Duration   // of the last two
	}{
		{[]time.Duration{0, 50 * time.Millisecond, 50 * time.Millisecond}, 60 * time.Millisecond, time.Hour},
		{[]time.Duration{500 * time.Millisecond, 0, 0}, 0, 200 * time.Millisecond},
	} {
		m := metered{pid: os.Getpid()}
		for _, busy := range tt.busy {
			m.op = func(context.Context) (time.Duration, error) {
				before, err := cpuOf(os.Getpid())
				for after := before; err == nil && after < before+busy; {
					after, err = cpuOf(os.Getpid())
				}
				return time.Second, err
			}
			if took, err := m.do(t.Context()); took != time.Second || err != nil {
				t.Fatalf("got %v, %v, want the result of the metered op", took, err)
			}
		}
		if got := total(m.last(2)); got < tt.least || got > tt.most {
			t.Errorf("busy for %v: last(2) totals %v, want %v to %v", tt.busy, got, tt.least, tt.most)
		}
	}
}
