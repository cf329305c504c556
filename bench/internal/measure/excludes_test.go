package measure_test

import (
	"context"
	"errors"
	"testing"

	"github.com/leasehold-go/leasehold/bench/internal/measure"
	"github.com/leasehold-go/leasehold/dsync"
	"github.com/leasehold-go/leasehold/dsync/dsynctest"
)

func TestExcludes(t *testing.T) {
	if err := measure.Excludes(t.Context(), measure.Mutexes(inMemory(dsynctest.NewMemory(), dsync.Options{}))); err != nil {
		t.Errorf("a Mutex: %v", err)
	}
	if err := measure.Excludes(t.Context(), broken{}); err == nil {
		t.Error("Excludes returned no error for a lock that excludes nobody")
	}
	if err := measure.Excludes(t.Context(), &failing{}); !errors.Is(err, errFailed) {
		t.Errorf("a second Lock that fails instead of waiting: got %v, want %v", err, errFailed)
	}
}

var errFailed = errors.New("failed")

// failing is a System on which only the first Lock succeeds.
type failing struct {
	broken
	locked bool
}

func (f *failing) Open(context.Context) (measure.Process, error)          { return f, nil }
func (f *failing) Locker(context.Context, string) (measure.Locker, error) { return f, nil }

func (f *failing) Lock(context.Context) error {
	if f.locked {
		return errFailed
	}
	f.locked = true
	return nil
}
