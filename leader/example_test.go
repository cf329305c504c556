package leader_test

import (
	"context"
	"errors"
	"fmt"
	"os"
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

	// Work under ctx, which is cancelled when the leadership is lost.

	election.Resign(context.Background())
	fmt.Println(context.Cause(ctx))
	// Output:
	// term 1 of node-1
	// leader: resigned
}

// The returned context replaces the context that bounded the wait.
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
			if c.App != "shop 1.3" {
				continue
			}
			if err := election.Transfer(ctx, c); err == nil {
				handedOver = true
			} else if !errors.Is(err, leader.ErrNotCandidate) { // the candidate may have stopped meanwhile
				fmt.Println(err)
				return
			}
		}
	}
	term, _ := leader.TermFrom(<-elected)
	fmt.Println("term", term.Number, "of", term.Name)
	// Output: term 2 of node-2
}

// The database is in zone 2. Of the candidates that wait, one in that zone is elected. A leader in zone 1 hands over to
// such a candidate once it has led for ten minutes.
func ExampleOptions() {
	ctx, store := context.Background(), dsynctest.NewMemory()
	var nodes []*leader.Election
	for i, preference := range []int{1, 1, 2} { // the number of the node's zone
		locks, _ := dsync.New(store, &dsync.Options{Name: fmt.Sprint("node-", i+1)})
		defer locks.Close(ctx)
		election, _ := leader.New(locks, "reports", &leader.Options{Preference: preference, YieldAfter: 10 * time.Minute})
		nodes = append(nodes, election)
	}
	nodes[0].Campaign(ctx)
	for i := 1; i < 3; i++ { // in other processes
		go nodes[i].Campaign(ctx)
		for all, _ := nodes[0].Candidates(ctx); len(all) < i+1; all, _ = nodes[0].Candidates(ctx) {
		}
	}

	nodes[0].Resign(ctx)
	next, err := nodes[0].Leader(ctx)
	fmt.Println(next.Name, err)
	// Output: node-3 <nil>
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

// An outage of the database often makes the work fail before the leadership is lost. If the work
// should resume after the outage, the function must not return the error, but wait for its context
// to end or try again.
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
			<-ctx.Done() // in an outage the leadership is lost, and then Run campaigns again
		}
		return ctx.Err()
	})
	fmt.Println(err)
	// Output:
	// waiting: connection refused
	// context canceled
}

// If the work hangs longer than its limit, the term ends, and another process is elected after the session's
// grace. Run campaigns again when the work has returned.
func ExampleElection_Run_progress() {
	locks, _ := dsync.New(dsynctest.NewMemory(), nil)
	defer locks.Close(context.Background())
	election, _ := leader.New(locks, "reports", nil)

	err := election.Run(context.Background(), func(ctx context.Context) error {
		for _, customer := range []string{"Anna", "Ben"} {
			if err := dsync.HoldFrom(ctx).Progress(time.Minute); err != nil {
				return err
			}
			fmt.Println("report for", customer) // this takes some seconds
		}
		return nil
	})
	fmt.Println(err)
	// Output:
	// report for Anna
	// report for Ben
	// <nil>
}

// Each function runs on only one process of the fleet at a time.
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
			return nil // the function is done, so it leaves the group on this process
		})
	}
	fmt.Println(g.Wait())
	// Unordered output:
	// jobs/clean up runs
	// jobs/send mails runs
	// <nil>
}

// A Group's functions spread over the fleet. Besides the Group, the process's errgroup has an election of its own, and
// a task that runs on every process. The first error ends all of them.
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
			return nil // this job is done; most jobs run until ctx ends
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
		fmt.Println("serve") // this runs on every process
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

// Every process learns who leads, and where to reach the leader: its address is published with its term.
func ExampleElection_Observe() {
	ctx, store := context.Background(), dsynctest.NewMemory()
	locks, _ := dsync.New(store, &dsync.Options{Name: "node-1"})
	defer locks.Close(ctx)
	election, _ := leader.New(locks, "primary", &leader.Options{Value: []byte("10.0.0.7:8080")})

	other, _ := dsync.New(store, nil) // in another process
	defer other.Close(ctx)
	follower, _ := leader.New(other, "primary", nil)
	changes := follower.Observe(ctx)

	election.Campaign(ctx)
	defer election.Resign(ctx)
	for l := range changes {
		if l.Session != "" { // somebody leads
			fmt.Println(l.Name, "leads at", string(l.Value))
			break
		}
	}
	// Output: node-1 leads at 10.0.0.7:8080
}

// A status page shows who leads, since when, and whether it is this process.
func ExampleElection_Leader() {
	ctx := context.Background()
	locks, _ := dsync.New(dsynctest.NewMemory(), &dsync.Options{Name: "node-1", Host: "host-1"})
	defer locks.Close(ctx)
	election, _ := leader.New(locks, "reports", nil)

	show := func(term leader.Term) {
		l, err := election.Leader(ctx)
		switch {
		case errors.Is(err, leader.ErrNoLeader):
			fmt.Println("nobody leads")
		case err != nil:
			fmt.Println(err)
		default:
			fmt.Println("term", l.Term, "on", l.Host, "since", time.Since(l.Since).Round(time.Minute))
			fmt.Println("this session:", l.Session == term.Session, "this process:", l.PID == os.Getpid())
			fmt.Println("writes with a smaller token are stale:", l.Token == term.Token)
		}
	}
	show(leader.Term{})
	work, err := election.Campaign(ctx)
	if err != nil {
		fmt.Println(err)
		return
	}
	defer election.Resign(ctx)
	term, _ := leader.TermFrom(work)
	show(term)
	// Output:
	// nobody leads
	// term 1 on host-1 since 0s
	// this session: true this process: true
	// writes with a smaller token are stale: true
}

// Publish replaces what the others see while the term lasts.
func ExampleElection_Publish() {
	ctx := context.Background()
	locks, _ := dsync.New(dsynctest.NewMemory(), &dsync.Options{Name: "node-1"})
	defer locks.Close(ctx)
	election, _ := leader.New(locks, "primary", &leader.Options{Value: []byte("starting")})

	election.Campaign(ctx)
	defer election.Resign(ctx)
	if err := election.Publish(ctx, []byte("10.0.0.7:8080")); err != nil {
		fmt.Println(err)
		return
	}
	l, err := election.Leader(ctx)
	fmt.Println(l.Name, string(l.Value), err)
	// Output: node-1 10.0.0.7:8080 <nil>
}

// A dashboard shows who would lead next.
func ExampleElection_ObserveCandidates() {
	ctx, store := context.Background(), dsynctest.NewMemory()
	var elections []*leader.Election
	for _, name := range []string{"node-1", "node-2"} {
		locks, _ := dsync.New(store, &dsync.Options{Name: name})
		defer locks.Close(ctx)
		election, _ := leader.New(locks, "reports", nil)
		defer election.Resign(ctx)
		elections = append(elections, election)
	}
	elections[0].Campaign(ctx)
	elections[1].CampaignChan(ctx)

	for all := range elections[0].ObserveCandidates(ctx) {
		if len(all) == 2 {
			fmt.Println(all[0].Name, "leads,", all[1].Name, "is next")
			break
		}
	}
	// Output: node-1 leads, node-2 is next
}

// A loop that also does other things handles leadership as one more event.
func ExampleElection_CampaignChan() {
	ctx := context.Background()
	locks, _ := dsync.New(dsynctest.NewMemory(), nil)
	defer locks.Close(ctx)
	election, _ := leader.New(locks, "reports", nil)
	defer election.Resign(ctx)

	requests := make(chan string)
	elected := election.CampaignChan(ctx)
	select {
	case r := <-requests:
		fmt.Println("serving", r)
	case term := <-elected:
		if term == nil {
			fmt.Println("not elected") // for example because the session was closed
			return
		}
		fmt.Println("leading:", term.Err() == nil)
	}
	// Output: leading: true
}

// A job that cron starts on every host does its work on only one of them.
func ExampleElection_TryCampaign() {
	ctx, store := context.Background(), dsynctest.NewMemory()
	for _, name := range []string{"host-1", "host-2"} {
		locks, _ := dsync.New(store, &dsync.Options{Name: name})
		defer locks.Close(ctx)
		election, _ := leader.New(locks, "nightly", nil)
		_, err := election.TryCampaign(ctx)
		defer election.Resign(ctx)
		var held *dsync.HeldError
		switch {
		case errors.As(err, &held):
			fmt.Println(name, "does nothing:", held.Name, "leads")
		case err == nil:
			fmt.Println(name, "works")
		}
	}
	// Output:
	// host-1 works
	// host-2 does nothing: host-1 leads
}

// Before the maintenance of a machine, its process stops leading, so that another process can lead. After Resume, it
// can be elected again.
func ExampleElection_Pause() {
	ctx := context.Background()
	locks, _ := dsync.New(dsynctest.NewMemory(), nil)
	defer locks.Close(ctx)
	election, _ := leader.New(locks, "reports", nil)

	election.Campaign(ctx)
	fmt.Println(election)
	if err := election.Pause(ctx); err != nil {
		fmt.Println(err)
	}
	fmt.Println(election)
	_, err := election.TryCampaign(ctx)
	fmt.Println("refused:", errors.Is(err, leader.ErrPaused))
	election.Resume()
	fmt.Println(election)
	// Output:
	// election "reports": leading, term 1
	// election "reports": not leading, paused
	// refused: true
	// election "reports": not leading
}

// The leader has sent requests that other systems will be working on for another minute. Nobody leads during that
// minute.
func ExampleElection_ResignAfter() {
	ctx := context.Background()
	locks, _ := dsync.New(dsynctest.NewMemory(), nil)
	defer locks.Close(ctx)
	election, _ := leader.New(locks, "reports", nil)

	election.Campaign(ctx)
	fmt.Println(election.ResignAfter(ctx, time.Minute))
	_, err := election.Leader(ctx)
	fmt.Println(err)
	// Output:
	// <nil>
	// leader: "reports": leader: nobody leads
}

// Hooks log what happens to an election. Because they are set in its options, they miss no event.
func ExampleHooks() {
	ctx := context.Background()
	locks, _ := dsync.New(dsynctest.NewMemory(), nil)
	logged := make(chan string)
	election, _ := leader.New(locks, "reports", &leader.Options{Hooks: &leader.Hooks{
		Elected:      func(_ context.Context, t leader.Term) { logged <- fmt.Sprint("elected for term ", t.Number) },
		Lost:         func(t leader.Term, cause error) { logged <- fmt.Sprint("term ", t.Number, " ended: ", cause) },
		ReturnedLate: func(t leader.Term, err error) { logged <- fmt.Sprint("the work of term ", t.Number, " failed: ", err) },
	}})

	election.Campaign(ctx)
	fmt.Println(<-logged)
	election.Resign(ctx)
	fmt.Println(<-logged)
	locks.Close(ctx)
	// Output:
	// elected for term 1
	// term 1 ended: leader: resigned
}

// A process that only forwards requests to the leader keeps the last reading, even during an outage of the store.
func ExampleHooks_observer() {
	ctx, store := context.Background(), dsynctest.NewMemory()
	locks, _ := dsync.New(store, &dsync.Options{Name: "node-1"})
	defer locks.Close(ctx)
	election, _ := leader.New(locks, "primary", &leader.Options{Value: []byte("10.0.0.7:8080")})
	election.Campaign(ctx)
	defer election.Resign(ctx)

	other, _ := dsync.New(store, nil) // in another process
	defer other.Close(ctx)
	changed, read := make(chan string, 1), make(chan string, 1)
	follower, _ := leader.New(other, "primary", &leader.Options{Hooks: &leader.Hooks{
		NewLeader: func(before, now leader.Leader) { changed <- fmt.Sprintf("%q -> %q", before.Name, now.Name) },
		Refreshed: func(r leader.Reading) {
			select {
			case read <- fmt.Sprintf("%s; here: %t, %v", r.Leader.Value, r.IsLeader, r.Err):
			default:
			}
		},
	}})
	follower.Observe(ctx) // from here on, the hooks are called
	fmt.Println(<-changed)
	fmt.Println(<-read)
	// Output:
	// "" -> "node-1"
	// 10.0.0.7:8080; here: false, <nil>
}

// The group is not balanced, because its functions take a long time to start. Each function has its own hooks.
func ExampleGroupOptions() {
	ctx := context.Background()
	locks, _ := dsync.New(dsynctest.NewMemory(), nil)
	defer locks.Close(ctx)
	begun := make(chan string)
	jobs, _, err := leader.NewGroup(ctx, locks, "jobs", &leader.GroupOptions{
		BalanceInterval: -1,
		Election: &leader.Options{Hooks: &leader.Hooks{
			Elected: func(_ context.Context, t leader.Term) { begun <- t.Election },
		}},
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	mails, _ := jobs.Go("mails", func(ctx context.Context) error {
		<-ctx.Done()
		return ctx.Err()
	})
	fmt.Println(<-begun, "is function", mails.Name)
	l, err := mails.Election.Leader(ctx)
	fmt.Println("term", l.Term, err)
	mails.Remove(ctx)
	fmt.Println(jobs.Wait())
	// Output:
	// jobs/mails is function mails
	// term 1 <nil>
	// <nil>
}

// Remove takes the function out of the group on this process, and another process then runs it.
func ExampleGroup_List() {
	ctx := context.Background()
	locks, _ := dsync.New(dsynctest.NewMemory(), nil)
	defer locks.Close(ctx)
	jobs, _, _ := leader.NewGroup(ctx, locks, "jobs", nil)
	started := make(chan bool)
	mails, _ := jobs.Go("mails", func(ctx context.Context) error {
		started <- true
		<-ctx.Done()
		return ctx.Err() // it has stopped
	})
	<-started
	for _, s := range jobs.List() {
		fmt.Println(s, s.Running())
		s.Remove(ctx)
	}
	<-mails.Done()
	fmt.Println(mails)
	fmt.Println(jobs.Wait())
	// Output:
	// function "mails" of group "jobs": running, term 1 true
	// function "mails" of group "jobs": left the group
	// <nil>
}
