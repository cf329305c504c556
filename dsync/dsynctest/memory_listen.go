package dsynctest

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"

	"github.com/leasehold-go/leasehold/dsync/driver"
)

// Listen implements [driver.Store]. It neither loses nor repeats notices.
func (m *Memory) Listen(ctx context.Context, session string, keys []string, f func(driver.Notice)) error {
	if _, err := m.begin(ctx, MethodListen); err != nil {
		return err
	}
	if m.Polling {
		m.mu.Unlock()
		return fmt.Errorf("dsynctest: Memory is set to polling: %w", errors.ErrUnsupported)
	}
	q := newNoticeQueue()
	if session != "" {
		add(m.listeners, session, q)
	}
	keys = slices.Clone(keys)
	for _, key := range keys {
		add(m.observers, key, q)
	}
	m.mu.Unlock()
	defer func() {
		m.mu.Lock()
		defer m.mu.Unlock()
		remove(m.listeners, session, q)
		for _, key := range keys {
			remove(m.observers, key, q)
		}
	}()

	f(driver.Notice{Type: driver.NoticeReady})
	for {
		for _, n := range q.take() {
			if err := ctx.Err(); err != nil {
				return err
			}
			f(n)
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-q.wake:
		}
	}
}

// Notify implements [driver.Store]. Notices without a listener are lost.
func (m *Memory) Notify(ctx context.Context, notices []driver.Notice) error {
	if _, err := m.begin(ctx, MethodNotify); err != nil {
		return err
	}
	defer m.mu.Unlock()
	for _, n := range notices {
		to := m.listeners[n.Session]
		if n.Type == driver.NoticeChange {
			to = m.observers[n.Key]
		}
		for q := range to {
			q.push(n)
		}
	}
	return nil
}

func add(listeners map[string]map[*noticeQueue]bool, name string, q *noticeQueue) {
	if listeners[name] == nil {
		listeners[name] = make(map[*noticeQueue]bool)
	}
	listeners[name][q] = true
}

func remove(listeners map[string]map[*noticeQueue]bool, name string, q *noticeQueue) {
	delete(listeners[name], q)
	if len(listeners[name]) == 0 {
		delete(listeners, name)
	}
}

// A noticeQueue holds the notices for one call of [Memory.Listen]. It is unbounded, because Notify must not wait
// for a slow listener, and a slow listener must not lose notices.
type noticeQueue struct {
	wake chan struct{} // has a token if there may be notices

	mu      sync.Mutex
	notices []driver.Notice
}

func newNoticeQueue() *noticeQueue {
	return &noticeQueue{wake: make(chan struct{}, 1)}
}

func (q *noticeQueue) push(n driver.Notice) {
	q.mu.Lock()
	q.notices = append(q.notices, n)
	q.mu.Unlock()
	select {
	case q.wake <- struct{}{}:
	default: // the listener will still take the previous token, and then find this notice, too
	}
}

func (q *noticeQueue) take() []driver.Notice {
	q.mu.Lock()
	defer q.mu.Unlock()
	n := q.notices
	q.notices = nil
	return n
}

// The addresses of notices. A Memory only sets them: it finds listeners by their session or key.
const (
	observersAddress = 0
	sessionsAddress  = 1
)

// notices selects the notices to send from a command's due notices, and adds their addresses. Every session counts as
// listening, unless the Memory is Polling.
func (m *Memory) notices(due []driver.Notice) (notices []driver.Notice) {
	for _, n := range due {
		switch {
		case m.Polling, n.Type == driver.NoticeChange && len(m.observers[n.Key]) == 0:
			continue
		case n.Type == driver.NoticeChange:
			n.Address = observersAddress
		default:
			n.Address = sessionsAddress
		}
		notices = append(notices, n)
	}
	return notices
}
