package dsynctest_test

import (
	"context"
	"fmt"
	"time"

	"github.com/leasehold-go/leasehold/dsync"
	"github.com/leasehold-go/leasehold/dsync/admin"
	"github.com/leasehold-go/leasehold/dsync/driver"
	"github.com/leasehold-go/leasehold/dsync/dsynctest"
	"github.com/leasehold-go/leasehold/internal/storecmd"
)

// A Memory is a complete store. Here two sessions use one key. A release grants the key to the waiter, and returns
// a notice for the waiter's session.
func ExampleMemory() {
	ctx := context.Background()
	store := dsynctest.NewMemory()

	claims := make(map[string]driver.Claim)
	for _, id := range []string{"ada", "bob"} {
		now, err := store.Register(ctx, driver.Member{ID: id, TTL: 30 * time.Second})
		if err != nil {
			fmt.Println(err)
			return
		}
		c := driver.Claim{Key: "invoices", ID: id + ".1", Session: id, Kind: driver.KindMutex, Weight: 1, Limit: 1}
		claims[id] = c
		s, _, err := storecmd.Acquire(ctx, store, c, true, nil, now.Add(time.Minute))
		if err != nil {
			fmt.Println(err)
			return
		}
		_, held := s.Holder(c.ID)
		fmt.Printf("%s: held %t, position %d\n", id, held, s.Position)
	}

	_, notices, err := storecmd.Release(ctx, store, claims["ada"], driver.Release{})
	if err != nil {
		fmt.Println(err)
		return
	}
	for _, n := range notices { // Notify would send these
		fmt.Printf("to %s: granted %t\n", n.Session, n.Type == driver.NoticeGrant)
	}
	s, err := store.Load(ctx, "invoices", 1000)
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println("holder:", s.Holders[0].Session)

	counts := store.Counts()
	fmt.Println(counts.Commands[dsynctest.MethodAcquire], "acquires,", counts.Writes, "writes")

	// Output:
	// ada: held true, position 0
	// bob: held false, position 1
	// to bob: granted true
	// holder: bob
	// 2 acquires, 5 writes
}

// Counts shows what an operator's repairs cost the store.
func ExampleMemory_Counts() {
	ctx, store := context.Background(), dsynctest.NewMemory()
	locks, _ := dsync.New(store, nil)
	defer locks.Close(ctx)
	slots := locks.Semaphore("slots", 3)
	if err := slots.Do(ctx, 1, func(context.Context) error { return nil }); err != nil {
		fmt.Println(err)
	}

	before := store.Counts()
	fmt.Println(slots.Resize(ctx, 5), admin.New(locks).Forget(ctx, "slots"))
	did := store.Counts().Since(before).Commands
	fmt.Println(did[dsynctest.MethodResize], "to resize,", did[dsynctest.MethodForget], "to forget")
	// Output:
	// <nil> <nil>
	// 1 to resize, 1 to forget
}
