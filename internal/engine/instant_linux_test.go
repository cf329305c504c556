package engine_test

import (
	"testing"
	"time"

	"github.com/leasehold-go/leasehold/internal/engine"

	"github.com/leasehold-go/leasehold/dsync"
	"github.com/leasehold-go/leasehold/dsync/dsynctest"
)

// Time in suspend counts: Go's monotonic clock stands still then, but leases run on. Setting the wall clock forward
// does not count as sleep. (This test runs in real time, because times in a bubble have no monotonic part.)
func TestSleepOfTheMachineCounts(t *testing.T) {
	for _, slept := range []bool{true, false} {
		const ttl = time.Hour
		s := newSession(t, dsynctest.NewMemory(), &dsync.Options{TTL: ttl})
		h := take(t, s.Mutex("mutex").Hold)
		l, err := s.Mutex("lease").Lease(background, ttl)
		noErr(t, err)
		if slept {
			engine.Of(s).Sleep(ttl)
		} else {
			engine.Of(s).Step(ttl)
		}
		if lost := l.Token() == 0; lost != slept {
			t.Errorf("the machine slept: %t; the lease is lost: %t; want the same", slept, lost)
		}
		if lost := h.Token() == 0; lost != slept {
			t.Errorf("the machine slept: %t; the mutex is lost: %t; want the same", slept, lost)
		}
		l.Release(background)
		h.Release(background)
	}
}

// A goroutine that waits for Lost is woken soon after the machine wakes up. It need not wait for a timer that stood
// still during the sleep.
func TestLossIsReportedAfterSleep(t *testing.T) {
	const ttl = time.Minute
	s := newSession(t, dsynctest.NewMemory(), &dsync.Options{TTL: ttl, Grace: 200 * time.Millisecond, Retention: -1})
	h := take(t, s.Mutex("mutex").Hold)
	l, err := s.Mutex("lease").Lease(background, time.Hour)
	noErr(t, err)
	lost, leaseLost := h.Lost(), l.Lost()
	// Wait until the session listens. After that, no command makes the session check the clock before the next heartbeat.
	time.Sleep(1500 * time.Millisecond)
	engine.Of(s).Sleep(2 * time.Hour)
	for name, c := range map[string]<-chan struct{}{"mutex": lost, "lease": leaseLost} {
		select {
		case <-c:
		case <-time.After(ttl / 4):
			t.Errorf("the loss of the %s was not reported", name)
		}
	}
	h.Release(background)
	l.Release(background)
}

// Time in suspend also counts towards the limit that Progress sets.
func TestSleepCountsForProgress(t *testing.T) {
	s := newSession(t, dsynctest.NewMemory(), &dsync.Options{TTL: time.Hour})
	h := take(t, s.Mutex("mutex").Hold)
	noErr(t, h.Progress(time.Minute))
	engine.Of(s).Sleep(time.Minute + time.Millisecond) // the sleep is measured to some microseconds
	wantErr(t, "Release after the sleep", h.Release(background), dsync.ErrStalled)
}
