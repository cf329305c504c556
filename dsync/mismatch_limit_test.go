package dsync_test

import (
	"errors"
	"testing"

	"github.com/leasehold-go/leasehold/dsync/driver"
	"github.com/leasehold-go/leasehold/dsync/dsynctest"
)

// A mismatch error names both the limit in use and the requested limit, whether the error comes from this process or
// from the store.
func TestMismatchNamesBothLimits(t *testing.T) {
	for _, where := range []string{"here", "elsewhere"} {
		t.Run(where, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				store := dsynctest.NewMemory()
				s := newSession(t, store, nil)
				other := s
				if where == "elsewhere" {
					other = newSession(t, store, nil)
				}
				mu := s.Mutex("k")
				lock(t, mu)
				err := other.Semaphore("k", 5).Acquire(background, 1)
				var e *driver.MismatchError
				if !errors.As(err, &e) || e.Limit != 1 || e.WantLimit != 5 {
					t.Errorf("error %#v, want one with the limits 1 in use and 5 requested", e)
				}
				mu.Unlock()
			})
		})
	}
}
