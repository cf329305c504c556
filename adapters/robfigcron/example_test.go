package robfigcron_test

import (
	"context"
	"fmt"
	"log"
	"time"

	"github.com/robfig/cron/v3"

	"github.com/leasehold-go/leasehold/adapters/robfigcron"
	"github.com/leasehold-go/leasehold/dsync"
	"github.com/leasehold-go/leasehold/dsync/dsynctest"
)

// Two processes have the same job in their crontabs, and one of them runs it. A program
// opens its session on a database, with Open of package dsync/mongo.
func Example() {
	store := dsynctest.NewMemory()
	report := cron.FuncJob(func() { fmt.Println("the report is written") })
	for range 2 {
		locks, err := dsync.New(store, nil)
		if err != nil {
			log.Fatal(err)
		}
		defer locks.Close(context.Background())
		locker, err := robfigcron.NewLocker(locks, nil)
		if err != nil {
			log.Fatal(err)
		}
		c := cron.New()
		id, err := c.AddJob("@hourly", cron.NewChain(locker.JobWrapper("report", 59*time.Minute)).Then(report))
		if err != nil {
			log.Fatal(err)
		}
		c.Entry(id).WrappedJob.Run() // a program calls c.Start instead
	}
	// Output: the report is written
}

// A job's context ends if its lock is lost.
func ExampleLocker_Job() {
	locks, err := dsync.New(dsynctest.NewMemory(), nil)
	if err != nil {
		log.Fatal(err)
	}
	defer locks.Close(context.Background())
	locker, err := robfigcron.NewLocker(locks, nil)
	if err != nil {
		log.Fatal(err)
	}
	job := locker.Job("invoices", 23*time.Hour, func(ctx context.Context) {
		for n := 1; n <= 3 && ctx.Err() == nil; n++ {
			fmt.Println("invoice", n)
		}
	})
	c := cron.New()
	id, err := c.AddJob("@daily", job)
	if err != nil {
		log.Fatal(err)
	}
	c.Entry(id).WrappedJob.Run() // a program calls c.Start instead
	// Output:
	// invoice 1
	// invoice 2
	// invoice 3
}

// In the whole fleet, a job runs once at each of its times, whatever the hosts' clocks show. If it fails on one host,
// another host runs it.
func ExampleLocker_AddPeriodic() {
	locks, err := dsync.New(dsynctest.NewMemory(), nil)
	if err != nil {
		log.Fatal(err)
	}
	defer locks.Close(context.Background())
	locker, err := robfigcron.NewLocker(locks, nil)
	if err != nil {
		log.Fatal(err)
	}
	c := cron.New(cron.WithLocation(time.UTC))
	_, err = locker.AddPeriodic(c, "0 2 * * *", "nightly", func(ctx context.Context, tick time.Time) error {
		fmt.Println("backing up", tick)
		return nil
	})
	if err != nil {
		log.Fatal(err)
	}
	c.Start()
	defer c.Stop()
	fmt.Println(len(c.Entries()), "job")
	// Output: 1 job
}

// Two programs that share a database have a job with the same name. Each runs its own job.
func ExampleOptions() {
	locks, err := dsync.New(dsynctest.NewMemory(), nil)
	if err != nil {
		log.Fatal(err)
	}
	defer locks.Close(context.Background())
	for _, program := range []string{"shop", "blog"} {
		locker, err := robfigcron.NewLocker(locks, &robfigcron.Options{Prefix: program + "/cron/"})
		if err != nil {
			log.Fatal(err)
		}
		locker.Job("clean up", 23*time.Hour, func(context.Context) { fmt.Println("cleaning up the", program) }).Run()
	}
	// Output:
	// cleaning up the shop
	// cleaning up the blog
}
