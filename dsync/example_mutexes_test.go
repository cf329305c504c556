package dsync_test

import (
	"context"
	"errors"
	"fmt"

	"github.com/leasehold-go/leasehold/dsync"
	"github.com/leasehold-go/leasehold/dsync/dsynctest"
)

// A transfer locks both accounts. Two transfers in opposite directions can't wait for each other, because
// both lock the accounts in the same order.
func ExampleMutexes() {
	store := dsynctest.NewMemory()
	here, _ := dsync.New(store, nil) // in a program each process has one session
	defer here.Close(context.Background())
	there, _ := dsync.New(store, nil)
	defer there.Close(context.Background())

	accounts := here.Mutexes("account/7", "account/3")
	accounts.Lock()
	fmt.Println(accounts.Keys(), "lost:", !accounts.Held())
	fmt.Println("tokens:", accounts.Token("account/3") > 0, accounts.Token("account/7") > 0)

	err := there.Mutexes("account/1", "account/3").TryLockContext(context.Background())
	fmt.Println("elsewhere, one of them and another:", errors.Is(err, dsync.ErrHeld))
	fmt.Println("elsewhere, the other:", there.Mutex("account/1").TryLock())
	accounts.Unlock()
	// Output:
	// [account/3 account/7] lost: false
	// tokens: true true
	// elsewhere, one of them and another: true
	// elsewhere, the other: true
}
