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
	if err := ctx.Err(); err != nil {
		return err
	}
	fault := f.send(Request{Method: MethodWatch, Session: session}, nil)
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
	err := f.store.Watch(ctx, session, slices.Clone(keys), func(e dsync.Event) {
		if !fault.LoseReply {
			f.pass(ctx, session, e, fn)
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
