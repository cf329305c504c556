package main

import (
	"context"
	"errors"

	"github.com/leasehold-go/leasehold/dsync"
)

// A worker does jobs, each of which is a call of the service.
type worker struct {
	*process
	size int64 // of the semaphore; all processes must name the same
	call func(ctx context.Context, job string) error
}

// do does one job, under a slot.
func (w *worker) do(ctx context.Context, job string) error {
	// A value for each job, which holds one slot: so its Context ends with that one.
	slot := w.locks.Semaphore("service", w.size)
	for {
		if err := slot.Acquire(ctx, 1); err != nil {
			return err
		}
		held, cancel := slot.Context(ctx)
		err := w.call(held, job)
		cancel()
		released := slot.ReleaseContext(context.WithoutCancel(ctx), 1)
		switch {
		case err == nil:
			w.log.Info("done", "job", job)
			return nil
		case errors.Is(released, dsync.ErrLost):
			w.log.Warn("lost", "job", job) // and so the call failed: once more
		default:
			return err
		}
	}
}
