package bench_test

import (
	"testing"

	"github.com/leasehold-go/leasehold/bench/internal/measure"
)

// BenchmarkCrowd is a release of a key for which 1,000 sessions are in the queue: the median
// of the time until the next has it, and all commands that anybody sends for it. It
// has no heartbeats and no polls in it.
func BenchmarkCrowd(b *testing.B) {
	onEach(b, func(b *testing.B, to *measure.Target) {
		const sessions = 1000
		var (
			crowd  *measure.Crowd
			offs   measure.Sample
			before int
			sent   int
		)
		for b.Loop() {
			if crowd == nil || crowd.Left() == 0 {
				b.StopTimer()
				if crowd != nil {
					sent += to.Commands() - before
					crowd.Close()
				}
				var err error
				if crowd, err = measure.NewCrowd(b.Context(), to.Counted(), sessions); err != nil {
					b.Fatal(err)
				}
				before = to.Commands()
				b.StartTimer()
			}
			offs = append(offs, do(b, crowd.Release))
		}
		sent += to.Commands() - before
		crowd.Close()
		median(b, offs)
		b.ReportMetric(float64(sent)/float64(b.N), "commands/op")
	})
}
