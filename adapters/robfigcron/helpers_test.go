package robfigcron_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/robfig/cron/v3"

	"github.com/leasehold-go/leasehold/adapters/robfigcron"
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

// newLocker returns a Locker on a session of its own, and its log.
func newLocker(t testing.TB, store driver.Store, opt robfigcron.Options) (*robfigcron.Locker, *book) {
	t.Helper()
	log := &book{}
	opt.Logger = log
	l, err := robfigcron.NewLocker(newSession(t, store), &opt)
	if err != nil {
		t.Fatal(err)
	}
	return l, log
}

// A book is a cron.Logger that keeps what was logged.
type book struct {
	mu    sync.Mutex
	lines []string // such as "info skip" or "error skip: lost"
}

func (b *book) Info(msg string, _ ...any) { b.add("info " + msg) }

func (b *book) Error(err error, msg string, _ ...any) {
	switch {
	case errors.Is(err, dsync.ErrLost):
		b.add("error " + msg + ": lost")
	case errors.Is(err, dsync.ErrClosed):
		b.add("error " + msg + ": closed")
	default:
		b.add(fmt.Sprintf("error %s: other", msg))
	}
}

func (b *book) add(line string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.lines = append(b.lines, line)
}

// want checks the log.
func (b *book) want(t testing.TB, lines ...string) {
	t.Helper()
	b.mu.Lock()
	defer b.mu.Unlock()
	if !slices.Equal(b.lines, lines) {
		t.Errorf("logged %q, want %q", strings.Join(b.lines, ", "), strings.Join(lines, ", "))
	}
}

// schedule starts a crontab with one job, which is due at the end of each period, beginning with the current period.
// The crontab is stopped at the end of the test.
func schedule(t testing.TB, period time.Duration, job cron.Job) {
	t.Helper()
	c := cron.New(cron.WithLogger(cron.DiscardLogger))
	c.Schedule(cron.Every(period), job)
	c.Start()
	t.Cleanup(func() { <-c.Stop().Done() })
}

// runs counts the runs of a job on several processes.
type runs struct {
	mu      sync.Mutex
	n       int
	running int
	overlap bool
}

// job returns the job. Each run lasts d.
func (r *runs) job(d time.Duration) func() {
	return func() {
		r.mu.Lock()
		r.n++
		r.running++
		r.overlap = r.overlap || r.running > 1
		r.mu.Unlock()
		time.Sleep(d)
		r.mu.Lock()
		r.running--
		r.mu.Unlock()
	}
}

// count returns how often the job has run, and whether two runs overlapped.
func (r *runs) count() (n int, overlap bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.n, r.overlap
}
