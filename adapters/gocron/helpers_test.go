package gocron_test

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/go-co-op/gocron/v2"

	"github.com/leasehold-go/leasehold/dsync"
	"github.com/leasehold-go/leasehold/dsync/driver"
)

const ttl = 10 * time.Second

var background = context.Background()

// newSession returns a session that is closed at the end of the test.
func newSession(t testing.TB, store driver.Store) *dsync.Session {
	t.Helper()
	s, err := dsync.New(store, &dsync.Options{TTL: ttl})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close(background) })
	return s
}

// schedule starts a scheduler with one job that begins at the given time and repeats after each
// period. The scheduler is shut down at the end of the test, or by the returned function.
func schedule(t testing.TB, at time.Time, period time.Duration, job func(), opt gocron.SchedulerOption) (shutdown func()) {
	t.Helper()
	s, err := gocron.NewScheduler(opt)
	if err != nil {
		t.Fatal(err)
	}
	_, err = s.NewJob(gocron.DurationJob(period), gocron.NewTask(job),
		gocron.WithName("report"), gocron.WithStartAt(gocron.WithStartDateTime(at)))
	if err != nil {
		t.Fatal(err)
	}
	s.Start()
	shutdown = sync.OnceFunc(func() {
		if err := s.Shutdown(); err != nil {
			t.Error(err)
		}
	})
	t.Cleanup(shutdown)
	return shutdown
}

// runs counts the runs of a job on several processes.
type runs struct {
	mu      sync.Mutex
	by      map[int]int
	running int
	overlap bool
}

// job returns the job for process i. Each run lasts d.
func (r *runs) job(i int, d time.Duration) func() {
	return func() {
		r.mu.Lock()
		if r.by == nil {
			r.by = make(map[int]int)
		}
		r.by[i]++
		r.running++
		r.overlap = r.overlap || r.running > 1
		r.mu.Unlock()
		time.Sleep(d)
		r.mu.Lock()
		r.running--
		r.mu.Unlock()
	}
}

// count returns how often the job has run on each process.
func (r *runs) count() (on0, on1 int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.by[0], r.by[1]
}
