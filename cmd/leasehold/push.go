package main

import (
	"context"
	"errors"
	"slices"

	"github.com/leasehold-go/leasehold/dsync"
)

// A push tells of changes of keys, where the store does.
type push struct {
	store   dsync.Store
	ready   chan struct{} // from now on changes are told of
	changed chan string   // a key

	keys   []string // followed, or to be
	never  bool     // the store does not push
	cancel context.CancelFunc
	done   chan error // of the watch, when it has ended
}

// watching is the session that the store's watch names. There is none: nobody
// registers for looking.
const watching = "leasehold-watch"

func newPush(store dsync.Store) *push {
	return &push{store: store, ready: make(chan struct{}), changed: make(chan string)}
}

// follow has changes of these keys told of from now on. A watch that has ended is
// begun again: call it now and then.
func (p *push) follow(ctx context.Context, keys []string) {
	if p.done != nil {
		select {
		case err := <-p.done:
			p.done = nil
			p.cancel()
			p.never = errors.Is(err, errors.ErrUnsupported)
		default:
		}
	}
	if p.never || p.done != nil && slices.Equal(keys, p.keys) {
		return
	}
	p.stop()
	p.keys = keys
	ctx, p.cancel = context.WithCancel(ctx)
	done := make(chan error, 1)
	p.done = done
	go func() {
		done <- p.store.Watch(ctx, watching, keys, func(e dsync.Event) { p.pass(ctx, e) })
	}()
}

// pass passes an event on to who follows.
func (p *push) pass(ctx context.Context, e dsync.Event) {
	switch e.Type {
	case dsync.EventReady:
		select {
		case p.ready <- struct{}{}:
		case <-ctx.Done():
		}
	case dsync.EventChange:
		select {
		case p.changed <- e.Key:
		case <-ctx.Done():
		}
	}
}

// stop ends the watch and waits for it.
func (p *push) stop() {
	if p.done != nil {
		p.cancel()
		<-p.done
		p.done = nil
	}
}
