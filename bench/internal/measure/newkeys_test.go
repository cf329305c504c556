package measure_test

import (
	"context"
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/leasehold-go/leasehold/bench/internal/measure"
)

// Each call of the Op uses new keys, and each key once. As many keys are in use at a time as there
// are goroutines.
func TestNewKeys(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var mu sync.Mutex
		seen := make(map[string]int)
		op := measure.NewKeys(100, 10, func(_ context.Context, key string) error {
			time.Sleep(time.Second)
			mu.Lock()
			defer mu.Unlock()
			seen[key]++
			return nil
		})
		for turn := 1; turn <= 2; turn++ {
			took, err := op(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			if took != 10*time.Second {
				t.Errorf("100 keys of 1s each took 10 goroutines %v, want 10s", took)
			}
			if len(seen) != 100*turn {
				t.Errorf("%d different keys after turn %d, want %d", len(seen), turn, 100*turn)
			}
		}
		for key, n := range seen {
			if n != 1 {
				t.Errorf("%s was used %d times", key, n)
			}
		}
	})
}

func TestNewKeysEndsAtAnError(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		broken := errors.New("broken")
		op := measure.NewKeys(100, 10, func(ctx context.Context, key string) error {
			if key == "turn 1, key 3" {
				return broken
			}
			<-ctx.Done()
			return ctx.Err()
		})
		if _, err := op(t.Context()); !errors.Is(err, broken) {
			t.Errorf("got error %v, want %v", err, broken)
		}
	})
}
