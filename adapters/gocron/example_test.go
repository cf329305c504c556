package gocron_test

import (
	"context"
	"fmt"
	"log"
	"sync"
	"time"

	"github.com/go-co-op/gocron/v2"

	dsyncgocron "github.com/leasehold-go/leasehold/adapters/gocron"
	"github.com/leasehold-go/leasehold/dsync"
	"github.com/leasehold-go/leasehold/dsync/dsynctest"
	"github.com/leasehold-go/leasehold/leader"
)

// Two processes have the same job, and one of them runs it. A program opens its session on a
// database, with Open of package dsync/mongo.
func Example() {
	store := dsynctest.NewMemory()
	done := make(chan struct{}, 1)
	for range 2 {
		locks, err := dsync.New(store, nil)
		if err != nil {
			log.Fatal(err)
		}
		defer locks.Close(context.Background())
		locker, err := dsyncgocron.NewLocker(locks, 59*time.Minute, nil) // for hourly jobs
		if err != nil {
			log.Fatal(err)
		}
		scheduler, err := gocron.NewScheduler(gocron.WithDistributedLocker(locker))
		if err != nil {
			log.Fatal(err)
		}
		defer scheduler.Shutdown()
		_, err = scheduler.NewJob(
			gocron.OneTimeJob(gocron.OneTimeJobStartImmediately()),
			gocron.NewTask(func() { fmt.Println("the report is made"); done <- struct{}{} }),
			gocron.WithName("report"),
		)
		if err != nil {
			log.Fatal(err)
		}
		scheduler.Start()
	}
	<-done
	// Output: the report is made
}

// A process runs its jobs while it leads.
func ExampleElector() {
	locks, err := dsync.New(dsynctest.NewMemory(), nil)
	if err != nil {
		log.Fatal(err)
	}
	defer locks.Close(context.Background())
	election, err := leader.New(locks, "jobs", nil)
	if err != nil {
		log.Fatal(err)
	}
	elector, err := dsyncgocron.NewElector(election)
	if err != nil {
		log.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	var wg sync.WaitGroup
	wg.Go(func() { fmt.Println(elector.Run(ctx)) })

	scheduler, err := gocron.NewScheduler(gocron.WithDistributedElector(elector))
	if err != nil {
		log.Fatal(err)
	}
	ran := make(chan struct{})
	once := sync.OnceFunc(func() { fmt.Println("the report is made"); close(ran) })
	if _, err := scheduler.NewJob(gocron.DurationJob(10*time.Millisecond), gocron.NewTask(once)); err != nil {
		log.Fatal(err)
	}
	scheduler.Start()
	<-ran

	// Shut the scheduler down first: that waits for its jobs.
	if err := scheduler.Shutdown(); err != nil {
		log.Fatal(err)
	}
	cancel()
	wg.Wait()
	// Output:
	// the report is made
	// context canceled
}

// In the whole fleet, a job runs once for each hour, without a Locker or an Elector. Each process calls Do for the last
// hour that is due, or nearly due, by its own clock.
func Example_periodic() {
	locks, err := dsync.New(dsynctest.NewMemory(), nil)
	if err != nil {
		log.Fatal(err)
	}
	defer locks.Close(context.Background())
	scheduler, err := gocron.NewScheduler(gocron.WithLocation(time.UTC))
	if err != nil {
		log.Fatal(err)
	}
	defer scheduler.Shutdown()
	report := locks.Periodic("report")
	job, err := scheduler.NewJob(
		gocron.CronJob("0 * * * *", false),
		gocron.NewTask(func(ctx context.Context) error {
			_, err := report.Do(ctx, time.Now().Add(time.Minute).Truncate(time.Hour), func(ctx context.Context) error {
				fmt.Println("the report is made")
				return nil
			})
			return err
		}),
	)
	if err != nil {
		log.Fatal(err)
	}
	scheduler.Start()
	if err := job.RunNow(); err != nil {
		log.Fatal(err)
	}
	for { // a program does other things meanwhile
		tick, _, err := report.Last(context.Background())
		if err != nil {
			log.Fatal(err)
		}
		if !tick.IsZero() {
			break
		}
	}
	// Output: the report is made
}

// Two programs that share a database have a job with the same name. Each runs its own job.
func ExampleLockerOptions() {
	ctx := context.Background()
	locks, err := dsync.New(dsynctest.NewMemory(), nil)
	if err != nil {
		log.Fatal(err)
	}
	defer locks.Close(ctx)
	for _, program := range []string{"shop", "blog"} {
		locker, err := dsyncgocron.NewLocker(locks, time.Hour, &dsyncgocron.LockerOptions{Prefix: program + "/gocron/"})
		if err != nil {
			log.Fatal(err)
		}
		lock, err := locker.Lock(ctx, "clean up") // as gocron does before it runs the job
		if err != nil {
			log.Fatal(err)
		}
		fmt.Println("cleaning up the", program, lock.Unlock(ctx))
	}
	// Output:
	// cleaning up the shop <nil>
	// cleaning up the blog <nil>
}
