package bench_test

import (
	"fmt"
	"sync/atomic"
	"testing"

	"github.com/leasehold-go/leasehold/bench/internal/measure"
	"github.com/leasehold-go/leasehold/dsync"
)

// BenchmarkContended lets 4 processes with 16 goroutines each acquire one key as often as they can:
// once with hand-offs inside the processes, and once with every hold granted by the store. An op is
// one acquisition. "share" is the fewest acquisitions by a process, divided by the most. It is
// meaningful only if the benchmark runs for several seconds: use -benchtime 10s. A token that is
// not greater than the previous one is an error.
func BenchmarkContended(b *testing.B) {
	onEach(b, func(b *testing.B, to *measure.Target) {
		b.Run("handed off", func(b *testing.B) { contend(b, to, dsync.Options{Retention: -1}) })
		b.Run("granted by the store", func(b *testing.B) { contend(b, to, dsync.Options{Retention: -1, HandOffTime: -1}) })
	})
}

func contend(b *testing.B, to *measure.Target, opt dsync.Options) {
	c, err := measure.NewContest(b.Context(), &measure.Mutexes{Target: to.Counted(), Options: opt}, 4, 16)
	if err != nil {
		b.Fatal(err)
	}
	defer c.Close()
	var remaining atomic.Int64
	remaining.Store(int64(b.N))
	report := counted(b, to)
	b.ResetTimer()
	if err := c.Run(b.Context(), func() bool { return remaining.Add(-1) >= 0 }); err != nil {
		b.Fatal(err)
	}
	report()
	b.ReportMetric(c.Rate(), "acquisitions/s")
	b.ReportMetric(c.Share, "share")
}

// BenchmarkHandOff measures the median time from a call of Unlock until the next of 2, 8 or 64
// processes has the key. On a server, hand-offs alternate with raw majority writes and their
// notices, to measure the ratio.
func BenchmarkHandOff(b *testing.B) {
	onEach(b, func(b *testing.B, to *measure.Target) {
		for _, n := range []int{2, 8, 64} {
			b.Run(fmt.Sprint(n), func(b *testing.B) {
				handOff(b, to, &measure.Mutexes{Target: to, Options: dsync.Options{Retention: -1}}, n, "by-write-and-notice",
					func(r *measure.Raw) measure.Op {
						if err := r.Read(b.Context(), to); err != nil {
							b.Fatal(err)
						}
						return r.WriteAndNotice
					})
			})
		}
	})
}

// BenchmarkResign measures the median time from a call of Resign until the other process's Campaign
// returns. On a server, resignations alternate with raw majority writes, to measure the ratio.
func BenchmarkResign(b *testing.B) {
	onEach(b, func(b *testing.B, to *measure.Target) {
		handOff(b, to, &measure.Elections{Target: to, Options: dsync.Options{Retention: -1}}, 2, "by-write",
			func(r *measure.Raw) measure.Op { return r.Write })
	})
}

func handOff(b *testing.B, to *measure.Target, sys measure.System, n int, metric string, unit func(*measure.Raw) measure.Op) {
	ring, err := measure.NewRing(b.Context(), sys, fmt.Sprintf("ring of %d", n), n)
	if err != nil {
		b.Fatal(err)
	}
	defer ring.Close()
	var op measure.Op
	if to.DB != nil {
		op = unit(raw(b, to))
		do(b, op)
	}
	do(b, ring.HandOff)
	var offs, units measure.Sample
	for b.Loop() {
		offs = append(offs, do(b, ring.HandOff))
		if op != nil {
			units = append(units, do(b, op))
		}
	}
	median(b, offs)
	if op != nil {
		b.ReportMetric(offs.Median().Seconds()/units.Median().Seconds(), metric)
	}
}

// BenchmarkRawWriteAndNotice measures a raw majority write and the arrival of the notice that
// follows it, through a capped collection.
func BenchmarkRawWriteAndNotice(b *testing.B) {
	onEach(b, func(b *testing.B, to *measure.Target) {
		if to.DB == nil {
			b.Skip("needs a server: MONGODB_URI")
		}
		r := raw(b, to)
		if err := r.Read(b.Context(), to); err != nil {
			b.Fatal(err)
		}
		for b.Loop() {
			do(b, r.WriteAndNotice)
		}
	})
}
