package bench_test

import (
	"testing"
	"time"

	"github.com/leasehold-go/leasehold/bench/internal/measure"
	"github.com/leasehold-go/leasehold/dsync"
)

// BenchmarkLockUnlock measures an uncontended Lock and Unlock. On a server it also measures two raw
// majority writes, and then both in turn in one loop, to compare their medians.
func BenchmarkLockUnlock(b *testing.B) {
	onEach(b, func(b *testing.B, to *measure.Target) {
		b.Run("mutex", func(b *testing.B) {
			op := measure.LockUnlock(locker(b, to, dsync.Options{}))
			do(b, op)
			report := counted(b, to)
			b.ReportAllocs()
			for b.Loop() {
				do(b, op)
			}
			report()
		})
		if to.DB == nil {
			return
		}
		b.Run("two raw majority writes", func(b *testing.B) {
			op := measure.Twice(raw(b, to).Write)
			for b.Loop() {
				do(b, op)
			}
		})
		b.Run("in turn", func(b *testing.B) {
			lock, write := measure.LockUnlock(locker(b, to, dsync.Options{})), measure.Twice(raw(b, to).Write)
			do(b, lock)
			do(b, write)
			var locks, writes measure.Sample
			for b.Loop() {
				locks = append(locks, do(b, lock))
				writes = append(writes, do(b, write))
			}
			median(b, locks)
			b.ReportMetric(locks.Median().Seconds()/writes.Median().Seconds(), "by-two-writes")
		})
	})
}

// BenchmarkLinger measures Lock and Unlock of a lingering key with one user.
func BenchmarkLinger(b *testing.B) {
	onEach(b, func(b *testing.B, to *measure.Target) {
		op := measure.LockUnlock(locker(b, to, dsync.Options{Linger: time.Second}))
		for range 3 { // until the session listens, and has acquired the key while it listens
			do(b, op)
			time.Sleep(1100 * time.Millisecond)
		}
		do(b, op)
		report := counted(b, to)
		b.ReportAllocs()
		for b.Loop() {
			do(b, op)
		}
		report()
	})
}

// BenchmarkRLock measures RLock and RUnlock while another goroutine of the process has a read lock.
func BenchmarkRLock(b *testing.B) {
	onEach(b, func(b *testing.B, to *measure.Target) {
		rw := session(b, to, dsync.Options{}).RWMutex("read")
		rw.RLock()
		defer rw.RUnlock()
		report := counted(b, to)
		b.ReportAllocs()
		for b.Loop() {
			readTurn(rw)
		}
		report()
	})
}

func readTurn(rw *dsync.RWMutex) {
	rw.RLock()
	defer rw.RUnlock()
}
