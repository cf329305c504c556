package measure

import (
	"context"
	"time"
)

// An Op is done once by a call, which returns how long the part of it took that is
// measured. It is not called concurrently.
type Op func(ctx context.Context) (time.Duration, error)

// Timed is the Op of which all is measured.
func Timed(f func(context.Context) error) Op {
	return func(ctx context.Context) (time.Duration, error) {
		begin := time.Now()
		err := f(ctx)
		return time.Since(begin), err
	}
}

// Twice is the Op that does f two times in a row.
func Twice(f func(context.Context) error) Op {
	return Timed(func(ctx context.Context) error {
		if err := f(ctx); err != nil {
			return err
		}
		return f(ctx)
	})
}

// LockUnlock is the Op that locks and unlocks.
func LockUnlock(l Locker) Op {
	return Timed(func(ctx context.Context) error {
		if err := l.Lock(ctx); err != nil {
			return err
		}
		return l.Unlock(ctx)
	})
}
