package clientgo_test

import (
	"context"
	"sync"
	"testing"
	"time"

	"k8s.io/client-go/tools/leaderelection"

	"github.com/leasehold-go/leasehold/adapters/clientgo"
)

// The electors' durations, which meet the conditions in the package comment.
const (
	lease    = 6 * time.Second
	deadline = 3 * time.Second
	retry    = 200 * time.Millisecond
	timeout  = 700 * time.Millisecond
)

// A contest runs the electors of one election and counts the leaders.
type contest struct {
	*place
	started chan *candidate // receives each candidate that begins to lead

	mu       sync.Mutex
	leading  int
	overlaps int
}

// A candidate is an elector with a client of its own.
type candidate struct {
	*contest
	net     network
	lock    *clientgo.Lock
	endWork context.CancelFunc // ends the leader's work
	worked  chan struct{}      // closed when the leader's work has ended
	endRun  context.CancelFunc // ends Run
	ran     chan struct{}      // closed when Run has returned
}

func (c *contest) candidate(t *testing.T) *candidate {
	t.Helper()
	e := &candidate{contest: c, worked: make(chan struct{}), ran: make(chan struct{})}
	var err error
	e.lock, err = clientgo.New(c.client(t, &e.net).Database(c.db), "e", &clientgo.Options{Timeout: timeout})
	noErr(t, err)
	work, endWork := context.WithCancel(context.Background())
	run, endRun := context.WithCancel(context.Background())
	e.endWork, e.endRun = endWork, endRun
	elector, err := leaderelection.NewLeaderElector(leaderelection.LeaderElectionConfig{
		Lock:            e.lock,
		LeaseDuration:   lease,
		RenewDeadline:   deadline,
		RetryPeriod:     retry,
		ReleaseOnCancel: true,
		Callbacks: leaderelection.LeaderCallbacks{
			OnStartedLeading: func(ctx context.Context) {
				defer close(e.worked)
				c.count(1)
				c.started <- e
				select {
				case <-ctx.Done():
				case <-work.Done():
				}
				c.count(-1)
			},
			OnStoppedLeading: func() {},
		},
	})
	noErr(t, err)
	go func() {
		defer close(e.ran)
		elector.Run(run)
	}()
	t.Cleanup(func() {
		endWork()
		endRun()
		<-e.ran
	})
	return e
}

func (c *contest) count(n int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.leading += n; c.leading > 1 {
		c.overlaps++
	}
}

// next waits for the next leader.
func (c *contest) next(t *testing.T, within time.Duration) *candidate {
	t.Helper()
	select {
	case e := <-c.started:
		return e
	case <-time.After(within):
		t.Fatalf("nobody leads within %v", within)
		return nil
	}
}

// stop ends the leader's work, and then its elector, which releases the lease. It ends the elector just after a
// renewal, because a renewal in progress would be aborted and could make the release fail.
func (e *candidate) stop(t *testing.T) {
	t.Helper()
	e.endWork()
	<-e.worked
	lock := e.place.lock(t, nil)
	before, _ := get(t, lock)
	for {
		if now, _ := get(t, lock); !now.RenewTime.Equal(&before.RenewTime) {
			break
		}
		time.Sleep(time.Millisecond)
	}
	e.endRun()
	<-e.ran
}

// At most one of three processes leads at any time. After an orderly stop, another process leads soon. If
// the leader is cut off, another process leads when the lease has expired; the former leader has
// stopped by then.
func TestElectors(t *testing.T) {
	const slack = 20 * time.Second // for a busy machine
	c := &contest{place: newPlace(t), started: make(chan *candidate, 10)}
	for range 3 {
		c.candidate(t)
	}
	first := c.next(t, slack)
	if r, _ := get(t, c.place.lock(t, nil)); r.HolderIdentity != first.lock.Identity() {
		t.Errorf("the record names %q, but %q leads", r.HolderIdentity, first.lock.Identity())
	}

	time.Sleep(lease + deadline) // long enough to need renewals
	select {
	case <-first.worked:
		t.Fatal("the leader no longer leads")
	default:
	}

	first.stop(t)
	begin := time.Now()
	second := c.next(t, lease+slack)
	if took := time.Since(begin); took > lease/2 {
		t.Errorf("the next process led %v after the release, want less than half of LeaseDuration", took)
	}

	second.net.cut()
	begin = time.Now()
	third := c.next(t, lease+slack)
	if took := time.Since(begin); took < lease-deadline {
		t.Errorf("the next process led %v after the leader was cut off, want at least %v", took, lease-deadline)
	}
	<-second.worked

	third.stop(t)
	if r, _ := get(t, c.place.lock(t, nil)); r.HolderIdentity != "" || r.LeaderTransitions != 2 {
		t.Errorf("at the end the record is %+v, want a released one with 2 transitions", r)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.overlaps != 0 {
		t.Errorf("two processes led at the same time, %d times", c.overlaps)
	}
}
