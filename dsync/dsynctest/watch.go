package dsynctest

import (
	"sync"

	"github.com/leasehold-go/leasehold/dsync"
)

// A watch is the queue of one call of [Memory.Watch]. It is unbounded: a
// command must not wait for a slow watcher, nor may one lose what it was sent.
type watch struct {
	notify chan struct{} // has a token if there may be something in events

	mu     sync.Mutex
	events []dsync.Event
}

func newWatch() *watch {
	return &watch{notify: make(chan struct{}, 1)}
}

func (w *watch) push(e dsync.Event) {
	w.mu.Lock()
	w.events = append(w.events, e)
	w.mu.Unlock()
	select {
	case w.notify <- struct{}{}:
	default: // it has not taken the last one up yet, and will find both
	}
}

func (w *watch) take() []dsync.Event {
	w.mu.Lock()
	defer w.mu.Unlock()
	e := w.events
	w.events = nil
	return e
}
