package dsynctest

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/leasehold-go/leasehold/dsync"
)

// Watch implements [dsync.Store]. It misses nothing and repeats nothing.
func (m *Memory) Watch(ctx context.Context, session string, keys []string, f func(dsync.Event)) error {
	if _, err := m.begin(ctx, MethodWatch); err != nil {
		return err
	}
	if m.Polling {
		m.mu.Unlock()
		return fmt.Errorf("dsynctest: Memory is set to polling: %w", errors.ErrUnsupported)
	}
	w := newWatch()
	add(m.watches, session, w)
	keys = slices.Clone(keys)
	for _, key := range keys {
		add(m.watched, key, w)
	}
	m.mu.Unlock()
	defer func() {
		m.mu.Lock()
		defer m.mu.Unlock()
		remove(m.watches, session, w)
		for _, key := range keys {
			remove(m.watched, key, w)
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

// wrote counts a write of a key's record and tells those who watch for it, or
// for what it did.
func (m *Memory) wrote(key string, fx effect) {
	m.writes++
	for _, g := range fx.granted {
		m.tell(g.Session, dsync.Event{Type: dsync.EventGrant, Key: key, Claim: g.Claim, Token: g.Token, Term: g.term})
	}
	for _, w := range fx.woken {
		m.tell(w.Session, dsync.Event{Type: dsync.EventWake, Key: key, Claim: w.Claim})
	}
	for _, h := range fx.yielding {
		m.tell(h.Session, dsync.Event{Type: dsync.EventYield, Key: key, Claim: h.Claim})
	}
	for w := range m.watched[key] {
		w.push(dsync.Event{Type: dsync.EventChange, Key: key})
	}
}

// tell tells those who watch for a session.
func (m *Memory) tell(session string, e dsync.Event) {
	for w := range m.watches[session] {
		w.push(e)
	}
}

func add(watches map[string]map[*watch]bool, name string, w *watch) {
	if watches[name] == nil {
		watches[name] = make(map[*watch]bool)
	}
	watches[name][w] = true
}

func remove(watches map[string]map[*watch]bool, name string, w *watch) {
	delete(watches[name], w)
	if len(watches[name]) == 0 {
		delete(watches, name)
	}
}
