package leader_test

import (
	"context"
	"errors"
	"fmt"
	"time"

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

// The context of the leadership takes the place of the one that bounded the wait.
func ExampleElection_Campaign_context() {
	locks, _ := dsync.New(dsynctest.NewMemory(), nil)
	defer locks.Close(context.Background())
	leader, _ := leader.New(locks, "reports", nil)

	ctx, stop := context.WithCancel(context.Background())
	defer stop()
	{
		ctx, err := leader.Campaign(ctx) // cancelled when leadership is lost
		if err != nil {
			fmt.Println(err)
			return
		}
		defer leader.Resign(context.Background())
		fmt.Println("leading:", ctx.Err() == nil)
	}
	// Output: leading: true
}

// Before a process is restarted, it hands over to the candidate that runs the new version.
func ExampleElection_Transfer() {
	ctx, store := context.Background(), dsynctest.NewMemory()
	old, _ := dsync.New(store, &dsync.Options{Name: "node-1", App: "shop 1.2"})
	defer old.Close(ctx)
	updated, _ := dsync.New(store, &dsync.Options{Name: "node-2", App: "shop 1.3"})
	defer updated.Close(ctx)
	election, _ := leader.New(old, "reports", nil)
	next, _ := leader.New(updated, "reports", nil)

	election.Campaign(ctx)
	elected := next.CampaignChan(ctx) // in another process
	for handedOver := false; !handedOver; {
		candidates, err := election.Candidates(ctx)
		if err != nil {
			fmt.Println(err)
			return
		}
		for _, c := range candidates {
			if c.App == "shop 1.3" {
				handedOver = election.Transfer(ctx, c) == nil
			}
		}
	}
	term, _ := leader.TermFrom(<-elected)
	fmt.Println("term", term.Number, "of", term.Name)
	// Output: term 2 of node-2
}

// A background job of a service runs on one process of the fleet. It is a task of the process's
// errgroup like any other.
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

// An outage of the database often makes the work fail before the leadership is lost. If the
// work should resume after the outage, f waits for the end of its context, or tries again,
// instead of returning the error.
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

// If the work hangs, it leads only until its limit and the session's grace are over: then another process is
// elected. Run campaigns again when the work has returned.
func ExampleElection_Run_progress() {
	locks, _ := dsync.New(dsynctest.NewMemory(), nil)
	defer locks.Close(context.Background())
	election, _ := leader.New(locks, "reports", nil)

	err := election.Run(context.Background(), func(ctx context.Context) error {
		for _, customer := range []string{"Anna", "Ben"} {
			if err := dsync.HoldFrom(ctx).Progress(time.Minute); err != nil {
				return err
			}
			fmt.Println("report for", customer) // takes some seconds
		}
		return nil
	})
	fmt.Println(err)
	// Output:
	// report for Anna
	// report for Ben
	// <nil>
}

// Each function runs on one process of the fleet at a time.
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

// A Group's functions spread over the fleet. Beside them, in the errgroup of the process, Run
// leads an election of its own, and other tasks run on every process. The first error ends all.
func ExampleGroup_errgroup() {
	locks, _ := dsync.New(dsynctest.NewMemory(), nil)
	defer locks.Close(context.Background())

	tasks, ctx := errgroup.WithContext(context.Background())
	jobs, _, err := leader.NewGroup(ctx, locks, "jobs", nil)
	if err != nil {
		fmt.Println(err)
		return
	}
	for _, name := range []string{"clean up", "send mails"} {
		jobs.Go(name, func(ctx context.Context) error {
			fmt.Println(name)
			return nil // done; most jobs go on until ctx ends
		})
	}
	tasks.Go(jobs.Wait)

	election, _ := leader.New(locks, "reports", nil)
	tasks.Go(func() error {
		return election.Run(ctx, func(ctx context.Context) error {
			fmt.Println("report")
			return nil
		})
	})

	tasks.Go(func() error {
		fmt.Println("serve") // on every process
		return nil
	})
	fmt.Println(tasks.Wait())
	// Unordered output:
	// clean up
	// send mails
	// report
	// serve
	// <nil>
}
