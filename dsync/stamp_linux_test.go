package dsync_test

import (
	"testing"
	"time"

	"github.com/leasehold-go/leasehold/dsync"
	"github.com/leasehold-go/leasehold/dsync/dsynctest"
)

// What the machine slept counts: Go's monotonic clock stands still in suspend, leases
// don't. That the wall clock was set ahead is no sleep. (In real time: in a bubble
// times have no monotonic part.)
func TestSleepOfTheMachineCounts(t *testing.T) {
	for _, slept := range []bool{true, false} {
		const ttl = time.Hour
		s := newSession(t, dsynctest.NewMemory(), &dsync.Options{TTL: ttl})
		mu := s.Mutex("mutex")
		lock(t, mu)
		l, err := s.Acquire(background, "lease", ttl)
		if err != nil {
			t.Fatal(err)
		}
		if slept {
			s.Sleep(ttl)
		} else {
			s.Step(ttl)
		}
		if lost := l.Token() == 0; lost != slept {
			t.Errorf("slept %t: the lease is lost: %t", slept, lost)
		}
		if lost := mu.Token() == 0; lost != slept {
			t.Errorf("slept %t: the mutex is lost: %t", slept, lost)
		}
		l.Release(background)
		mu.UnlockContext(background)
	}
}
