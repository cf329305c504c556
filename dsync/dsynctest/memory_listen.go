package dsynctest

import (
	"context"
	"errors"
	"fmt"

	"github.com/leasehold-go/leasehold/dsync"
)

// Listen implements [dsync.Store]. It misses nothing.
func (m *Memory) Listen(ctx context.Context, session string, f func()) error {
	if _, err := m.begin(ctx, MethodListen); err != nil {
		return err
	}
	if m.Polling {
		m.mu.Unlock()
		return fmt.Errorf("dsynctest: Memory is set to polling: %w", errors.ErrUnsupported)
	}
	w := newWatch()
	add(m.listens, session, w)
	m.mu.Unlock()
	defer func() {
		m.mu.Lock()
		defer m.mu.Unlock()
		remove(m.listens, session, w)
	}()
	f()
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-w.notify:
			w.take()
			f()
		}
	}
}

// Notify implements [dsync.Store].
func (m *Memory) Notify(ctx context.Context, session string) error {
	if _, err := m.begin(ctx, MethodNotify); err != nil {
		return err
	}
	defer m.mu.Unlock()
	for w := range m.listens[session] {
		w.push(dsync.Event{})
	}
	return nil
}
