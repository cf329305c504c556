package leader_test

import (
	"context"
	"errors"
	"fmt"

	"golang.org/x/sync/errgroup"

	"github.com/leasehold-go/leasehold/dsync"
	"github.com/leasehold-go/leasehold/dsync/dsynctest"
	"github.com/leasehold-go/leasehold/leader"
)

func ExampleElection_Campaign() {
	locks, _ := dsync.New(dsynctest.NewMemory(), &dsync.Options{Name: "node-1"})
	defer locks.Close(context.Background())
	election, _ := leader.New(locks, "reports", nil)

	ctx, err := election.Campaign(context.Background())
	if err != nil {
		fmt.Println(err)
		return
	}
	term, _ := leader.TermFrom(ctx)
	fmt.Println("term", term.Number, "of", term.Name)

	// Work under ctx: it is cancelled when the leadership is lost.

	election.Resign(context.Background())
	fmt.Println(context.Cause(ctx))
	// Output:
	// term 1 of node-1
	// leader: resigned
}

// A background job of a service runs on one process of the fleet: a task of the
// process's errgroup like any other.
func ExampleElection_Run() {
	locks, _ := dsync.New(dsynctest.NewMemory(), nil)
	defer locks.Close(context.Background())
	election, _ := leader.New(locks, "reports", nil)

	done := errors.New("that was the last report")
	g, ctx := errgroup.WithContext(context.Background())
	g.Go(func() error {
		return election.Run(ctx, func(ctx context.Context) error {
			fmt.Println("leading:", election.IsLeader())
			return done // ends Run, and here the program
		})
	})
	fmt.Println(g.Wait())
	// Output:
	// leading: true
	// that was the last report
}

// An outage of the database often fails the work before the leadership is lost.
// Work that should be taken up again after it waits for the end of its context, or
// tries again, instead of returning the error.
func ExampleElection_Run_outage() {
	locks, _ := dsync.New(dsynctest.NewMemory(), nil)
	defer locks.Close(context.Background())
	election, _ := leader.New(locks, "reports", nil)

	ctx, stop := context.WithCancel(context.Background())
	query := func(context.Context) error {
		stop() // here: the program is stopped meanwhile
		return errors.New("connection refused")
	}
	err := election.Run(ctx, func(ctx context.Context) error {
		if err := query(ctx); err != nil {
			fmt.Println("waiting:", err)
			<-ctx.Done() // lost, in an outage; then Run campaigns again
		}
		return ctx.Err()
	})
	fmt.Println(err)
	// Output:
	// waiting: connection refused
	// context canceled
}

// Each function runs on one process of the fleet.
func ExampleGroup() {
	locks, _ := dsync.New(dsynctest.NewMemory(), nil)
	defer locks.Close(context.Background())

	g, _, err := leader.NewGroup(context.Background(), locks, "jobs", nil)
	if err != nil {
		fmt.Println(err)
		return
	}
	for _, name := range []string{"clean up", "send mails"} {
		g.Go(name, func(ctx context.Context) error {
			term, _ := leader.TermFrom(ctx)
			fmt.Println(term.Election, "runs")
			return nil // it is done, and leaves the group on this process
		})
	}
	fmt.Println(g.Wait())
	// Unordered output:
	// jobs/clean up runs
	// jobs/send mails runs
	// <nil>
}
