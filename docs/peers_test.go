package docs_test

import (
	"context"
	"fmt"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/leasehold-go/leasehold/dsync/dsynctest"
	"github.com/leasehold-go/leasehold/leader"
)

// This is the code in coming-from.md for users of libraries other than ShedLock.

// The last line of the output shows why Unlock must not be deferred before the error is checked.
func Example_finally() {
	ctx := context.Background()
	locks := process(dsynctest.NewMemory(), "api-1")
	defer locks.Close(ctx)
	mu := locks.Mutex("my-resource")
	func() {
		wait, cancel := context.WithTimeout(ctx, 5*time.Second)
		defer cancel()
		if err := mu.LockContext(wait); err != nil {
			fmt.Println(err) // not locked: there is nothing to unlock
			return
		}
		defer mu.Unlock() // after the check, never before it
		fmt.Println("working")
	}()

	defer func() { fmt.Println(recover()) }()
	mu.Unlock()
	// Output:
	// working
	// dsync: unlock of unlocked mutex "my-resource"
}

func Example_group() {
	ctx, stop := context.WithCancel(context.Background())
	locks := process(dsynctest.NewMemory(), "controller-1")
	defer locks.Close(context.Background())
	election, _ := leader.New(locks, "controller", nil)

	tasks, ctx := errgroup.WithContext(ctx)
	tasks.Go(func() error {
		return election.Run(ctx, func(ctx context.Context) error {
			fmt.Println("started leading")
			stop()       // here: the program gets SIGTERM
			<-ctx.Done() // work until leadership ends, for whatever reason
			return nil   // stopped; after a loss, Run now campaigns again
		})
	})
	fmt.Println(tasks.Wait())
	// Output:
	// started leading
	// context canceled
}

func Example_do() {
	ctx := context.Background()
	locks := process(dsynctest.NewMemory(), "api-1")
	defer locks.Close(ctx)

	err := locks.Mutex("my-lock").Do(ctx, func(ctx context.Context) error {
		fmt.Println("working") // under ctx, which ends if the lock is lost
		return ctx.Err()
	})
	if err != nil {
		fmt.Println(err) // also dsync.ErrLost, if the lock was lost meanwhile
	}
	// Output: working
}
