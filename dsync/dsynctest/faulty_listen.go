package dsynctest

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/leasehold-go/leasehold/dsync/driver"
)

// Listen implements [driver.Store]. Notices are delivered one by one, in order, so a delayed notice also delays
// later ones. Only a repeated notice (Fault.Again) may arrive out of order.
func (f *Faulty) Listen(ctx context.Context, session string, keys []string, fn func(driver.Notice)) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	fault := f.send(Request{Method: MethodListen, Session: session}, nil)
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
	d := &delivery{f: f, session: session, fn: fn, calling: make(chan struct{}, 1)}
	d.ctx, d.cancel = context.WithCancel(ctx)
	err := f.store.Listen(ctx, session, slices.Clone(keys), func(n driver.Notice) {
		if !fault.LoseReply {
			d.pass(n)
		}
	})
	d.end()
	if sleepErr := sleepOrNil(ctx, fault.ReplyDelay); sleepErr != nil {
		return sleepErr
	}
	return err
}

// A delivery delivers the notices of one Listen.
type delivery struct {
	f       *Faulty
	ctx     context.Context // ends with the Listen
	cancel  context.CancelFunc
	session string
	fn      func(driver.Notice)
	calling chan struct{}  // full while fn is running
	again   sync.WaitGroup // the goroutines that repeat notices
}

// end drops repeated notices that have not been delivered yet. Once end has returned, fn is not called.
func (d *delivery) end() {
	d.cancel()
	d.again.Wait()
}

// pass delivers one notice, unless a fault or a Cut loses it.
func (d *delivery) pass(n driver.Notice) {
	cuts, healed := d.f.link()
	fault := d.f.send(Request{Method: MethodNotice, Session: d.session, Claim: n.Claim, Key: n.Key, Notice: n.Type}, nil)
	if fault.Again > 0 {
		d.again.Go(func() {
			t := time.NewTimer(fault.Again)
			defer t.Stop()
			select {
			case <-t.C:
				if _, healed := d.f.link(); healed == nil {
					d.call(n)
				}
			case <-d.ctx.Done():
			case <-d.f.ctx.Done():
			}
		})
	}
	lost := healed != nil || fault.LoseRequest || fault.LoseReply
	if !lost && sleepOrNil(d.ctx, fault.Delay+fault.ReplyDelay) == nil {
		if now, _ := d.f.link(); now == cuts {
			d.call(n)
		}
	}
}

// call calls fn with n, after waiting for a running call of fn. If the Listen ends first, it does not call fn.
func (d *delivery) call(n driver.Notice) {
	select {
	case d.calling <- struct{}{}:
		defer func() { <-d.calling }()
		if d.ctx.Err() == nil {
			d.fn(n)
		}
	case <-d.ctx.Done():
	}
}
