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
)

// Status shows who holds a key and who waits for it.
func ExampleInspector_Status() {
	store := dsynctest.NewMemory()
	ctx := context.Background()
	locks, _ := dsync.New(store, &dsync.Options{Name: "web-1"})
	defer locks.Close(ctx)
	operator, _ := dsync.New(store, nil)
	defer operator.Close(ctx)

	mu := locks.Mutex("invoices")
	mu.Lock()
	defer mu.Unlock()

	st, err := admin.New(operator).Status(ctx, "invoices")
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

func ExampleInspector_List() {
	store := dsynctest.NewMemory()
	ctx := context.Background()
	locks, _ := dsync.New(store, nil)
	defer locks.Close(ctx)
	for _, key := range []string{"jobs/mail", "jobs/clean-up", "invoices"} {
		mu := locks.Mutex(key)
		mu.Lock()
		defer mu.Unlock()
	}

	for st, err := range admin.New(locks).List(ctx, "jobs/") {
		if err != nil {
			fmt.Println(err)
			return
		}
		fmt.Println(st.Key, "held:", st.Held())
	}
	// Output:
	// jobs/clean-up held: true
	// jobs/mail held: true
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

// An operator frees a key. Its holder is notified, stops, and unlocks.
func ExampleInspector_Break() {
	store := dsynctest.NewMemory()
	ctx := context.Background()
	locks, _ := dsync.New(store, &dsync.Options{AlwaysListen: true}) // so that it is notified at once
	defer locks.Close(ctx)
	operator, _ := dsync.New(store, nil)
	defer operator.Close(ctx)

	mu := locks.Mutex("report")
	mu.Lock()
	stopped := make(chan struct{})
	go func() {
		defer close(stopped)
		<-mu.Lost()
		err := mu.UnlockContext(ctx) // within its grace
		fmt.Println("revoked:", errors.Is(err, dsync.ErrRevoked))
	}()

	err := admin.New(operator).Break(ctx, "report")
	<-stopped
	fmt.Println("broken:", err == nil)
	st, _ := admin.New(operator).Status(ctx, "report")
	fmt.Println("held:", st.Held())
	// Output:
	// revoked: true
	// broken: true
	// held: false
}

// A Once that is named after a day is of no use after it.
func ExampleInspector_Forget() {
	ctx := context.Background()
	locks, _ := dsync.New(dsynctest.NewMemory(), nil)
	defer locks.Close(ctx)

	locks.Once("report 2026-11-24").Do(ctx, func(context.Context) error { return nil })
	_, done, _ := locks.Once("report 2026-11-24").Value(ctx)
	fmt.Println(done)

	if err := admin.New(locks).Forget(ctx, "report 2026-11-24"); err != nil {
		fmt.Println(err)
	}
	_, done, _ = locks.Once("report 2026-11-24").Value(ctx)
	fmt.Println(done)
	// Output:
	// true
	// false
}
