package recipes_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/leasehold-go/leasehold/dsync"
	"github.com/leasehold-go/leasehold/dsync/dsynctest"
	"github.com/leasehold-go/leasehold/leader"
)

// run runs the service until ctx ends. In main, get ctx from signal.NotifyContext.
func run(ctx context.Context, locks *dsync.Session, serve, lead func(context.Context) error) (err error) {
	defer func() { // last: what has ended holds nothing any more
		err = errors.Join(err, locks.Close(context.WithoutCancel(ctx)))
	}()
	election, err := leader.New(locks, "reports", nil)
	if err != nil {
		return err
	}
	tasks, ctx := errgroup.WithContext(ctx)
	tasks.Go(func() error { return serve(ctx) })              // on every process
	tasks.Go(func() error { return election.Run(ctx, lead) }) // on one
	if err := tasks.Wait(); !errors.Is(err, context.Canceled) {
		return err // of the task that ended first; the others have ended, too
	}
	return nil
}

// until is a task that ends a second after its context.
func until(ctx context.Context) error {
	<-ctx.Done()
	time.Sleep(time.Second)
	return ctx.Err()
}

// When the context ends, the leader's work ends first. Then another process leads. At the end, nothing is left in the
// store.
func TestErrgroupEndsWithItsContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := dsynctest.NewMemory()
		ctx, stop := context.WithCancel(context.Background())
		leads := make(chan time.Time, 1)
		stopped := make(chan time.Time, 1)
		done := make(chan error, 1)
		go func() {
			done <- run(ctx, process(t, store, "a"), until, func(ctx context.Context) error {
				defer func() { stopped <- time.Now() }()
				return until(ctx)
			})
		}()
		synctest.Wait()
		next, stopNext := context.WithCancel(context.Background())
		nextDone := make(chan error, 1)
		go func() {
			nextDone <- run(next, process(t, store, "b"), until, func(ctx context.Context) error {
				leads <- time.Now()
				return until(ctx)
			})
		}()
		synctest.Wait()
		stop()
		if err := <-done; err != nil {
			t.Error(err)
		}
		if end, begin := <-stopped, <-leads; begin.Before(end) || begin.Sub(end) > time.Second {
			t.Errorf("the work ended at %v, and began elsewhere at %v", end, begin)
		}
		stopNext()
		if err := <-nextDone; err != nil {
			t.Error(err)
		}
		nobody(t, store, "reports")
	})
}

// When a task fails, all other tasks end, and run returns the first error.
func TestErrgroupReturnsTheFirstError(t *testing.T) {
	broken := errors.New("broken")
	fails := func(context.Context) error {
		time.Sleep(time.Minute)
		return broken
	}
	for name, tasks := range map[string][2]func(context.Context) error{"serve": {fails, until}, "lead": {until, fails}} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				store := dsynctest.NewMemory()
				if err := run(t.Context(), process(t, store, "a"), tasks[0], tasks[1]); !errors.Is(err, broken) {
					t.Errorf("got %v, want the task's error", err)
				}
				nobody(t, store, "reports")
			})
		})
	}
}

func Example_errgroup() {
	locks, err := dsync.New(dsynctest.NewMemory(), nil)
	if err != nil {
		fmt.Println(err)
		return
	}
	ctx, stop := context.WithCancel(context.Background())
	serve := func(ctx context.Context) error {
		<-ctx.Done()
		return ctx.Err()
	}
	lead := func(ctx context.Context) error {
		fmt.Println("leading")
		stop() // here: SIGTERM
		<-ctx.Done()
		return ctx.Err()
	}
	fmt.Println(run(ctx, locks, serve, lead))
	// Output:
	// leading
	// <nil>
}
