package measure

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// Excludes returns an error unless a process has to wait for a key that another process holds. An
// uncontended measurement would not notice that a lock excludes nobody.
func Excludes(ctx context.Context, sys System) error {
	const key, enough = "excludes", 200 * time.Millisecond
	var locks [2]Locker
	for i := range locks {
		p, err := sys.Open(ctx)
		if err != nil {
			return err
		}
		defer p.Close()
		if locks[i], err = p.Locker(ctx, key); err != nil {
			return err
		}
	}
	if err := locks[0].Lock(ctx); err != nil {
		return err
	}
	waiting, cancel := context.WithTimeout(ctx, enough)
	defer cancel()
	begin := time.Now()
	switch err := locks[1].Lock(waiting); {
	case err == nil:
		return errors.New("two processes hold the key at the same time")
	case time.Since(begin) < enough/2: // a driver may give up shortly before the context ends
		return fmt.Errorf("the second Lock did not wait: %w", err)
	}
	return locks[0].Unlock(ctx)
}
