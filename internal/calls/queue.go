// Package calls calls the user's hooks and loggers, in order. Nobody waits for them, because they may block, panic or
// never return.
package calls

import (
	"log/slog"
	"sync"
)

// A Queue calls functions in order on a goroutine of its own, which exists only while there is something to call.
// Nobody waits for it: a hook may call Close, and may block forever. The zero Queue is ready to use; all methods
// may be called concurrently.
type Queue struct {
	// Logger logs panics; nil logs nothing. It must be set before first use.
	Logger *slog.Logger

	mu      sync.Mutex
	calls   []call
	running bool
}

type call struct {
	f   func()
	key any // key passed to AddLatest; nil: the call was added by Add
}

// Add queues f behind all functions that were added before.
func (q *Queue) Add(f func()) { q.add(call{f: f}) }

// AddLatest is like Add, but f replaces a waiting function with the same key, unless a function added by Add waits
// behind it. So a slow function delays at most one report for each key. key must be comparable and not nil.
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

// sameLocked returns the index of the waiting call that a new call with key replaces, or -1.
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
			// runtime.Goexit ends this goroutine; the remaining calls need another.
			go q.run()
		}
	}()
	f()
	finished = true
}
