package measure

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"
)

// A Contest is a number of processes whose goroutines all lock one key as often as they can.
type Contest struct {
	procs []Process
	locks [][]Locker // by process

	Acquisitions int
	Took         time.Duration
	Share        float64 // smallest number of acquisitions by a process, divided by the largest
}

// NewContest opens the processes, and warms each up with a Lock and Unlock of another key.
func NewContest(ctx context.Context, sys System, processes, goroutines int) (_ *Contest, err error) {
	c := &Contest{}
	defer func() {
		if err != nil {
			c.Close()
		}
	}()
	for range processes {
		p, err := sys.Open(ctx)
		if err != nil {
			return nil, err
		}
		c.procs = append(c.procs, p)
		warm, err := p.Locker(ctx, "warm")
		if err != nil {
			return nil, err
		}
		if _, err := LockUnlock(warm)(ctx); err != nil {
			return nil, err
		}
		locks := make([]Locker, goroutines)
		for i := range locks {
			if locks[i], err = p.Locker(ctx, "contended"); err != nil {
				return nil, err
			}
		}
		c.locks = append(c.locks, locks)
	}
	return c, nil
}

// Run runs all goroutines until more returns false, or until the first error. Run also returns an error if two
// goroutines hold the key at the same time, or if a token is not greater than the previous one.
func (c *Contest) Run(ctx context.Context, more func() bool) error {
	var (
		wg      sync.WaitGroup
		begin   = make(chan struct{})
		shares  = make([]atomic.Int64, len(c.procs))
		holders atomic.Int64
		last    int64 // guarded by the lock
		first   sync.Once
		failed  error
		stopped atomic.Bool
	)
	fail := func(err error) {
		first.Do(func() { failed = err })
		stopped.Store(true)
	}
	for i, locks := range c.locks {
		for _, l := range locks {
			wg.Go(func() {
				<-begin
				for !stopped.Load() && more() {
					if err := l.Lock(ctx); err != nil {
						fail(err)
						return
					}
					if holders.Add(1) != 1 {
						fail(errors.New("two goroutines hold the key at the same time"))
					}
					if t, ok := l.(interface{ Token() int64 }); ok {
						if token := t.Token(); token <= last {
							fail(fmt.Errorf("token %d came after %d, want a greater one", token, last))
						} else {
							last = token
						}
					}
					shares[i].Add(1)
					holders.Add(-1)
					if err := l.Unlock(ctx); err != nil {
						fail(err)
						return
					}
				}
			})
		}
	}
	start := time.Now()
	close(begin)
	wg.Wait()
	c.Took = time.Since(start)
	lo, hi := shares[0].Load(), shares[0].Load()
	for i := range shares {
		n := shares[i].Load()
		c.Acquisitions += int(n)
		lo, hi = min(lo, n), max(hi, n)
	}
	c.Share = float64(lo) / float64(max(1, hi))
	return failed
}

// Rate returns the acquisitions per second.
func (c *Contest) Rate() float64 { return float64(c.Acquisitions) / c.Took.Seconds() }

// Close closes the processes.
func (c *Contest) Close() {
	for _, p := range c.procs {
		p.Close()
	}
}
