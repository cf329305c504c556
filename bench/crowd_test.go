package bench_test

import (
	"testing"

	"github.com/leasehold-go/leasehold/bench/internal/measure"
)

// BenchmarkCrowd measures a release while 1,000 sessions use the key: the median time until the
// next session holds it, and the commands that all sessions send meanwhile. Heartbeats and polls
// are switched off.
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
