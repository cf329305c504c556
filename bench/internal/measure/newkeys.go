package measure

import (
	"context"
	"fmt"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"
)

// NewKeys is the Op that calls f once for each of n keys that were never used before, from the
// given number of goroutines.
func NewKeys(n, goroutines int, f func(ctx context.Context, key string) error) Op {
	turn := 0
	return func(ctx context.Context) (time.Duration, error) {
		turn++
		var last atomic.Int64
		g, ctx := errgroup.WithContext(ctx)
		begin := time.Now()
		for range goroutines {
			g.Go(func() error {
				for i := last.Add(1); i <= int64(n); i = last.Add(1) {
					if err := f(ctx, fmt.Sprintf("turn %d, key %d", turn, i)); err != nil {
						return err
					}
				}
				return nil
			})
		}
		err := g.Wait()
		return time.Since(begin), err
	}
}
