package dsync

import (
	"context"
	"sync"
)

// maxIdle is how many goroutines of a session wait for work.
const maxIdle = 4

// workers do what a session does in the background, each thing on a goroutine of its
// own. A new goroutine's stack would have to grow, some times over, to what a driver
// needs, which costs more than all else about it: so a few that are done wait for more.
type workers struct {
	ctx  context.Context // those that wait end with it
	wg   sync.WaitGroup  // of all
	work chan func()     // to one that waits
	idle chan struct{}   // one for each that waits
}

func newWorkers(ctx context.Context) *workers {
	return &workers{ctx: ctx, work: make(chan func()), idle: make(chan struct{}, maxIdle)}
}

// do has f called on a goroutine. It must not be called concurrently with Wait.
func (w *workers) do(f func()) {
	select {
	case w.work <- f:
	default:
		w.wg.Go(func() { w.run(f) })
	}
}

func (w *workers) run(f func()) {
	for {
		f()
		select {
		case w.idle <- struct{}{}:
		default:
			return // enough of them wait
		}
		select {
		case f = <-w.work:
			<-w.idle
		case <-w.ctx.Done():
			return
		}
	}
}
