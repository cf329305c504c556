package measure

import (
	"context"
	"fmt"
	"syscall"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/leasehold-go/leasehold/dsync"
)

// A Cost is what something costs per second.
type Cost struct {
	Commands     float64 // not counting the driver's own commands
	Bytes        float64 // in both directions, including the driver's own commands
	CPU          time.Duration
	OplogEntries float64
	OplogBytes   float64
}

// HeldCost returns the cost of a session that holds n locks and does nothing else, measured for the
// time d with a heartbeat every second. The target must be a server, and Counted.
func HeldCost(ctx context.Context, t *Target, n int, d time.Duration) (Cost, error) {
	s, err := t.Session(ctx, dsync.Options{HeartbeatInterval: time.Second, Retention: -1})
	if err != nil {
		return Cost{}, err
	}
	defer s.Close(context.WithoutCancel(ctx))
	var g errgroup.Group
	g.SetLimit(6) // the session has eight connections, and heartbeats need some
	held := make([]*dsync.Mutex, n)
	for i := range held {
		held[i] = s.Mutex(numbered(i))
		g.Go(func() error { return held[i].LockContext(ctx) })
	}
	if err := g.Wait(); err != nil {
		return Cost{}, err
	}

	logged, err := t.Logged(ctx)
	if err != nil {
		return Cost{}, err
	}
	commands, bytes, cpu, begin := t.Commands(), t.Bytes(), cpuTime(), time.Now()
	select {
	case <-time.After(d):
	case <-ctx.Done():
		return Cost{}, ctx.Err()
	}
	took := time.Since(begin).Seconds()
	c := Cost{
		Commands: float64(t.Commands()-commands) / took,
		Bytes:    float64(t.Bytes()-bytes) / took,
		CPU:      time.Duration(float64(cpuTime()-cpu) / took),
	}
	log, err := logged()
	if err != nil {
		return Cost{}, err
	}
	c.OplogEntries, c.OplogBytes = float64(log.Entries)/took, float64(log.Bytes)/took
	for _, mu := range held {
		if mu.Token() == 0 {
			return Cost{}, fmt.Errorf("%v was lost during the measurement", mu)
		}
	}
	return c, nil
}

// cpuTime returns the CPU time that this process has used so far.
func cpuTime() time.Duration {
	var u syscall.Rusage
	syscall.Getrusage(syscall.RUSAGE_SELF, &u)
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
