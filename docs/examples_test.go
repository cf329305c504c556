package docs_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"

	"github.com/leasehold-go/leasehold/dsync"
	"github.com/leasehold-go/leasehold/dsync/admin"
	"github.com/leasehold-go/leasehold/dsync/dsynctest"
	"github.com/leasehold-go/leasehold/dsync/mongo/fence"
	"github.com/leasehold-go/leasehold/leader"
)

// The code of docs/*.md stands here: see TestCodeIsFromExamples.

// Those that need a server are compiled.
var _ = []any{pay}

// process returns a session, as a process has one, on a store that others share.
func process(store *dsynctest.Memory, name string) *dsync.Session {
	s, err := dsync.New(store, &dsync.Options{Name: name, AlwaysListen: true})
	if err != nil {
		log.Fatal(err)
	}
	return s
}

// pay is a fenced write.
func pay(ctx context.Context, db *mongo.Database, mu *dsync.Mutex) error {
	orders := fence.New(db.Collection("orders"), nil)
	_, err := orders.UpdateOne(ctx, mu.Token(), bson.D{{Key: "_id", Value: 7}},
		bson.D{{Key: "$set", Value: bson.D{{Key: "paid", Value: true}}}})
	if errors.Is(err, fence.ErrStale) {
		return err // somebody else has the lock by now: nothing was written
	}
	return err
}

func Example_locker() {
	ctx := context.Background()
	store := dsynctest.NewMemory()
	locks := process(store, "api-1")
	defer locks.Close(ctx)

	mu := locks.Mutex("my-resource")
	if err := mu.Do(ctx, func(ctx context.Context) error {
		fmt.Println("working") // under ctx, which ends if the lock is lost
		return nil
	}); err != nil {
		fmt.Println(err)
	}

	wait, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	if err := mu.LockContext(wait); errors.Is(err, context.DeadlineExceeded) {
		fmt.Println("not within 5 seconds")
	}
	mu.Unlock()
	// Output: working
}

func Example_tryLock() {
	store := dsynctest.NewMemory()
	locks, others := process(store, "api-1"), process(store, "api-2")
	defer locks.Close(context.Background())
	defer others.Close(context.Background())
	theirs := others.Mutex("my-resource")
	theirs.Lock()
	defer theirs.Unlock()

	ctx := context.Background()
	var held *dsync.HeldError
	err := locks.Mutex("my-resource").TryLockContext(ctx)
	switch {
	case err == nil:
		// locked
	case errors.As(err, &held):
		fmt.Println("already held") // held.Host, held.PID, held.Since
	default:
		fmt.Println("the store did not answer:", err)
	}
	// Output: already held
}

func Example_touch() {
	ctx := context.Background()
	locks := process(dsynctest.NewMemory(), "api-1")
	defer locks.Close(ctx)

	lease, err := locks.Lease(ctx, "my-resource", time.Minute)
	if err != nil {
		fmt.Println(err)
		return
	}
	until, err := lease.Extend(ctx) // a minute from now, by the store's clock
	if errors.Is(err, dsync.ErrLost) {
		fmt.Println("not held any more")
	}
	fmt.Println(until.Equal(lease.Until()), lease.Release(ctx))
	// Output: true <nil>
}

func Example_progress() {
	locks, ctx := process(dsynctest.NewMemory(), "a"), context.Background()
	defer locks.Close(ctx)
	batches := []string{"first", "second"}
	load := func(_ context.Context, batch string) error { fmt.Println(batch); return nil }
	if err := func() error {
		return locks.Mutex("import").Do(ctx, func(ctx context.Context) error {
			for _, batch := range batches {
				if err := dsync.Progress(ctx, time.Minute); err != nil {
					return err // the lock is lost
				}
				if err := load(ctx, batch); err != nil { // takes seconds, unless it hangs
					return err
				}
			}
			return nil
		})
	}(); err != nil {
		fmt.Println(err)
	}
	// Output:
	// first
	// second
}

func Example_force() {
	store := dsynctest.NewMemory()
	locks, others := process(store, "api-1"), process(store, "api-2")
	defer locks.Close(context.Background())
	defer others.Close(context.Background())
	ctx := context.Background()

	theirs := others.Mutex("my-resource")
	theirs.Lock()
	go func() {
		<-theirs.Lost() // notified, with the grace to stop
		theirs.Unlock()
	}()
	mu := locks.Mutex("my-resource")
	if err := mu.ForceLock(ctx); err != nil {
		fmt.Println(err)
	}
	fmt.Println("locked")
	mu.Unlock()
	// Output: locked
}

func Example_run() {
	locks := process(dsynctest.NewMemory(), "node-1")
	defer locks.Close(context.Background())
	ctx, stop := context.WithCancel(context.Background())
	defer stop()

	election, err := leader.New(locks, "my-service", &leader.Options{Hooks: &leader.Hooks{
		NewLeader: func(before, now leader.Leader) { log.Printf("leader: %s after %s", now.Name, before.Name) },
	}})
	if err != nil {
		fmt.Println(err)
		return
	}
	err = election.Run(ctx, func(ctx context.Context) error {
		fmt.Println("started leading")
		stop()       // here: the program gets SIGTERM
		<-ctx.Done() // until leadership ends, for whatever reason
		fmt.Println("stopped leading")
		return nil
	})
	fmt.Println(err)
	// Output:
	// started leading
	// stopped leading
	// context canceled
}

func Example_campaign() {
	locks := process(dsynctest.NewMemory(), "node-1")
	defer locks.Close(context.Background())
	election, _ := leader.New(locks, "all-cron-jobs", nil)

	ctx, err := election.Campaign(context.Background())
	if err != nil {
		fmt.Println(err) // ctx has ended, too
		return
	}
	fmt.Println("elected")
	context.AfterFunc(ctx, func() { log.Print("revoked: ", context.Cause(ctx)) })

	fmt.Println(election.Resign(context.Background()))
	// Output:
	// elected
	// <nil>
}

func Example_value() {
	ctx := context.Background()
	store := dsynctest.NewMemory()
	locks, others := process(store, "node-1"), process(store, "node-2")
	defer locks.Close(ctx)
	defer others.Close(ctx)

	election, _ := leader.New(locks, "master", &leader.Options{Value: []byte("10.0.0.1:80")})
	if _, err := election.Campaign(ctx); err != nil {
		fmt.Println(err)
	}

	elsewhere, _ := leader.New(others, "master", nil)
	for now := range elsewhere.Observe(ctx) {
		if now.Value != nil {
			fmt.Printf("%s was written by %s\n", now.Value, now.Name)
			break
		}
	}
	election.Resign(ctx)
	// Output: 10.0.0.1:80 was written by node-1
}

func Example_singletons() {
	ctx := context.Background()
	locks := process(dsynctest.NewMemory(), "node-1")
	defer locks.Close(ctx)

	singletons, _, err := leader.NewGroup(ctx, locks, "singletons", nil)
	if err != nil {
		fmt.Println(err)
		return
	}
	started := make(chan string, 1)
	build, err := singletons.Go("build", func(ctx context.Context) error {
		started <- "build"
		<-ctx.Done() // until it is removed, or another process runs it
		return nil
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	build.AddHooks( // at any time, any number
		func(t leader.Term) { log.Print("start of ", t.Election) },
		func(t leader.Term, err error) { log.Print("stop of ", t.Election) },
	)
	fmt.Println("started:", <-started)
	for _, s := range singletons.List() {
		fmt.Println(s.Name, "runs here:", s.Running())
	}
	build.Remove(ctx) // returns when it has stopped
	<-build.Done()    // closed when it has left the group, for whatever reason
	fmt.Println("left:", len(singletons.List()))
	// Output:
	// started: build
	// build runs here: true
	// left: 0
}

func Example_background() {
	locks := process(dsynctest.NewMemory(), "node-1")
	defer locks.Close(context.Background())
	election, _ := leader.New(locks, "my-service", nil)
	elected := make(chan context.Context, 1)

	ctx, stop := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() {
		defer close(ended)
		ended <- election.Run(ctx, func(ctx context.Context) error {
			elected <- ctx
			<-ctx.Done()
			return nil
		})
	}()
	term := <-elected
	revoked := make(chan string, 2)
	for _, listener := range []string{"first", "second"} { // at any time, any number
		context.AfterFunc(term, func() { revoked <- listener })
	}
	fmt.Println("running:", election.Participating())
	stop()
	fmt.Println("ended:", <-ended)
	fmt.Println("running:", election.Participating())
	fmt.Println("revoked:", <-revoked)
	fmt.Println("revoked:", <-revoked)
	// Unordered output:
	// running: true
	// ended: context canceled
	// running: false
	// revoked: first
	// revoked: second
}

func Example_lock() {
	ctx := context.Background()
	locks := process(dsynctest.NewMemory(), "api-1")
	defer locks.Close(ctx)

	mu := locks.Mutex("my-lock")
	if err := mu.LockContext(ctx); err != nil {
		fmt.Println(err)
		return
	}
	select {
	case <-mu.Lost():
		fmt.Println("lost")
	default:
		fmt.Println("holding, with a token:", mu.Token() > 0)
	}
	if err := mu.UnlockContext(ctx); err != nil {
		fmt.Println(err) // dsync.ErrLost: the hold had ended before
	}
	// Output: holding, with a token: true
}

func Example_hooks() {
	store := dsynctest.NewMemory()
	waits := make(chan time.Duration, 1)

	hooks := &dsync.Hooks{
		Heartbeat:   func(took, left time.Duration, err error) { /* a gauge of left, a histogram of took */ },
		SessionLost: func(id string, cause error) { /* page somebody */ },
		Lost:        func(l dsync.LostInfo) { /* count by l.Kind and by whether l.Cause is dsync.ErrRevoked */ },
		StoreError:  func(op string, err error) { /* count by op */ },
		ClockJump:   func(d time.Duration) { /* page somebody, if d is positive */ },
		Deadlock:    func(d dsync.DeadlockInfo) { /* tell somebody: d names the processes and their keys */ },
		Granted:     func(g dsync.GrantedInfo) { waits <- g.Wait },
	}
	locks, err := dsync.New(store, &dsync.Options{Hooks: hooks})
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

func Example_resize() {
	ctx := context.Background()
	locks := process(dsynctest.NewMemory(), "worker-1")
	defer locks.Close(ctx)

	old := locks.Semaphore("workers", 4) // what the running version says
	workers := locks.Semaphore("workers", 4)
	if err := workers.Resize(ctx, 8); err != nil { // the first process of the new version, once
		fmt.Println(err)
		return
	}
	fmt.Println(workers.Size(), old.TryAcquire(3)) // those that still say 4 go on
	old.Release(3)
	// Output: 8 true
}

func Example_status() {
	ctx := context.Background()
	locks := process(dsynctest.NewMemory(), "api-1")
	defer locks.Close(ctx)
	mu := locks.Mutex("invoices/7")
	mu.Lock()
	defer mu.Unlock()

	for st, err := range admin.New(locks).List(ctx, "invoices/") {
		if err != nil {
			fmt.Println(err)
			return
		}
		for _, h := range st.Holders {
			fmt.Println(st.Key, st.Kind, h.Name, st.Waiting)
		}
	}
	// Output: invoices/7 mutex api-1 0
}

func Example_pause() {
	locks := process(dsynctest.NewMemory(), "node-1")
	defer locks.Close(context.Background())
	election, _ := leader.New(locks, "all-cron-jobs", nil)
	ctx, err := election.Campaign(context.Background())
	if err != nil {
		fmt.Println(err)
		return
	}
	resumed := make(chan struct{})
	close(resumed)

	select {
	case <-resumed: // paused, and leading still
	case <-ctx.Done():
		return // leadership has ended
	}

	if err := election.Pause(context.Background()); err != nil { // another process leads
		fmt.Println(err)
	}
	election.Resume() // campaigns take part again
	fmt.Println("leading:", election.IsLeader())
	// Output: leading: false
}

func Example_stopWithoutRelease() {
	locks := process(dsynctest.NewMemory(), "node-1")
	defer locks.Close(context.Background())
	election, _ := leader.New(locks, "all-cron-jobs", nil)
	ctx, stop := context.WithCancel(context.Background())
	time.AfterFunc(20*time.Millisecond, stop)

	err := election.Run(ctx, func(ctx context.Context) error {
		<-ctx.Done() // SIGTERM, with signal.NotifyContext
		return election.ResignAfter(ctx, 10*time.Second)
	})
	fmt.Println(err)
	_, err = election.TryCampaign(context.Background())
	fmt.Println("held:", errors.Is(err, dsync.ErrHeld))
	// Output:
	// context canceled
	// held: true
}
