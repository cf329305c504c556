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

// Options returns the settings in force, with the defaults filled in, for a program's log.
func ExampleSession_Options() {
	locks, _ := dsync.New(dsynctest.NewMemory(), &dsync.Options{
		TTL:          12 * time.Second,
		Linger:       time.Second, // this process locks the same keys again and again
		PollInterval: 5 * time.Second,
	})
	defer locks.Close(context.Background())

	o := locks.Options()
	fmt.Printf("a crash frees the locks after %v; heartbeats every %v\n", o.TTL, o.HeartbeatInterval)
	fmt.Printf("a hold is lost %v before that, %v of it for clocks\n", o.Margin+o.Grace, o.Margin)
	fmt.Printf("waiters ask every %v; goroutines hand off for %v; an unlocked key stays for %v\n", o.PollInterval, o.HandOffTime, o.Linger)
	fmt.Printf("idle records are kept for %v\n", o.Retention)
	// Output:
	// a crash frees the locks after 12s; heartbeats every 4s
	// a hold is lost 1.7s before that, 500ms of it for clocks
	// waiters ask every 5s; goroutines hand off for 50ms; an unlocked key stays for 1s
	// idle records are kept for 168h0m0s
}

// Others see that somebody holds the key, but not who.
func ExampleOptions_anonymous() {
	store := dsynctest.NewMemory()
	holder, _ := dsync.New(store, &dsync.Options{Anonymous: true})
	defer holder.Close(context.Background())
	other, _ := dsync.New(store, nil)
	defer other.Close(context.Background())

	mu := holder.Mutex("report")
	mu.Lock()
	defer mu.Unlock()

	_, err := other.Mutex("report").TryHold(context.Background())
	var held *dsync.HeldError
	if errors.As(err, &held) {
		fmt.Printf("host %q, process %d\n", held.Host, held.PID)
	}
	// Output: host "", process 0
}

// A program cannot reach the store when it ends. Its log shows which keys others have to wait for.
func ExampleSession_Close_outage() {
	store := dsynctest.NewFaulty(dsynctest.NewMemory(), nil)
	defer store.Close()
	locks, _ := dsync.New(store, &dsync.Options{TTL: time.Second})
	locks.Mutex("invoices").Lock()

	store.Cut() // the network fails
	ctx, cancel := context.WithCancel(context.Background())
	cancel() // there is no time to wait for holders
	err := locks.Close(ctx)

	var held *dsync.NotReleasedError
	if errors.As(err, &held) {
		fmt.Println("held for up to a TTL:", held.Keys)
	}
	if errors.Is(err, dsync.ErrNotUnregistered) {
		fmt.Println("listed for up to a TTL")
	}
	// Output:
	// held for up to a TTL: [invoices]
	// listed for up to a TTL
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
	defer cancel() // gives up the lock unless it was received

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
	work := func(ctx context.Context) error { // ctx ends when the hold is lost, so pass it on
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

// A program logs why it lost a lock, and whether that was its own fault.
func ExampleHold_Context() {
	store, ctx := dsynctest.NewMemory(), context.Background()
	locks, _ := dsync.New(store, &dsync.Options{AlwaysListen: true})
	defer locks.Close(ctx)
	operator, _ := dsync.New(store, nil)
	defer operator.Close(ctx)

	why := func(ctx context.Context) string {
		switch err := context.Cause(ctx); {
		case errors.Is(err, dsync.ErrNotRenewed):
			return "this process was frozen, or cut off from the store"
		case errors.Is(err, dsync.ErrSessionExpired):
			return "the store ended the session early"
		case errors.Is(err, dsync.ErrLeaseOver):
			return "the work took longer than the lease"
		case errors.Is(err, dsync.ErrRevoked):
			return "somebody took the lock by force"
		default:
			return err.Error()
		}
	}

	h, err := locks.Mutex("report").Hold(ctx)
	if err != nil {
		fmt.Println(err)
		return
	}
	work := h.Context(ctx)
	go operator.Mutex("report").ForceHold(ctx)
	<-work.Done()
	fmt.Printf("%s: %s\n", h.Key(), why(work))
	h.Release(ctx)
	// Output: report: somebody took the lock by force
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

// A loop written for a sync.Mutex can check for a loss in a select.
func ExampleMutex_Lost() {
	locks, _ := dsync.New(dsynctest.NewMemory(), nil)
	defer locks.Close(context.Background())

	mu := locks.Mutex("import")
	mu.Lock()
	defer mu.Unlock()
	for row := range 3 {
		select {
		case <-mu.Lost():
			fmt.Println("lost")
			return
		default:
			fmt.Println("row", row)
		}
	}
	// Output:
	// row 0
	// row 1
	// row 2
}

func ExampleMutex_Do() {
	locks, _ := dsync.New(dsynctest.NewMemory(), nil)
	defer locks.Close(context.Background())

	err := locks.Mutex("report").Do(context.Background(), func(ctx context.Context) error {
		// ctx ends when the lock is lost, so pass it on.
		fmt.Println("writing the report, lost:", ctx.Err() != nil)
		return nil
	})
	fmt.Println(err)
	// Output:
	// writing the report, lost: false
	// <nil>
}

// The holder has promised to make progress, but a call that has no time-out hangs.
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
	if err := h.Progress(10 * time.Millisecond); err != nil { // the last step should be short
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

// The clocks of several hosts differ, so the hosts start a cron job at slightly different times. The job runs once,
// because the key stays held for a while afterwards.
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
	here, _ := dsync.New(store, nil) // in a program, each process has one session
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
	locks, _ := dsync.New(store, &dsync.Options{AlwaysListen: true}) // so that the program is notified at once
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

// Before a process ends, cancel the contexts of its work, wait for the work, and then close the session. The error
// of Close tells which keys may still be held in the store.
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

// fileLock is a lock that a program used before, such as a lock on a file.
type fileLock struct{ sync.Mutex }

func (f *fileLock) LockContext(ctx context.Context) error {
	f.Lock() // if the lock's wait can be cancelled, cancel it when ctx ends
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

func ExampleHooks() {
	waits := make(chan time.Duration, 1)

	hooks := &dsync.Hooks{
		Heartbeat:   func(took, left time.Duration, err error) { /* a gauge of left, a histogram of took */ },
		SessionLost: func(id string, cause error) { /* page somebody */ },
		Lost:        func(l dsync.HoldInfo) { /* count by l.Kind and by whether l.Cause is dsync.ErrRevoked */ },
		StoreError:  func(op string, err error) { /* count by op */ },
		ClockJump:   func(d time.Duration) { /* page somebody, if d is positive */ },
		Deadlock:    func(members, keys []string) { /* tell somebody: members[i] holds keys[i] and waits for the next */ },
		Granted:     func(g dsync.HoldInfo) { waits <- g.Wait },
	}
	locks, err := dsync.New(dsynctest.NewMemory(), &dsync.Options{Hooks: hooks})
	if err != nil {
		fmt.Println(err)
		return
	}
	mu := locks.Mutex("invoices")
	mu.Lock()
	fmt.Println(<-waits < time.Minute)
	mu.Unlock()
	locks.Close(context.Background())
	// Output: true
}
