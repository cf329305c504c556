package dsync_test

import (
	"context"
	"errors"
	"fmt"

	"github.com/leasehold-go/leasehold/dsync"
	"github.com/leasehold-go/leasehold/dsync/dsynctest"
)

func ExampleMutex_ForceLock() {
	store := dsynctest.NewMemory()
	ctx := context.Background()
	locks, _ := dsync.New(store, &dsync.Options{AlwaysListen: true})
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

	mu := operator.Mutex("report")
	if err := mu.ForceLock(ctx); err != nil {
		fmt.Println(err)
		return
	}
	defer mu.Unlock()
	err := <-stopped
	fmt.Println(errors.Is(err, dsync.ErrLost), errors.Is(err, dsync.ErrRevoked))
	fmt.Println("mine:", mu.Held())
	// Output:
	// true true
	// mine: true
}
