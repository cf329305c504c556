package measure

import (
	"context"
	"fmt"
	"time"
)

// An Op is done once by a call, which returns how long the part of it took that is
// measured. It is not called concurrently.
type Op func(ctx context.Context) (time.Duration, error)

// Timed is an Op that is measured as a whole.
func Timed(f func(context.Context) error) Op {
	return func(ctx context.Context) (time.Duration, error) {
		begin := time.Now()
		err := f(ctx)
		return time.Since(begin), err
	}
}

// Twice is the Op that does op two times in a row, and takes as long as both.
func Twice(op Op) Op {
	return func(ctx context.Context) (time.Duration, error) {
		first, err := op(ctx)
		if err != nil {
			return 0, err
		}
		second, err := op(ctx)
		return first + second, err
	}
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

// LockUnlockEach is the Op that locks and unlocks a key with that prefix that nobody has used.
func LockUnlockEach(p Process, prefix string) Op {
	n := 0
	return func(ctx context.Context) (time.Duration, error) {
		n++
		l, err := p.Locker(ctx, fmt.Sprint(prefix, " ", n))
		if err != nil {
			return 0, err
		}
		return LockUnlock(l)(ctx)
	}
}

// LockUnlockAfter is the Op by which p locks and unlocks a key with that prefix that the process
// other was the last to use, some turns before.
func LockUnlockAfter(other, p Process, prefix string) Op {
	const ahead = 32
	first, second := LockUnlockEach(other, prefix), LockUnlockEach(p, prefix)
	ready := 0
	return func(ctx context.Context) (time.Duration, error) {
		if ready == 0 {
			for ; ready < ahead; ready++ {
				if _, err := first(ctx); err != nil {
					return 0, err
				}
			}
		}
		ready--
		return second(ctx)
	}
}
