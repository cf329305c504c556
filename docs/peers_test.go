package docs_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/leasehold-go/leasehold/dsync"
	"github.com/leasehold-go/leasehold/dsync/dsynctest"
	"github.com/leasehold-go/leasehold/leader"
)

// What users of other libraries write here: more of coming-from.md.

// The end shows why the order matters.
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

func Example_isLeader() {
	locks := process(dsynctest.NewMemory(), "node-1")
	defer locks.Close(context.Background())
	elected := make(chan struct{})
	election, _ := leader.New(locks, "all-cron-jobs", &leader.Options{Hooks: &leader.Hooks{
		Elected: func(context.Context, leader.Term) { close(elected) },
	}})
	fmt.Println("before Run:", election.IsLeader())

	ctx, stop := context.WithCancel(context.Background())
	var tasks errgroup.Group
	tasks.Go(func() error { // once, when the program starts
		return election.Run(ctx, func(ctx context.Context) error {
			<-ctx.Done() // until leadership ends; then Run campaigns again
			return nil
		})
	})

	<-elected
	if election.IsLeader() { // sends nothing and starts nothing
		fmt.Println("leading")
	}
	stop()
	fmt.Println(tasks.Wait())
	// Output:
	// before Run: false
	// leading
	// context canceled
}

func Example_try() {
	ctx := context.Background()
	locks := process(dsynctest.NewMemory(), "api-1")
	defer locks.Close(ctx)

	mu := locks.Mutex("my-resource")
	if err := mu.TryLockContext(ctx); errors.Is(err, dsync.ErrHeld) {
		fmt.Println("already locked")
		return
	} else if err != nil {
		fmt.Println(err)
		return
	}
	defer mu.Unlock()
	held, cancel := mu.Context(ctx) // ends if the lock is lost
	defer cancel()
	fmt.Println("working:", held.Err() == nil)
	// Output: working: true
}

func Example_shared() {
	ctx := context.Background()
	locks := process(dsynctest.NewMemory(), "api-1")
	defer locks.Close(ctx)

	const maxConcurrent = 3
	resource := locks.Semaphore("my-resource", maxConcurrent)
	if err := resource.TryAcquireContext(ctx, 1); err != nil { // SLock
		fmt.Println(err)
		return
	}
	fmt.Println("exclusive too:", resource.TryAcquire(maxConcurrent)) // XLock
	resource.Release(1)
	// Output: exclusive too: false
}

func Example_deadline() {
	ctx := context.Background()
	locks := process(dsynctest.NewMemory(), "api-1")
	defer locks.Close(ctx)
	mu := locks.Mutex("my-lock")

	wait, cancel := context.WithTimeout(ctx, 5*time.Second) // instead of tries and pauses
	defer cancel()
	if err := mu.LockContext(wait); err != nil {
		fmt.Println(err) // not locked
		return
	}
	defer mu.Unlock()
	held, stop := mu.Context(ctx) // instead of a goroutine that extends the lock
	defer stop()
	fmt.Println("working:", held.Err() == nil)
	// Output: working: true
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

func Example_steps() {
	ctx := context.Background()
	locks := process(dsynctest.NewMemory(), "api-1")
	defer locks.Close(ctx)
	mu := locks.Mutex("my-lock")

	wait, cancel := context.WithTimeout(ctx, 5*time.Second) // LockTryOnce, LockWaitTime
	defer cancel()
	if err := mu.LockContext(wait); err != nil {
		fmt.Println(err) // never nil without the lock
		return
	}
	defer mu.Unlock()
	lost := mu.Lost()
	for _, step := range []string{"first", "second"} {
		select {
		case <-lost:
			return
		default:
			fmt.Println(step)
		}
	}
	// Output:
	// first
	// second
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

func Example_monitor() {
	ctx := context.Background()
	locks := process(dsynctest.NewMemory(), "api-1")
	defer locks.Close(ctx)
	mu := locks.Mutex("my-lock")
	if err := mu.LockContext(ctx); err != nil {
		fmt.Println(err)
		return
	}

	held, stop := mu.Context(ctx)
	defer stop()
	context.AfterFunc(held, func() {
		if errors.Is(context.Cause(held), dsync.ErrLost) { // or it was unlocked
			log.Print("stop working: the lock is lost")
		}
	})

	fmt.Println(mu.UnlockContext(ctx))
	// Output: <nil>
}
