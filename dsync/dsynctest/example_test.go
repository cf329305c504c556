package dsynctest_test

import (
	"context"
	"fmt"
	"time"

	"github.com/leasehold-go/leasehold/dsync"
	"github.com/leasehold-go/leasehold/dsync/dsynctest"
)

// A Memory is a whole store: two sessions, one key, and the release that hands
// it over.
func ExampleMemory() {
	ctx := context.Background()
	store := dsynctest.NewMemory()

	claims := make(map[string]dsync.Claim)
	for _, id := range []string{"ada", "bob"} {
		now, err := store.Register(ctx, dsync.Member{ID: id, TTL: 30 * time.Second})
		if err != nil {
			fmt.Println(err)
			return
		}
		c := dsync.Claim{Key: "invoices", ID: id + ".1", Session: id, Kind: dsync.KindMutex, Weight: 1, Limit: 1}
		claims[id] = c
		s, err := store.Acquire(ctx, c, true, nil, now.Add(time.Minute))
		if err != nil {
			fmt.Println(err)
			return
		}
		_, held := s.Holder(c.ID)
		fmt.Printf("%s: held %t, place %d\n", id, held, s.Place)
	}

	if _, err := store.Release(ctx, claims["ada"], dsync.Outcome{}); err != nil {
		fmt.Println(err)
		return
	}
	s, err := store.Load(ctx, "invoices")
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println("holder:", s.Holders[0].Session)

	counts := store.Counts()
	fmt.Println(counts.Commands[dsynctest.MethodAcquire], "acquires,", counts.Writes, "writes")

	// Output:
	// ada: held true, place 0
	// bob: held false, place 1
	// holder: bob
	// 2 acquires, 5 writes
}
