package admin_test

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/leasehold-go/leasehold/dsync"
	"github.com/leasehold-go/leasehold/dsync/admin"
	"github.com/leasehold-go/leasehold/dsync/driver"
	"github.com/leasehold-go/leasehold/dsync/dsynctest"
	"github.com/leasehold-go/leasehold/leader"
)

// An operator's terminal shows the holders and the waiters of each key.
func Example() {
	store := dsynctest.NewMemory() // in a tool, dsyncmongo.Open makes the session, with ReadOnly if the tool only reads
	ctx := context.Background()
	web, _ := dsync.New(store, &dsync.Options{Name: "web-1"})
	defer web.Close(ctx)
	mu := web.Mutex("invoices/7")
	mu.Lock()
	defer mu.Unlock()

	tool, _ := dsync.New(store, nil)
	defer tool.Close(ctx)
	inspector := admin.New(tool)
	for st, err := range inspector.List(ctx, "invoices/") {
		if err != nil {
			fmt.Println(err)
			return
		}
		for _, h := range st.Holders {
			fmt.Printf("%s: held by %s, %d waiting\n", st.Key, h.Name, st.Waiting)
		}
	}
	members, _, err := inspector.Members(ctx)
	fmt.Println(len(members), "member:", members[0].Name, err) // the tool's session is not a member
	// Output:
	// invoices/7: held by web-1, 0 waiting
	// 1 member: web-1 <nil>
}

// Each process has set its zone in its Meta, so Members can show it. The example also shows which
// process is this one.
func ExampleInspector_Members() {
	ctx, store := context.Background(), dsynctest.NewMemory()
	var here *dsync.Session
	for _, zone := range []string{"eu-1", "us-1"} { // two processes
		locks, _ := dsync.New(store, &dsync.Options{Name: "web", Meta: map[string]string{"zone": zone}})
		defer locks.Close(ctx)
		locks.Mutex("lock of " + zone).Lock() // the first lock registers the session
		here = locks
	}

	members, _, err := admin.New(here).Members(ctx)
	for _, m := range members {
		fmt.Printf("%s in %s, this process: %t\n", m.Name, m.Meta["zone"], m.ID == here.ID())
	}
	fmt.Println(err)
	// Unordered output:
	// web in eu-1, this process: false
	// web in us-1, this process: true
	// <nil>
}

// Status shows the holders and the waiters of a key.
func ExampleInspector_Status() {
	store := dsynctest.NewMemory()
	ctx := context.Background()
	locks, _ := dsync.New(store, &dsync.Options{Name: "web-1"})
	defer locks.Close(ctx)

	mu := locks.Mutex("invoices")
	mu.Lock()
	defer mu.Unlock()

	inspector := admin.New(locks)
	st, err := inspector.Status(ctx, "invoices")
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(st.Kind, "held:", st.Held(), "waiting:", st.Waiting)
	for _, h := range st.Holders {
		fmt.Println("by", h.Name, "for at most", h.TTL, "after its last heartbeat")
	}
	// Output:
	// mutex held: true waiting: 0
	// by web-1 for at most 30s after its last heartbeat
}

// The second page of a list begins after the last key of the first.
func ExampleInspector_ListAfter() {
	ctx := context.Background()
	locks, _ := dsync.New(dsynctest.NewMemory(), nil)
	defer locks.Close(ctx)
	for _, key := range []string{"jobs/mail", "jobs/clean-up", "jobs/report", "invoices"} {
		mu := locks.Mutex(key)
		mu.Lock()
		defer mu.Unlock()
	}

	inspector := admin.New(locks)
	for st, err := range inspector.ListAfter(ctx, "jobs/", "jobs/clean-up") {
		if err != nil {
			fmt.Println(err)
			return
		}
		fmt.Println(st.Key)
	}
	// Output:
	// jobs/mail
	// jobs/report
}

func ExampleStatus_String() {
	now := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	fmt.Print(admin.Status{
		Key: "invoices", Now: now, Kind: driver.KindMutex, Limit: 1, Token: 1024,
		Holders: []admin.Participant{{
			Session: "d6i4", Weight: 1, Name: "pod-7", Host: "web-1", PID: 4711,
			Token: 1024, Since: now.Add(-90 * time.Second), Until: now.Add(22 * time.Second), Renewed: true,
		}},
		Waiting: 1,
		Queue:   []admin.Participant{{Session: "d6i5", Weight: 1, Host: "web-2", PID: 815}},
	})
	// Output:
	// invoices: mutex, held, 1 waiting; as of 2026-03-01T12:00:00.000Z by the store's clock
	//   held by pod-7 (process 4711 on web-1), token 1024, since 2026-03-01T11:58:30.000Z (for 1m30s), until 2026-03-01T12:00:22.000Z (in 22s, unless renewed)
	//   waiting, position 1: process 815 on web-2
}

// An operator frees a key. The key's holder is notified and stops.
func ExampleInspector_Break() {
	store := dsynctest.NewMemory()
	ctx := context.Background()
	locks, _ := dsync.New(store, &dsync.Options{AlwaysListen: true}) // so that the holder is notified at once
	defer locks.Close(ctx)
	tool, _ := dsync.New(store, nil)
	defer tool.Close(ctx)

	started, stopped := make(chan struct{}), make(chan error, 1)
	go func() {
		stopped <- locks.Mutex("report").Do(ctx, func(ctx context.Context) error {
			close(started)
			<-ctx.Done() // writes the report until it is stopped
			return nil
		})
	}()
	<-started

	inspector := admin.New(tool)
	err := inspector.Break(ctx, "report")
	fmt.Println("broken:", err == nil)
	fmt.Println("revoked:", errors.Is(<-stopped, dsync.ErrRevoked))
	st, _ := inspector.Status(ctx, "report")
	fmt.Println("held:", st.Held())
	// Output:
	// broken: true
	// revoked: true
	// held: false
}

// A Once that is named after a day is of no use after that day.
func ExampleInspector_Forget() {
	ctx := context.Background()
	locks, _ := dsync.New(dsynctest.NewMemory(), nil)
	defer locks.Close(ctx)

	locks.Once("report 2026-11-24").Do(ctx, func(context.Context) error { return nil })
	inspector := admin.New(locks)
	before, _ := inspector.Status(ctx, "report 2026-11-24")
	err := inspector.Forget(ctx, "report 2026-11-24")
	after, _ := inspector.Status(ctx, "report 2026-11-24")
	fmt.Println("done before:", before.Sealed, "after:", after.Sealed, err)
	// Output: done before: true after: false <nil>
}

// A tool that has read the keys anyway needs no second reading to see a cycle in them. To be sure that the whole
// cycle existed at one moment, read the keys twice, or call Deadlocks.
func ExampleFindDeadlocks() {
	now := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	status := func(key, holder, waiter string) admin.Status {
		return admin.Status{
			Key: key, Now: now, Kind: driver.KindMutex, Limit: 1,
			Holders: []admin.Participant{{Claim: holder + ".1", Session: holder, Weight: 1, Since: now.Add(-time.Minute), Renewed: true}},
			Waiting: 1,
			Queue:   []admin.Participant{{Claim: waiter + ".2", Session: waiter, Weight: 1, Name: "pod of " + waiter}},
		}
	}
	keys := []admin.Status{status("x", "a", "b"), status("y", "b", "a")}
	for _, d := range admin.FindDeadlocks(keys, keys) {
		fmt.Println(d)
	}
	// Output: pod of a holds "x" and waits for "y"; pod of b holds "y" and waits for "x"
}

// Stats are for gauges: whether waiters are notified or poll, and how many records the store has.
func ExampleInspector_Stats() {
	ctx := context.Background()
	locks, _ := dsync.New(dsynctest.NewMemory(), nil)
	defer locks.Close(ctx)

	st := admin.New(locks).Stats()
	fmt.Println("listening:", st.Listening, "polling because of:", st.Polling)
	// Output: listening: false polling because of: <nil>
}

// Observers shows who observes an election without campaigning in it.
func ExampleInspector_Observers() {
	store := dsynctest.NewMemory()
	ctx := context.Background()
	web, _ := dsync.New(store, &dsync.Options{Name: "web-1"})
	defer web.Close(ctx)
	election, _ := leader.New(web, "reports", nil)
	election.Observe(ctx)

	inspector := admin.New(web)
	var observers []driver.Member
	for len(observers) == 0 { // until the store has recorded the observer
		observers, _ = inspector.Observers(ctx, "reports")
	}
	fmt.Println(observers[0].Name)
	// Output: web-1
}
