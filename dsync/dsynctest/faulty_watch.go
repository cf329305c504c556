package dsynctest

import (
	"context"
	"slices"
	"time"

	"github.com/leasehold-go/leasehold/dsync"
)

// Watch implements [dsync.Store]. Events pass one by one, in order: a delayed
// one delays those behind it.
func (f *Faulty) Watch(ctx context.Context, session string, keys []string, fn func(dsync.Event)) error {
	return f.push(ctx, Request{Method: MethodWatch, Session: session}, fn, func(fn func(dsync.Event)) error {
		return f.store.Watch(ctx, session, slices.Clone(keys), fn)
	})
}

// Listen implements [dsync.Store]. Each call of fn is an event, and passes as those of
// Watch do.
func (f *Faulty) Listen(ctx context.Context, session string, fn func()) error {
	called := func(dsync.Event) { fn() }
	return f.push(ctx, Request{Method: MethodListen, Session: session}, called, func(fn func(dsync.Event)) error {
		return f.store.Listen(ctx, session, func() { fn(dsync.Event{}) })
	})
}

// push sends the request r, which open executes, and passes what that pushes to fn.
func (f *Faulty) push(ctx context.Context, r Request, fn func(dsync.Event), open func(func(dsync.Event)) error) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	fault := f.send(r, nil)
	if fault.Hang > 0 {
		start := time.Now()
		defer func() { sleep(f.ctx, fault.Hang-time.Since(start)) }()
	}
	if fault.LoseRequest {
		<-ctx.Done()
		return ctx.Err()
	}
	if err := sleepOrNil(ctx, fault.Delay); err != nil {
		return err
	}
	for {
		_, healed := f.link()
		if healed == nil {
			break
		}
		select {
		case <-healed:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	err := open(func(e dsync.Event) {
		if !fault.LoseReply {
			f.pass(ctx, r.Session, e, fn)
		}
	})
	if sleepErr := sleepOrNil(ctx, fault.ReplyDelay); sleepErr != nil {
		return sleepErr
	}
	return err
}

// pass delivers one event, or doesn't.
func (f *Faulty) pass(ctx context.Context, session string, e dsync.Event, fn func(dsync.Event)) {
	cuts, healed := f.link()
	fault := f.send(Request{Method: MethodEvent, Session: session, Claim: e.Claim, Key: e.Key}, nil)
	lost := healed != nil || fault.LoseRequest || fault.LoseReply
	if !lost && sleepOrNil(ctx, fault.Delay+fault.ReplyDelay) == nil {
		if now, _ := f.link(); now == cuts {
			fn(e)
		}
	}
	if fault.Again > 0 && sleepOrNil(ctx, fault.Again) == nil {
		if _, healed := f.link(); healed == nil {
			fn(e)
		}
	}
}
