// Package calls calls functions that may block, panic or never return, in order,
// without anyone waiting for them: hooks and loggers of the user's.
package calls

import (
	"log/slog"
	"sync"
)

// A Queue calls functions in order on a goroutine of its own, which lives only
// while there is something to call. Nobody waits for it: a hook may call Close,
// and may block forever. The zero Queue is ready; all methods may be called
// concurrently.
type Queue struct {
	// Logger logs panics. Nil is silent. It must be set before first use.
	Logger *slog.Logger

	mu      sync.Mutex
	calls   []call
	running bool
}

type call struct {
	f        func()
	conflate bool
}

// Add has f called after all functions that were added before.
func (q *Queue) Add(f func()) { q.add(call{f, false}) }

// AddLatest is Add, but if the last waiting function was also added by AddLatest, f replaces it.
func (q *Queue) AddLatest(f func()) { q.add(call{f, true}) }

func (q *Queue) add(c call) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if n := len(q.calls); c.conflate && n > 0 && q.calls[n-1].conflate {
		q.calls[n-1] = c
	} else {
		q.calls = append(q.calls, c)
	}
	if !q.running {
		q.running = true
		go q.run()
	}
}

func (q *Queue) run() {
	for {
		q.mu.Lock()
		if len(q.calls) == 0 {
			q.running, q.calls = false, nil
			q.mu.Unlock()
			return
		}
		c := q.calls[0]
		q.calls = q.calls[1:]
		q.mu.Unlock()
		q.call(c.f)
	}
}

func (q *Queue) call(f func()) {
	finished := false
	defer func() {
		if r := recover(); r != nil {
			if q.Logger != nil {
				q.Logger.Error("leasehold: a hook panicked", "panic", r)
			}
		} else if !finished {
			// runtime.Goexit ends the goroutine; the remaining calls need another.
			go q.run()
		}
	}()
	f()
	finished = true
}
