package engine_test

import (
	"testing"
	"time"

	"github.com/leasehold-go/leasehold/internal/engine"

	"github.com/leasehold-go/leasehold/dsync"
	"github.com/leasehold-go/leasehold/dsync/dsynctest"
)

// Time in suspend counts: Go's monotonic clock stands still, leases don't. Setting the wall clock
// ahead does not count as sleep. (In real time: in a bubble times have no monotonic part.)
func TestSleepOfTheMachineCounts(t *testing.T) {
	for _, slept := range []bool{true, false} {
		const ttl = time.Hour
		s := newSession(t, dsynctest.NewMemory(), &dsync.Options{TTL: ttl})
		mu := s.Mutex("mutex")
		lock(t, mu)
		l, err := s.Lease(background, "lease", ttl)
		if err != nil {
			t.Fatal(err)
		}
		if slept {
			engine.Of(s).Sleep(ttl)
		} else {
			engine.Of(s).Step(ttl)
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

// A goroutine that waits for Lost is woken soon after the machine wakes up, without waiting for a
// timer that stood still meanwhile.
func TestLossIsReportedAfterSleep(t *testing.T) {
	const ttl = time.Minute
	s := newSession(t, dsynctest.NewMemory(), &dsync.Options{TTL: ttl, Grace: 200 * time.Millisecond, Retention: -1})
	mu := s.Mutex("mutex")
	lock(t, mu)
	l, err := s.Lease(background, "lease", time.Hour)
	if err != nil {
		t.Fatal(err)
	}
	lost, leaseLost := mu.Lost(), l.Lost()
	time.Sleep(1500 * time.Millisecond) // until the session listens: then nothing else compares the clock before the next heartbeat
	engine.Of(s).Sleep(2 * time.Hour)
	for name, c := range map[string]<-chan struct{}{"mutex": lost, "lease": leaseLost} {
		select {
		case <-c:
		case <-time.After(ttl / 4):
			t.Errorf("the loss of the %s is not reported", name)
		}
	}
	mu.UnlockContext(background)
	l.Release(background)
}

// Time in suspend counts against a limit for progress, too.
func TestSleepCountsForProgress(t *testing.T) {
	s := newSession(t, dsynctest.NewMemory(), &dsync.Options{TTL: time.Hour})
	mu := s.Mutex("mutex")
	lock(t, mu)
	if err := mu.Progress(time.Minute); err != nil {
		t.Fatal(err)
	}
	engine.Of(s).Sleep(time.Minute)
	wantErr(t, "Unlock after the sleep", mu.UnlockContext(background), dsync.ErrStalled)
}
