package dsync_test

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/leasehold-go/leasehold/dsync"
	"github.com/leasehold-go/leasehold/dsync/dsynctest"
)

// Two sessions stand for two processes here. In a program, each process has one session, from
// Open or Connect of package dsync/mongo.
func Example() {
	store := dsynctest.NewMemory()
	ctx := context.Background()
	here, err := dsync.New(store, nil)
	if err != nil {
		fmt.Println(err)
		return
	}
	defer here.Close(ctx)
	there, err := dsync.New(store, nil)
	if err != nil {
		fmt.Println(err)
		return
	}
	defer there.Close(ctx)

	mu := here.Mutex("invoices")
	mu.Lock()
	other := there.Mutex("invoices")
	fmt.Println("elsewhere:", other.TryLock())
	mu.Unlock()
	fmt.Println("elsewhere:", other.TryLock())
	other.Unlock()
	// Output:
	// elsewhere: false
	// elsewhere: true
}

func ExampleMutex_LockContext() {
	store := dsynctest.NewMemory()
	holder, _ := dsync.New(store, nil)
	defer holder.Close(context.Background())
	waiter, _ := dsync.New(store, nil)
	defer waiter.Close(context.Background())

	mu := holder.Mutex("report")
	mu.Lock()
	defer mu.Unlock()

	ctx, cancel := context.WithTimeout(context.Background(), 50*time.Millisecond)
	defer cancel()
	err := waiter.Mutex("report").LockContext(ctx)
	fmt.Println(errors.Is(err, context.DeadlineExceeded))
	// Output: true
}

func ExampleMutex_LockChan() {
	locks, _ := dsync.New(dsynctest.NewMemory(), nil)
	defer locks.Close(context.Background())
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel() // gives up the lock if nobody received it

	mu := locks.Mutex("report")
	locked := mu.LockChan(ctx)
	ticker := time.NewTicker(time.Minute)
	for {
		select {
		case <-ticker.C:
			fmt.Println("still waiting")
		case ok := <-locked:
			fmt.Println("locked:", ok)
			if ok {
				mu.Unlock()
			}
			return
		}
	}
	// Output: locked: true
}

func ExampleMutex_TryLockContext() {
	store := dsynctest.NewMemory()
	holder, _ := dsync.New(store, &dsync.Options{Host: "web-1"})
	defer holder.Close(context.Background())
	other, _ := dsync.New(store, nil)
	defer other.Close(context.Background())

	mu := holder.Mutex("report")
	mu.Lock()
	defer mu.Unlock()

	err := other.Mutex("report").TryLockContext(context.Background())
	var held *dsync.HeldError
	if errors.As(err, &held) {
		fmt.Println("held on", held.Host)
	}
	// Output: held on web-1
}

func ExampleMutex_Do() {
	locks, _ := dsync.New(dsynctest.NewMemory(), nil)
	defer locks.Close(context.Background())

	err := locks.Mutex("report").Do(context.Background(), func(ctx context.Context) error {
		// ctx ends when the lock is lost: pass it on.
		fmt.Println("writing the report, lost:", ctx.Err() != nil)
		return nil
	})
	fmt.Println(err)
	// Output:
	// writing the report, lost: false
	// <nil>
}

// A call without a time-out of its own hangs. The holder had promised to make progress.
func ExampleMutex_Progress() {
	store, ctx := dsynctest.NewMemory(), context.Background()
	locks, _ := dsync.New(store, &dsync.Options{Grace: 10 * time.Millisecond})
	defer locks.Close(ctx)
	elsewhere, _ := dsync.New(store, nil)
	defer elsewhere.Close(ctx)

	mu := locks.Mutex("import")
	mu.Lock()
	for batch := range 3 {
		if err := mu.Progress(time.Minute); err != nil {
			fmt.Println(err)
			return
		}
		fmt.Println("batch", batch)
	}
	if err := mu.Progress(10 * time.Millisecond); err != nil { // the last step is a short one
		fmt.Println(err)
	}

	next := elsewhere.Mutex("import")
	next.Lock() // although mu was not unlocked
	fmt.Println("locked elsewhere")
	next.Unlock()

	err := mu.UnlockContext(ctx)
	fmt.Println("stalled:", errors.Is(err, dsync.ErrStalled))
	// Output:
	// batch 0
	// batch 1
	// batch 2
	// locked elsewhere
	// stalled: true
}

// Several hosts start a cron job at about the same time, by clocks that differ. The job runs
// once, because the key stays held for a while after it.
func ExampleMutex_UnlockAfter() {
	store := dsynctest.NewMemory()
	ctx := context.Background()
	for range 3 { // three hosts, one after the other
		locks, _ := dsync.New(store, nil)
		mu := locks.Mutex("nightly")
		if mu.TryLock() {
			fmt.Println("running the job")
			mu.UnlockAfter(ctx, time.Minute)
		}
		locks.Close(ctx)
	}
	// Output: running the job
}

func ExampleSession_Lease() {
	locks, _ := dsync.New(dsynctest.NewMemory(), nil)
	defer locks.Close(context.Background())
	ctx := context.Background()

	lease, err := locks.Lease(ctx, "slot", time.Minute)
	if err != nil {
		fmt.Println(err)
		return
	}
	first := lease.Until()
	until, err := lease.Extend(ctx)
	fmt.Println(!until.Before(first), err)
	fmt.Println(lease.Release(ctx))
	// Output:
	// true <nil>
	// <nil>
}
