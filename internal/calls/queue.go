// Package calls runs the user's hooks and loggers in order. A hook or logger may block or panic, so the library never
// waits for one to return.
package calls

import (
	"log/slog"
	"sync"
)

// A Queue calls functions in order on its own goroutine, which exists only while functions are queued.
// Session.Close does not wait for that goroutine, because a hook may call Close or block forever. The zero
// Queue is ready to use; all methods may be called concurrently.
type Queue struct {
	// Logger logs panics; nil logs nothing. Set it before first use.
	Logger *slog.Logger

	mu      sync.Mutex
	calls   []call
	running bool
}

type call struct {
	f   func()
	key any // the key passed to AddLatest; nil for a call added by Add
}

// Add queues f behind all functions added before it.
func (q *Queue) Add(f func()) { q.add(call{f: f}) }

// AddLatest is like Add, but f replaces a queued function with the same key. So while a slow function runs, repeated
// reports do not pile up. If a function added by Add is queued behind the earlier function, f replaces nothing. key
// must be comparable and not nil.
func (q *Queue) AddLatest(key any, f func()) { q.add(call{f, key}) }

func (q *Queue) add(c call) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if i := q.sameLocked(c.key); i >= 0 {
		q.calls[i] = c
	} else {
		q.calls = append(q.calls, c)
	}
	if !q.running {
		q.running = true
		go q.run()
	}
}

// sameLocked returns the index of the queued call that a new call with this key replaces, or -1.
func (q *Queue) sameLocked(key any) int {
	for i := len(q.calls) - 1; i >= 0 && q.calls[i].key != nil; i-- {
		if q.calls[i].key == key {
			return i
		}
	}
	return -1
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
			// runtime.Goexit ends this goroutine, so the remaining calls need another one.
			go q.run()
		}
	}()
	f()
	finished = true
}
