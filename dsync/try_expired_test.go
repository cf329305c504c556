package dsync_test

import (
	"testing"
	"time"

	"github.com/leasehold-go/leasehold/dsync/dsynctest"
)

// After a process has crashed, another session's tries get all of its keys. The first try expires the crashed session;
// the later tries succeed although that session has already expired.
func TestTryTakesEveryKeyOfAnExpiredSession(t *testing.T) {
	bubble(t, func(t *testing.T) {
		memory := dsynctest.NewMemory()
		crashed := newFaulty(t, memory, nil)
		a, b := newSession(t, crashed, nil), newSession(t, memory, nil)
		keys := []string{"a", "b", "c"}
		for _, k := range keys {
			lock(t, a.Mutex(k))
		}
		crashed.Cut()
		time.Sleep(ttl)
		for _, k := range keys {
			if err := errOf(b.Mutex(k).TryHold(background)); err != nil {
				t.Errorf("TryHold of %q after the expiry: %v", k, err)
			}
		}
	})
}
