package dsync_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/leasehold-go/leasehold/dsync/dsynctest"
)

// A hold may be over before the goroutine that it was granted to has run on: its lease
// has lapsed, or the session was closed. The next of this process is let in all the same.
func TestHoldIsOverBeforeItsAcquireReturns(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := newSession(t, dsynctest.NewMemory(), nil)
		if err := s.AcquirePaused("k", 4*time.Second, func() { time.Sleep(5 * time.Second) }); err != nil {
			t.Fatal(err)
		}
		lock(t, s.Mutex("k"))
	})
	bubble(t, func(t *testing.T) {
		s := newSession(t, dsynctest.NewMemory(), nil)
		err := s.AcquirePaused("k", 0, func() {
			ended, cancel := context.WithCancel(background)
			cancel()
			go s.Close(ended)
			synctest.Wait()
		})
		if err != nil {
			t.Fatal(err)
		}
	})
}
