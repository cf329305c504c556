package dsynctest

import (
	"context"
	"errors"
	"fmt"

	"github.com/leasehold-go/leasehold/dsync"
)

// Watch implements [dsync.Store]. It misses nothing and repeats nothing.
func (m *Memory) Watch(ctx context.Context, session string, f func(dsync.Event)) error {
	if _, err := m.begin(ctx, MethodWatch); err != nil {
		return err
	}
	if m.Polling {
		m.mu.Unlock()
		return fmt.Errorf("dsynctest: Memory is set to polling: %w", errors.ErrUnsupported)
	}
	w := newWatch()
	if m.watches[session] == nil {
		m.watches[session] = make(map[*watch]bool)
	}
	m.watches[session][w] = true
	m.mu.Unlock()
	defer func() {
		m.mu.Lock()
		defer m.mu.Unlock()
		delete(m.watches[session], w)
		if len(m.watches[session]) == 0 {
			delete(m.watches, session)
		}
	}()

	f(dsync.Event{Type: dsync.EventReady})
	for {
		for _, e := range w.take() {
			if err := ctx.Err(); err != nil {
				return err
			}
			f(e)
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-w.notify:
		}
	}
}

// tell sends the grants of a key to those who watch for them.
func (m *Memory) tell(key string, granted []dsync.Holder) {
	for _, h := range granted {
		for w := range m.watches[h.Session] {
			w.push(dsync.Event{Type: dsync.EventGrant, Key: key, Claim: h.Claim, Token: h.Token})
		}
	}
}
