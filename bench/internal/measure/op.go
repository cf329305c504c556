package measure

import (
	"context"
	"fmt"
	"time"
)

// An Op runs an operation once and returns how long its measured part took. It is never called
// concurrently.
type Op func(ctx context.Context) (time.Duration, error)

// Timed is an Op that measures the whole of f.
func Timed(f func(context.Context) error) Op {
	return func(ctx context.Context) (time.Duration, error) {
		begin := time.Now()
		err := f(ctx)
		return time.Since(begin), err
	}
}

// Twice is the Op that runs op two times in a row and returns the sum of both times.
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

// LockUnlock is the Op that locks and unlocks l.
func LockUnlock(l Locker) Op {
	return Timed(func(ctx context.Context) error {
		if err := l.Lock(ctx); err != nil {
			return err
		}
		return l.Unlock(ctx)
	})
}

// LockUnlockEach is the Op that locks and unlocks a new key on each call. All keys begin with
// prefix.
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

// LockUnlockAfter is the Op in which p locks and unlocks a key that was last used by the other
// process, a few calls earlier. All keys begin with prefix.
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
