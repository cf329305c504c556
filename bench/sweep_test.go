package bench_test

import (
	"testing"
	"time"

	"github.com/leasehold-go/leasehold/bench/internal/measure"
)

// BenchmarkSweep measures the mean cost of deleting an idle key in a store of 20,000 keys with
// random names, two in nine of them idle. The cost includes checking the keys that stay.
func BenchmarkSweep(b *testing.B) {
	onEach(b, func(b *testing.B, to *measure.Target) {
		if to.DB == nil {
			b.Skip("needs a server: MONGODB_URI")
		}
		var took time.Duration
		var deleted, commands int
		for b.Loop() {
			if err := to.Drop(b.Context()); err != nil {
				b.Fatal(err)
			}
			swept, err := measure.Sweep(b.Context(), to.Counted(), 20_000)
			if err != nil {
				b.Fatal(err)
			}
			took, deleted, commands = took+swept.Total(), deleted+int(swept.Deleted), commands+swept.Commands
		}
		b.ReportMetric(float64(took.Nanoseconds())/float64(deleted), "ns/deletion")
		b.ReportMetric(float64(commands)/float64(deleted), "commands/deletion")
		b.ReportMetric(float64(deleted)/took.Seconds(), "deletions/s")
	})
}
