package dsync

import (
	"log/slog"
	"sync"
)

// A hookQueue calls functions in order on a goroutine of its own, which lives
// only while there is something to call. Nobody waits for it: a hook may call
// Close, and may block for ever.
type hookQueue struct {
	log *slog.Logger // nil is silent

	mu      sync.Mutex
	calls   []hookCall
	running bool
}

type hookCall struct {
	f        func()
	conflate bool // a later call that conflates replaces this one
}

func (q *hookQueue) add(f func(), conflate bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if n := len(q.calls); conflate && n > 0 && q.calls[n-1].conflate {
		q.calls[n-1].f = f
	} else {
		q.calls = append(q.calls, hookCall{f, conflate})
	}
	if !q.running {
		q.running = true
		go q.run()
	}
}

func (q *hookQueue) run() {
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

func (q *hookQueue) call(f func()) {
	finished := false
	defer func() {
		if r := recover(); r != nil {
			if q.log != nil {
				q.log.Error("dsync: a hook panicked", "panic", r)
			}
		} else if !finished {
			// runtime.Goexit ends the goroutine; the calls left need another.
			go q.run()
		}
	}()
	f()
	finished = true
}
