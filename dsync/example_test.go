package dsync_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
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

func ExampleMutex_HoldChan() {
	locks, _ := dsync.New(dsynctest.NewMemory(), nil)
	defer locks.Close(context.Background())
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel() // gives up the lock if nobody received it

	granted := locks.Mutex("report").HoldChan(ctx)
	ticker := time.NewTicker(time.Minute)
	for {
		select {
		case <-ticker.C:
			fmt.Println("still waiting")
		case h := <-granted:
			if h != nil {
				fmt.Println("held")
				h.Release(ctx)
			}
			return
		}
	}
	// Output: held
}

// A hold is a value: it can be passed on, watched and released by whoever has it.
func ExampleMutex_Hold() {
	locks, _ := dsync.New(dsynctest.NewMemory(), nil)
	ctx := context.Background()
	defer locks.Close(ctx)

	h, err := locks.Mutex("report").Hold(ctx)
	if err != nil {
		fmt.Println(err)
		return
	}
	work := func(ctx context.Context) error { // ctx ends when the hold is lost: pass it on
		fmt.Println("writing the report, token:", dsync.HoldFrom(ctx).Token() == h.Token())
		return ctx.Err()
	}
	if err := work(h.Context(ctx)); err != nil {
		fmt.Println(err)
	}
	fmt.Println(h.Release(ctx)) // ErrLost if the hold had ended before
	// Output:
	// writing the report, token: true
	// <nil>
}

func ExampleMutex_TryHold() {
	store := dsynctest.NewMemory()
	holder, _ := dsync.New(store, &dsync.Options{Host: "web-1"})
	defer holder.Close(context.Background())
	other, _ := dsync.New(store, nil)
	defer other.Close(context.Background())

	mu := holder.Mutex("report")
	mu.Lock()
	defer mu.Unlock()

	_, err := other.Mutex("report").TryHold(context.Background())
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
func ExampleHold_Progress() {
	store, ctx := dsynctest.NewMemory(), context.Background()
	locks, _ := dsync.New(store, &dsync.Options{Grace: 10 * time.Millisecond})
	defer locks.Close(ctx)
	elsewhere, _ := dsync.New(store, nil)
	defer elsewhere.Close(ctx)

	h, err := locks.Mutex("import").Hold(ctx)
	if err != nil {
		fmt.Println(err)
		return
	}
	for batch := range 3 {
		if err := h.Progress(time.Minute); err != nil {
			fmt.Println(err)
			return
		}
		fmt.Println("batch", batch)
	}
	if err := h.Progress(10 * time.Millisecond); err != nil { // the last step is a short one
		fmt.Println(err)
	}

	next := elsewhere.Mutex("import")
	next.Lock() // although h was not released
	fmt.Println("locked elsewhere")
	next.Unlock()

	err = h.Release(ctx)
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
func ExampleHold_ReleaseAfter() {
	store := dsynctest.NewMemory()
	ctx := context.Background()
	for range 3 { // three hosts, one after the other
		locks, _ := dsync.New(store, nil)
		if h, err := locks.Mutex("nightly").TryHold(ctx); err == nil {
			fmt.Println("running the job")
			h.ReleaseAfter(ctx, time.Minute)
		}
		locks.Close(ctx)
	}
	// Output: running the job
}

func ExampleMutex_Lease() {
	locks, _ := dsync.New(dsynctest.NewMemory(), nil)
	defer locks.Close(context.Background())
	ctx := context.Background()

	lease, err := locks.Mutex("slot").Lease(ctx, time.Minute)
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

// A transfer locks both accounts. Two transfers in opposite directions can't wait for each other, because
// both lock the accounts in the same order.
func ExampleLockAll() {
	store, ctx := dsynctest.NewMemory(), context.Background()
	here, _ := dsync.New(store, nil) // in a program each process has one session
	defer here.Close(ctx)
	there, _ := dsync.New(store, nil)
	defer there.Close(ctx)

	from, to := here.Mutex("account/7"), here.Mutex("account/3")
	held, unlock, err := dsync.LockAll(ctx, from, to)
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println("lost:", held.Err() != nil, "tokens:", from.Token() > 0, to.Token() > 0)

	_, _, err = dsync.TryLockAll(ctx, there.Mutex("account/1"), there.Mutex("account/3"))
	fmt.Println("elsewhere, one of them and another:", errors.Is(err, dsync.ErrHeld))
	fmt.Println("elsewhere, the other:", there.Mutex("account/1").TryLock())
	fmt.Println(unlock())
	// Output:
	// lost: false tokens: true true
	// elsewhere, one of them and another: true
	// elsewhere, the other: true
	// <nil>
}

// An operator needs a lock that a program holds. The program is notified, and stops.
func ExampleMutex_ForceHold() {
	store := dsynctest.NewMemory()
	ctx := context.Background()
	locks, _ := dsync.New(store, &dsync.Options{AlwaysListen: true}) // so that it is notified at once
	defer locks.Close(ctx)
	operator, _ := dsync.New(store, nil)
	defer operator.Close(ctx)

	stopped := make(chan error, 1)
	started := make(chan struct{})
	go func() {
		stopped <- locks.Mutex("report").Do(ctx, func(ctx context.Context) error {
			close(started)
			<-ctx.Done() // writes the report until it is stopped
			return nil
		})
	}()
	<-started

	h, err := operator.Mutex("report").ForceHold(ctx)
	if err != nil {
		fmt.Println(err)
		return
	}
	defer h.Release(ctx)
	err = <-stopped
	fmt.Println(errors.Is(err, dsync.ErrLost), errors.Is(err, dsync.ErrRevoked))
	fmt.Println("mine:", h.Token() > 0)
	// Output:
	// true true
	// mine: true
}

// At the end of a process, end the contexts of the work and wait for it; then close the session. What
// the store may still hold is in the error.
func ExampleSession_Close() {
	locks, _ := dsync.New(dsynctest.NewMemory(), nil)
	work, stop := context.WithCancel(context.Background()) // in a program, signal.NotifyContext
	done := make(chan error)
	started := make(chan struct{})
	go func() {
		done <- locks.Mutex("invoices").Do(work, func(ctx context.Context) error {
			close(started)
			<-ctx.Done() // the work
			return nil
		})
	}()

	<-started
	stop()
	fmt.Println("the work:", <-done)
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	err := locks.Close(ctx)
	if held := new(dsync.NotReleasedError); errors.As(err, &held) {
		fmt.Println("may be held for up to a TTL:", held.Keys)
	}
	fmt.Println("closed:", err)
	// Output:
	// the work: <nil>
	// closed: <nil>
}

// fileLock is a lock that a program used before: on a file, for example.
type fileLock struct{ sync.Mutex }

func (f *fileLock) LockContext(ctx context.Context) error {
	f.Lock() // one that can wait ends the wait with ctx
	return nil
}

// While a fleet moves from an old lock to a new one, the new version of the program holds both.
func ExampleLockAll_oldLock() {
	locks, _ := dsync.New(dsynctest.NewMemory(), nil)
	defer locks.Close(context.Background())

	old := new(fileLock)
	ctx, unlock, err := dsync.LockAll(context.Background(), old, locks.Mutex("invoices"))
	if err != nil {
		fmt.Println(err)
		return
	}
	defer unlock()
	fmt.Println("held:", ctx.Err() == nil)
	// Output: held: true
}
