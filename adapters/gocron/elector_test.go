package gocron_test

import (
	"context"
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-co-op/gocron/v2"

	dsyncgocron "github.com/leasehold-go/leasehold/adapters/gocron"
	"github.com/leasehold-go/leasehold/dsync"
	"github.com/leasehold-go/leasehold/dsync/admin"
	"github.com/leasehold-go/leasehold/dsync/driver"
	"github.com/leasehold-go/leasehold/dsync/dsynctest"
	"github.com/leasehold-go/leasehold/leader"
)

// A process has a scheduler whose jobs run only while its elector leads.
type process struct {
	session  *dsync.Session
	election *leader.Election
	elector  *dsyncgocron.Elector
	shutdown func() // shuts down its scheduler
	stop     func() // ends Run, and waits for it
	store    *dsynctest.Faulty
}

// elect starts process i. Its job takes no time.
func elect(t *testing.T, store driver.Store, r *runs, i int) *process {
	t.Helper()
	p := &process{store: dsynctest.NewFaulty(store, nil)}
	t.Cleanup(p.store.Close)
	p.session = newSession(t, p.store)
	var err error
	if p.election, err = leader.New(p.session, "jobs", nil); err != nil {
		t.Fatal(err)
	}
	if p.elector, err = dsyncgocron.NewElector(p.election); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(background)
	var wg sync.WaitGroup
	wg.Go(func() {
		if err := p.elector.Run(ctx); !errors.Is(err, context.Canceled) {
			t.Errorf("Run returned %v, want Canceled", err)
		}
	})
	p.stop = func() { cancel(); wg.Wait() }
	t.Cleanup(p.stop)
	p.shutdown = schedule(t, time.Now().Add(1500*time.Millisecond), time.Second, r.job(i, 0), gocron.WithDistributedElector(p.elector))
	synctest.Wait() // so that the first process leads
	return p
}

// All jobs run on the leader. When it has stopped, they run on the next leader.
func TestElectorRunsJobsOnTheLeader(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var r runs
		store := dsynctest.NewMemory()
		a, b := elect(t, store, &r, 0), elect(t, store, &r, 1)
		time.Sleep(time.Minute)
		if on0, on1 := r.count(); on0 != 59 || on1 != 0 {
			t.Errorf("the job ran %d times on the leader and %d times on the other process, want 59 and 0", on0, on1)
		}
		if err := b.elector.IsLeader(background); !errors.Is(err, leader.ErrNotLeader) {
			t.Errorf("IsLeader of an Elector that does not lead returned %v, want ErrNotLeader", err)
		}
		a.shutdown()
		a.stop()
		synctest.Wait()
		if err := b.elector.IsLeader(background); err != nil {
			t.Errorf("the other process does not lead although the leader has stopped: %v", err)
		}
		time.Sleep(time.Minute)
		if on0, on1 := r.count(); on0 != 59 || on1 != 60 {
			t.Errorf("after the change the job had run %d times on the former leader and %d times on the next, want 59 and 60", on0, on1)
		}
	})
}

// A leader that is cut off runs no job after its deadline, and the other process runs jobs only after that. When the
// first process is connected again, it is a candidate, not the leader.
func TestElectorLosesTheLead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var r runs
		store := dsynctest.NewMemory()
		a, b := elect(t, store, &r, 0), elect(t, store, &r, 1)
		time.Sleep(time.Minute)
		a.store.Cut()
		for range 20 * ttl / (10 * time.Millisecond) {
			if a.elector.IsLeader(background) == nil && b.elector.IsLeader(background) == nil {
				t.Fatal("both processes lead")
			}
			time.Sleep(10 * time.Millisecond)
		}
		on0, on1 := r.count()
		if total := on0 + on1; on1 == 0 || total > 259 || total < 259-int(2*ttl/time.Second) {
			t.Errorf("the job ran %d and %d times in 260 seconds with a loss, want about 250 in all, some of them on the second process", on0, on1)
		}
		a.store.Heal()
		time.Sleep(2 * ttl)
		if now, _ := r.count(); now != on0 {
			t.Errorf("the former leader ran the job %d more times while the other process led", now-on0)
		}
		b.shutdown()
		b.stop()
		time.Sleep(ttl)
		if now, _ := r.count(); now == on0 {
			t.Error("the former leader did not campaign again")
		}
	})
}

// An error that waiting can't fix ends Run.
func TestElectorRunEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		if _, err := dsyncgocron.NewElector(nil); err == nil {
			t.Error("NewElector accepted a nil election")
		}
		s := newSession(t, dsynctest.NewMemory())
		election, err := leader.New(s, "jobs", nil)
		if err != nil {
			t.Fatal(err)
		}
		elector, err := dsyncgocron.NewElector(election)
		if err != nil {
			t.Fatal(err)
		}
		time.AfterFunc(time.Minute, func() { s.Close(background) })
		if err := elector.Run(background); !errors.Is(err, dsync.ErrClosed) {
			t.Errorf("Run returned %v when the session was closed, want ErrClosed", err)
		}
	})
}

// A process that has lost the leadership and waits to be elected again is healthy. Otherwise a liveness probe that
// checks for dsync.ErrStillInUse would restart it again and again. After a loss, running jobs have the grace to end
// before another process leads. By resigning or pausing, a process declares that its jobs have ended.
func TestFormerLeaderIsHealthy(t *testing.T) {
	losses := []struct {
		name  string
		lose  func(t *testing.T, leader, other *process)
		grace bool // the grace passes before another process leads
	}{
		{"Break", func(t *testing.T, _, other *process) {
			if err := admin.New(other.session).Break(background, "jobs"); err != nil {
				t.Error(err)
			}
		}, true},
		{"outage", func(_ *testing.T, leader, _ *process) {
			leader.store.Cut()
			time.AfterFunc(3*ttl, leader.store.Heal)
		}, true},
		{"Resign", func(_ *testing.T, leader, _ *process) { leader.election.Resign(background) }, false},
		{"Pause", func(_ *testing.T, leader, _ *process) { leader.election.Pause(background) }, false},
	}
	for _, loss := range losses {
		t.Run(loss.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var r runs
				store := dsynctest.NewMemory()
				a, b := elect(t, store, &r, 0), elect(t, store, &r, 1)
				time.Sleep(time.Minute)
				var lost, next time.Time
				go loss.lose(t, a, b)
				for range 10 * time.Minute / (50 * time.Millisecond) {
					synctest.Wait()
					if err := a.session.Healthy(); errors.Is(err, dsync.ErrStillInUse) {
						t.Fatalf("the former leader is unhealthy %v after the loss: %v", time.Since(lost), err)
					}
					if lost.IsZero() && a.elector.IsLeader(background) != nil {
						lost = time.Now()
					}
					if next.IsZero() && b.elector.IsLeader(background) == nil {
						next = time.Now()
					}
					time.Sleep(50 * time.Millisecond)
				}
				if lost.IsZero() || next.IsZero() {
					t.Fatalf("the leadership was lost at %v, and the other process led from %v on, want both within 10 minutes", lost, next)
				}
				if apart, grace := next.Sub(lost), a.session.Options().Grace; loss.grace && apart < grace-50*time.Millisecond || !loss.grace && apart > 50*time.Millisecond {
					t.Errorf("the other process led %v after the loss; the grace is %v", apart, grace)
				}
			})
		})
	}
}
