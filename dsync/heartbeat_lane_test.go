package dsync_test

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/leasehold-go/leasehold/dsync"
	"github.com/leasehold-go/leasehold/dsync/admin"
	"github.com/leasehold-go/leasehold/dsync/driver"
	"github.com/leasehold-go/leasehold/dsync/dsynctest"
	"github.com/leasehold-go/leasehold/internal/testkit"
)

// A pool is a store behind a fixed number of connections. Edits and heartbeats get a connection in FIFO order, and each
// takes a fixed time.
type pool struct {
	driver.Store
	conns chan struct{}
	took  time.Duration
}

func (p *pool) use(ctx context.Context) error {
	select {
	case p.conns <- struct{}{}:
	case <-ctx.Done():
		return ctx.Err()
	}
	time.Sleep(p.took)
	<-p.conns
	return ctx.Err()
}

func (p *pool) Edit(ctx context.Context, e driver.Edit) (driver.Edited, error) {
	if err := p.use(ctx); err != nil {
		return driver.Edited{}, err
	}
	return p.Store.Edit(ctx, e)
}

func (p *pool) Heartbeat(ctx context.Context, s string, given []driver.Revocation) (driver.HeartbeatReply, error) {
	if err := p.use(ctx); err != nil {
		return driver.HeartbeatReply{}, err
	}
	return p.Store.Heartbeat(ctx, s, given)
}

// Heartbeats do not queue behind other commands of their session, and an Unlock does not queue behind polls. Here 900
// waiters poll, and 225 goroutines try again and again.
func TestPollsDontDelayHeartbeats(t *testing.T) {
	testkit.Large(t)
	bubble(t, func(t *testing.T) {
		const waiters, took = 900, 50 * time.Millisecond
		memory := dsynctest.NewMemory()
		memory.Polling = true
		holder := newSession(t, memory, nil)
		for i := range waiters {
			lock(t, holder.Mutex(fmt.Sprint(i)))
			lock(t, holder.Mutex(fmt.Sprint("try", i)))
		}
		var slowest, lost atomic.Int64
		s := newSession(t, &pool{memory, make(chan struct{}, 8), took}, &dsync.Options{TTL: 30 * time.Second, Hooks: &dsync.Hooks{
			Heartbeat: func(took, _ time.Duration, err error) {
				if err != nil {
					t.Errorf("heartbeat: %v", err)
				}
				slowest.Store(max(slowest.Load(), int64(took)))
			},
			SessionLost: func(string, error) { lost.Add(1) },
		}})
		mu := s.Mutex("held")
		lock(t, mu)
		ctx, cancel := context.WithCancel(background)
		trying, stop := context.WithCancel(background)
		var wg sync.WaitGroup
		for i := range waiters {
			wg.Go(func() { s.Mutex(fmt.Sprint(i)).LockContext(ctx) })
		}
		for i := range waiters / 4 {
			wg.Go(func() {
				for trying.Err() == nil {
					s.Mutex(fmt.Sprint("try", i)).TryHold(trying)
				}
			})
		}
		time.Sleep(time.Minute)
		stop()
		time.Sleep(time.Minute)
		began := time.Now()
		mu.Unlock()
		if d := time.Since(began); d > 6*took {
			t.Errorf("Unlock took %v behind polls, with a store that answers in %v", d, took)
		}
		cancel()
		wg.Wait()
		if d := time.Duration(slowest.Load()); d > 6*took || lost.Load() > 0 {
			t.Errorf("a heartbeat took %v, with a store that answers in %v; %d losses", d, took, lost.Load())
		}
	})
}

// A waiter may be unable to poll because too many commands are under way. It still returns as soon as Close is called.
func TestCloseEndsTheWaitForALane(t *testing.T) {
	bubble(t, func(t *testing.T) {
		const waiters, others = 20, 24
		memory := dsynctest.NewMemory()
		memory.Polling = true
		holder := newSession(t, memory, nil)
		var slow atomic.Bool
		s := newSession(t, newFaulty(t, memory, func(r dsynctest.Request) dsynctest.Fault {
			if slow.Load() && (r.Method == dsynctest.MethodAcquire || r.Method == dsynctest.MethodLoad) {
				return dsynctest.Fault{Delay: time.Minute}
			}
			return dsynctest.Fault{}
		}), &dsync.Options{TTL: 30 * time.Second})
		var wg sync.WaitGroup
		for i := range waiters {
			lock(t, holder.Mutex(fmt.Sprint(i)))
			wg.Go(func() {
				wantErr(t, "LockContext", s.Mutex(fmt.Sprint(i)).LockContext(background), dsync.ErrClosed)
			})
		}
		synctest.Wait()
		slow.Store(true)
		time.Sleep(2 * time.Second) // some waiters' polls hang, and the others may not be sent yet
		for range others {
			go admin.New(s).Status(background, "k")
		}
		synctest.Wait()
		began := time.Now()
		go s.Close(background)
		wg.Wait()
		if d := time.Since(began); d != 0 {
			t.Errorf("a waiter returned %v after Close had begun, want at once", d)
		}
	})
}
