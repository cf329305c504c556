package bench_test

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/leasehold-go/leasehold/bench/internal/measure"
	"github.com/leasehold-go/leasehold/dsync"
	"github.com/leasehold-go/leasehold/dsync/dsynctest"
)

// BenchmarkLockUnlock measures an uncontended Lock and Unlock.
func BenchmarkLockUnlock(b *testing.B) {
	m := open(b, dsync.Options{}).Mutex("k")
	lockUnlock(m)
	b.ReportAllocs()
	for b.Loop() {
		lockUnlock(m)
	}
}

// BenchmarkLinger measures Lock and Unlock of a lingering key that one goroutine uses.
func BenchmarkLinger(b *testing.B) {
	m := open(b, dsync.Options{Linger: time.Second}).Mutex("k")
	for range 3 { // until the session listens, and has acquired the key while it listens
		lockUnlock(m)
		time.Sleep(1100 * time.Millisecond)
	}
	lockUnlock(m)
	b.ReportAllocs()
	for b.Loop() {
		lockUnlock(m)
	}
}

func lockUnlock(m *dsync.Mutex) {
	m.Lock()
	defer m.Unlock()
}

// BenchmarkRLock measures RLock and RUnlock while another goroutine of the process has a read lock.
func BenchmarkRLock(b *testing.B) {
	rw := open(b, dsync.Options{}).RWMutex("read")
	rw.RLock()
	defer rw.RUnlock()
	b.ReportAllocs()
	for b.Loop() {
		readTurn(rw)
	}
}

func readTurn(rw *dsync.RWMutex) {
	rw.RLock()
	defer rw.RUnlock()
}

// BenchmarkContended lets 4 processes with 16 goroutines each acquire one key as often as they can. It runs once with
// hand-offs inside the processes, and once with every hold granted by the store. An op is one acquisition. "share" is
// the smallest number of acquisitions by a process, divided by the largest. It is meaningful only if the benchmark runs
// for several seconds: use -benchtime 10s. A token that is not greater than the previous one is an error.
func BenchmarkContended(b *testing.B) {
	for name, turn := range map[string]time.Duration{"handed off": 0, "granted by the store": -1} {
		b.Run(name, func(b *testing.B) {
			c, err := measure.NewContest(b.Context(), measure.Mutexes(sessions(dsync.Options{HandOffTime: turn})), 4, 16)
			if err != nil {
				b.Fatal(err)
			}
			defer c.Close()
			var remaining atomic.Int64
			remaining.Store(int64(b.N))
			b.ResetTimer()
			if err := c.Run(b.Context(), func() bool { return remaining.Add(-1) >= 0 }); err != nil {
				b.Fatal(err)
			}
			b.ReportMetric(c.Rate(), "acquisitions/s")
			b.ReportMetric(c.Share, "share")
		})
	}
}

// BenchmarkHandOff measures the median time from a call of Unlock until the next of 2, 8 or 64
// processes has the key.
func BenchmarkHandOff(b *testing.B) {
	for _, n := range []int{2, 8, 64} {
		b.Run(fmt.Sprint(n), func(b *testing.B) { handOff(b, measure.Mutexes(sessions(dsync.Options{})), n) })
	}
}

// BenchmarkResign measures the median time from a call of Resign until the other process's Campaign
// returns.
func BenchmarkResign(b *testing.B) { handOff(b, measure.Elections(sessions(dsync.Options{})), 2) }

func handOff(b *testing.B, sys measure.System, n int) {
	ring, err := measure.NewRing(b.Context(), sys, "ring", n)
	if err != nil {
		b.Fatal(err)
	}
	defer ring.Close()
	var took measure.Sample
	for b.Loop() {
		d, err := ring.HandOff(b.Context())
		if err != nil {
			b.Fatal(err)
		}
		took = append(took, d)
	}
	b.ReportMetric(float64(took.Median().Nanoseconds()), "ns/op") // in place of the time of the whole loop
}

// sessions returns a function that opens sessions on one store in memory.
func sessions(opt dsync.Options) func(context.Context) (*dsync.Session, error) {
	store := dsynctest.NewMemory()
	opt.Retention = -1
	return func(context.Context) (*dsync.Session, error) { return dsync.New(store, &opt) }
}

func open(b *testing.B, opt dsync.Options) *dsync.Session {
	s, err := sessions(opt)(b.Context())
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { s.Close(context.Background()) })
	return s
}
