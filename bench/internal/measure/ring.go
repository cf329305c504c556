package measure

import (
	"context"
	"fmt"
	"sync"
	"time"
)

// A Ring is a number of processes that all want one key: one holds it, the others wait.
type Ring struct {
	// Requeue is how long HandOff waits for the former holder to be in the queue again. Default:
	// requeueTime.
	Requeue time.Duration

	sys    System
	key    string
	cancel context.CancelFunc
	ctx    context.Context // ends the waiters
	procs  []Process
	locks  []Locker
	got    chan grant
	wg     sync.WaitGroup
	holder int
}

type grant struct {
	process int
	at      time.Time
	err     error
}

// NewRing opens n processes, one after the other, and returns when one holds the key and the others
// probably wait for it.
func NewRing(ctx context.Context, sys System, key string, n int) (*Ring, error) {
	r := &Ring{Requeue: requeueTime, sys: sys, key: key, got: make(chan grant, n), holder: -1}
	r.ctx, r.cancel = context.WithCancel(ctx)
	for range n {
		if err := r.add(ctx); err != nil {
			r.Close()
			return nil, err
		}
	}
	return r, awaitRequeue(ctx, r.Requeue)
}

const requeueTime = 25 * time.Millisecond

// add opens a process. For the first process, add waits until it has the key. For any other, add returns
// without waiting for its request.
func (r *Ring) add(ctx context.Context) error {
	p, err := r.sys.Open(ctx)
	if err != nil {
		return err
	}
	r.procs = append(r.procs, p)
	l, err := p.Locker(ctx, r.key)
	if err != nil {
		return err
	}
	r.locks = append(r.locks, l)
	r.wait(len(r.locks) - 1)
	if len(r.locks) == 1 {
		_, err = r.next(ctx)
	}
	return err
}

// awaitRequeue waits for the time d. The former holder probably joins the queue within that time, so joining is not
// measured.
func awaitRequeue(ctx context.Context, d time.Duration) error {
	select {
	case <-time.After(d):
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// wait starts a goroutine in which the process waits for the key.
func (r *Ring) wait(process int) {
	l := r.locks[process]
	r.wg.Go(func() {
		err := l.Lock(r.ctx)
		at := time.Now()
		if c, ok := l.(Clocked); ok {
			at = c.Locked()
		}
		r.got <- grant{process, at, err}
	})
}

// next waits until a process gets the key, and returns the time when that happened.
func (r *Ring) next(ctx context.Context) (time.Time, error) {
	select {
	case g := <-r.got:
		if g.err == nil {
			r.holder = g.process
		}
		return g.at, g.err
	case <-ctx.Done():
		return time.Time{}, fmt.Errorf("no process got the key: %w", ctx.Err())
	}
}

// HandOff is the [Op] that measures from the call of Unlock until the next process has the key.
// HandOff then makes the former holder wait again, and returns when it is probably in the queue.
func (r *Ring) HandOff(ctx context.Context) (time.Duration, error) {
	former, unlocked := r.holder, make(chan error, 1)
	r.holder = -1
	begin := time.Now()
	go func() { unlocked <- r.locks[former].Unlock(ctx) }()
	at, err := r.next(ctx)
	if unlockErr := <-unlocked; err == nil {
		err = unlockErr
	}
	if c, ok := r.locks[former].(Clocked); ok {
		begin = c.Unlocked()
	}
	if err != nil {
		return 0, err
	}
	r.wait(former)
	return at.Sub(begin), awaitRequeue(ctx, r.Requeue)
}

// Close ends the waits, unlocks the key and closes the processes.
func (r *Ring) Close() {
	r.cancel()
	r.wg.Wait()
	if r.holder >= 0 {
		r.locks[r.holder].Unlock(context.WithoutCancel(r.ctx))
	}
	var wg sync.WaitGroup
	for _, p := range r.procs {
		wg.Go(func() { p.Close() })
	}
	wg.Wait()
}
