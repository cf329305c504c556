package robfigcron

import (
	"sync"
	"time"

	"github.com/robfig/cron/v3"
)

// stopInterval is how often a waiting run checks whether its Cron was stopped.
const stopInterval = time.Second

// watch calls the function stop when it notices that c was stopped. The returned function ends the goroutine that
// watches c, and waits for it; it may be called more than once.
func watch(c *cron.Cron, stop func()) (end func()) {
	ended := make(chan struct{})
	var wg sync.WaitGroup
	wg.Go(func() {
		timer := time.NewTicker(stopInterval)
		defer timer.Stop()
		for {
			select {
			case <-ended:
				return
			case <-timer.C:
			}
			if stopped(c) {
				stop()
				return
			}
		}
	})
	return sync.OnceFunc(func() {
		close(ended)
		wg.Wait()
	})
}

// stopped reports whether c is stopped. Cron has no method for that. But a running Cron calls a schedule's Next method
// as soon as the schedule is added; a stopped Cron does not.
func stopped(c *cron.Cron) bool {
	var asked probe
	c.Remove(c.Schedule(&asked, cron.FuncJob(func() {})))
	asked.mu.Lock()
	defer asked.mu.Unlock()
	return !asked.was
}

// A probe is a schedule without times that remembers whether Next was called.
type probe struct {
	mu  sync.Mutex
	was bool
}

func (p *probe) Next(time.Time) time.Time {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.was = true
	return time.Time{}
}
