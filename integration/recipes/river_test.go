package recipes_test

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/riverqueue/river"
	"github.com/riverqueue/river/rivertype"

	"github.com/leasehold-go/leasehold/dsync"
	"github.com/leasehold-go/leasehold/dsync/dsynctest"
	"github.com/leasehold-go/leasehold/leader"
)

type ReportArgs struct {
	Region string `json:"region"`
}

func (ReportArgs) Kind() string { return "report" }

// A ReportWorker makes only one report of each region at a time in the whole fleet.
type ReportWorker struct {
	river.WorkerDefaults[ReportArgs]
	Locks  *dsync.Session
	Report func(ctx context.Context, region string) error
}

func (w *ReportWorker) Work(ctx context.Context, job *river.Job[ReportArgs]) error {
	hold, err := w.Locks.Mutex("report/" + job.Args.Region).TryHold(ctx)
	if errors.Is(err, dsync.ErrHeld) {
		return river.JobSnooze(time.Minute) // it is being made; return nil instead to skip this run
	} else if err != nil {
		return err // River tries again
	}
	defer hold.Release(ctx)
	return w.Report(hold.Context(ctx), job.Args.Region) // ends if the lock is lost
}

// whileLeading returns a constructor that inserts a job only on the process that leads.
func whileLeading(election *leader.Election, args river.JobArgs) river.PeriodicJobConstructor {
	return func() (river.JobArgs, *river.InsertOpts) {
		if !election.IsLeader() { // compares the clock: never blocks
			return nil, nil // nothing is inserted
		}
		return args, nil
	}
}

// An HourlyWorker makes one report per hour in the whole fleet.
type HourlyWorker struct {
	river.WorkerDefaults[ReportArgs]
	Locks  *dsync.Session
	Report func(ctx context.Context) error
}

func (w *HourlyWorker) Work(ctx context.Context, job *river.Job[ReportArgs]) error {
	tick := job.CreatedAt.Round(time.Hour) // ScheduledAt moves with each retry
	_, err := w.Locks.Periodic("report").Do(ctx, tick, w.Report)
	return err // River tries again, here or on another process
}

func job(region string) *river.Job[ReportArgs] {
	return &river.Job[ReportArgs]{Args: ReportArgs{Region: region}}
}

// Two jobs for the same region never run at the same time: the second is snoozed. A job for another
// region runs.
func TestRiverWorkerRunsOneAtATime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := dsynctest.NewMemory()
		var running, runs atomic.Int64
		report := func(context.Context, string) error {
			running.Add(1)
			defer running.Add(-1)
			runs.Add(1)
			time.Sleep(5 * time.Minute) // the job takes longer than a TTL
			return nil
		}
		a := &ReportWorker{Locks: process(t, store, "a"), Report: report}
		b := &ReportWorker{Locks: process(t, store, "b"), Report: report}
		done := make(chan error)
		go func() { done <- a.Work(t.Context(), job("eu")) }()
		synctest.Wait()
		var snooze *river.JobSnoozeError
		if err := b.Work(t.Context(), job("eu")); !errors.As(err, &snooze) || snooze.Duration != time.Minute {
			t.Errorf("the second job: %v, want a snooze of a minute", err)
		}
		other := make(chan error)
		go func() { other <- b.Work(t.Context(), job("us")) }()
		synctest.Wait()
		if n := running.Load(); n != 2 {
			t.Errorf("%d run, want one for each region", n)
		}
		if err := <-other; err != nil {
			t.Error(err)
		}
		if err := <-done; err != nil {
			t.Error(err)
		}
		if err := b.Work(t.Context(), job("eu")); err != nil || runs.Load() != 3 {
			t.Errorf("when it is free: %v; %d runs, want 3", err, runs.Load())
		}
	})
}

// If a process is cut off while it runs a job, the job's context ends before another process gets
// the lock. That process gets the lock within a TTL.
func TestRiverWorkerThatIsCutOff(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := dsynctest.NewMemory()
		link := cuttable(t, store)
		ended := make(chan time.Time, 1)
		a := &ReportWorker{Locks: process(t, link, "a"), Report: func(ctx context.Context, _ string) error {
			select {
			case <-ctx.Done():
			case <-time.After(time.Hour):
			}
			ended <- time.Now()
			return context.Cause(ctx)
		}}
		b := &ReportWorker{Locks: process(t, store, "b"), Report: func(context.Context, string) error { return nil }}
		done := make(chan error, 1)
		go func() { done <- a.Work(t.Context(), job("eu")) }()
		synctest.Wait()
		link.Cut()
		begin := time.Now()
		for b.Work(t.Context(), job("eu")) != nil {
			time.Sleep(time.Second)
		}
		if took := time.Since(begin); took > 31*time.Second || len(ended) == 0 || time.Since(<-ended) < 3*time.Second {
			t.Errorf("the next run began %v after the cut, want at most 31s, and at least 3s after the end of the first run", took)
		}
		if err := <-done; !errors.Is(err, dsync.ErrLost) {
			t.Errorf("the cut-off job: %v, want ErrLost", err)
		}
		link.Heal()
	})
}

// Several processes whose clocks are minutes apart insert jobs for the same hour. One of the jobs runs. If it fails,
// another one runs.
func TestRiverWorksForEachHourOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := dsynctest.NewMemory()
		hour := time.Date(2026, 11, 1, 2, 0, 0, 0, time.UTC)
		failed := errors.New("failed")
		var runs []string
		for n, created := range []time.Duration{-2 * time.Minute, 0, 3 * time.Minute, 60 * time.Minute, 61 * time.Minute} {
			w := &HourlyWorker{Locks: process(t, store, "a"), Report: func(context.Context) error {
				runs = append(runs, fmt.Sprint(n))
				if n == 0 {
					return failed
				}
				return nil
			}}
			j := job("")
			j.JobRow = &rivertype.JobRow{CreatedAt: hour.Add(created)}
			if err := w.Work(t.Context(), j); n == 0 && !errors.Is(err, failed) || n > 0 && err != nil {
				t.Errorf("job %d: %v", n, err)
			}
		}
		if got := fmt.Sprint(runs); got != "[0 1 3]" {
			t.Errorf("jobs %s ran, want 0, which failed, 1 and 3", got)
		}
	})
}

// Only the leader inserts jobs, and after its crash the next leader does.
func TestRiverConstructorOfTheLeader(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := dsynctest.NewMemory()
		link := cuttable(t, store)
		a, b := elect(t, process(t, link, "a"), "reports"), elect(t, process(t, store, "b"), "reports")
		ofA, ofB := whileLeading(a, ReportArgs{}), whileLeading(b, ReportArgs{})
		inserted := func() string {
			argsA, _ := ofA()
			argsB, _ := ofB()
			return fmt.Sprint(argsA != nil, argsB != nil)
		}
		if got := inserted(); got != "false false" {
			t.Errorf("before the election: %s", got)
		}
		a.Campaign(t.Context())
		elected := b.CampaignChan(t.Context())
		synctest.Wait()
		if got := inserted(); got != "true false" {
			t.Errorf("a leads: %s", got)
		}
		link.Cut()
		for range 60 {
			time.Sleep(time.Second)
			if inserted() == "true true" {
				t.Fatal("both insert")
			}
		}
		<-elected
		if got := inserted(); got != "false true" {
			t.Errorf("b leads: %s", got)
		}
		link.Heal()
	})
}

// The recipe as part of a client's configuration.
func Example_river() {
	locks, err := dsync.New(dsynctest.NewMemory(), nil)
	if err != nil {
		fmt.Println(err)
		return
	}
	defer locks.Close(context.Background())
	election, err := leader.New(locks, "reports", nil)
	if err != nil {
		fmt.Println(err)
		return
	}

	workers := river.NewWorkers()
	river.AddWorker(workers, &ReportWorker{Locks: locks, Report: func(context.Context, string) error { return nil }})
	config := &river.Config{
		Workers: workers,
		PeriodicJobs: []*river.PeriodicJob{
			river.NewPeriodicJob(river.PeriodicInterval(15*time.Minute), whileLeading(election, ReportArgs{Region: "eu"}), nil),
		},
	}

	fmt.Println(len(config.PeriodicJobs), "periodic job")
	// Output: 1 periodic job
}
