package bench_test

import (
	"context"
	"os"
	"testing"
	"time"

	"github.com/leasehold-go/leasehold/bench/internal/measure"
	"github.com/leasehold-go/leasehold/dsync"
)

// onEach runs f on the store in memory and, if MONGODB_URI is set, on the server that it names.
func onEach(b *testing.B, f func(b *testing.B, to *measure.Target)) {
	b.Run("memory", func(b *testing.B) { f(b, measure.Memory()) })
	b.Run("server", func(b *testing.B) {
		uri := os.Getenv("MONGODB_URI")
		if uri == "" {
			b.Skip("MONGODB_URI is not set")
		}
		to, err := measure.Server(uri, "leasehold_bench")
		if err != nil {
			b.Fatal(err)
		}
		b.Cleanup(func() { to.Close(context.Background()) })
		f(b, to)
	})
}

// counted returns a function that reports the commands per op since the call of counted.
func counted(b *testing.B, to *measure.Target) func() {
	before := to.Counted().Commands()
	return func() { b.ReportMetric(float64(to.Commands()-before)/float64(b.N), "commands/op") }
}

func session(b *testing.B, to *measure.Target, opt dsync.Options) *dsync.Session {
	opt.Retention = -1
	s, err := to.Counted().Session(b.Context(), opt)
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { s.Close(context.Background()) })
	return s
}

func locker(b *testing.B, to *measure.Target, opt dsync.Options) measure.Locker {
	return measure.LockerOf(session(b, to, opt).Mutex("k"))
}

func raw(b *testing.B, to *measure.Target) *measure.Raw {
	r, err := measure.NewRaw(to, "raw")
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(r.Close)
	return r
}

func do(b *testing.B, op measure.Op) time.Duration {
	took, err := op(b.Context())
	if err != nil {
		b.Fatal(err)
	}
	return took
}

// median reports the sample's median as the benchmark's time, in place of the time of the whole
// loop.
func median(b *testing.B, s measure.Sample) {
	b.ReportMetric(float64(s.Median().Nanoseconds()), "ns/op")
}
