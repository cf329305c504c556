package bench_test

import (
	"runtime/debug"
	"slices"
	"testing"

	"github.com/leasehold-go/leasehold/bench/internal/measure"
)

// memory lists how much memory a held lock and a waiter may take, stacks included.
var memory = []struct {
	name, unit string
	most       float64
	each       func(n int) (float64, error) // measures n of them; returns bytes each
}{
	{"held lock", "B/lock", 2048, measure.HeldMemory},
	{"waiter of one key", "B/waiter", 6144, func(n int) (float64, error) {
		return measure.WaiterMemory(n, measure.OneKey)
	}},
	{"waiter of a key of its own", "B/waiter", 6144, func(n int) (float64, error) {
		return measure.WaiterMemory(n, measure.OwnKeys)
	}},
}

// On average, held locks and waiters take no more memory than promised.
func TestMemory(t *testing.T) {
	build, _ := debug.ReadBuildInfo()
	if slices.Contains(build.Settings, debug.BuildSetting{Key: "-race", Value: "true"}) {
		t.Skip("code for the race detector needs larger stacks")
	}
	for _, m := range memory {
		t.Run(m.name, func(t *testing.T) {
			got, err := m.each(2000)
			if err != nil {
				t.Fatal(err)
			}
			t.Logf("%.0f bytes", got)
			if got > m.most {
				t.Errorf("each takes %.0f bytes, want at most %.0f", got, m.most)
			}
		})
	}
}

// BenchmarkMemory reports how much memory held locks and waiters take on average.
func BenchmarkMemory(b *testing.B) {
	for _, m := range memory {
		b.Run(m.name, func(b *testing.B) {
			for b.Loop() {
				each, err := m.each(10_000)
				if err != nil {
					b.Fatal(err)
				}
				b.ReportMetric(each, m.unit)
			}
		})
	}
}
