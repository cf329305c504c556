package bench_test

import (
	"fmt"
	"sync/atomic"
	"testing"

	"github.com/leasehold-go/leasehold/bench/internal/measure"
	"github.com/leasehold-go/leasehold/dsync"
)

// BenchmarkContended is 4 processes with 16 goroutines each that lock one key as
// often as they can: with hand-offs inside the processes, and with every hold
// granted by the store. An op is one acquisition. "share" is the smallest share of a
// process by the largest; a token that is not greater than the one before fails it.
// The shares mean something where it runs for seconds: -benchtime 10s.
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
	var left atomic.Int64
	left.Store(int64(b.N))
	report := counted(b, to)
	b.ResetTimer()
	if err := c.Run(b.Context(), func() bool { return left.Add(-1) >= 0 }); err != nil {
		b.Fatal(err)
	}
	report()
	b.ReportMetric(c.Rate(), "acquisitions/s")
	b.ReportMetric(c.Share, "share")
}

// BenchmarkHandOff is from the call of Unlock to the next of 2, 8 and 64 processes
// having the key, the median; where there is a server beside a raw majority write and
// the notice that follows it, in turn, in one loop.
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

// BenchmarkResign is from the call of Resign to the return of the other process's
// Campaign, the median; where there is a server beside a raw majority write.
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

// BenchmarkRawWriteAndNotice is a raw majority write and the arrival of the notice that
// follows it, through a capped collection.
func BenchmarkRawWriteAndNotice(b *testing.B) {
	onEach(b, func(b *testing.B, to *measure.Target) {
		if to.DB == nil {
			b.Skip("of a server")
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
