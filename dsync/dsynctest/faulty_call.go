package dsynctest

import (
	"context"
	"maps"
	"slices"
	"time"

	"github.com/leasehold-go/leasehold/dsync"
)

// An answer is what a method of the store returned.
type answer[T any] struct {
	value T
	err   error
}

// call sends the request r, which do executes, through f.
func call[T any](ctx context.Context, f *Faulty, r Request, do func(context.Context) (T, error)) (T, error) {
	var none T
	if err := ctx.Err(); err != nil {
		return none, err
	}
	var record func(context.Context)
	if r.Method.writes() {
		record = func(ctx context.Context) { do(ctx) }
	}
	fault := f.send(r, record)
	if fault.Hang > 0 {
		start := time.Now()
		defer func() { sleep(f.ctx, fault.Hang-time.Since(start)) }()
	}
	if fault.Again > 0 {
		f.after(fault.Again, func(ctx context.Context) { do(ctx) })
	}

	cuts, healed := f.link()
	var a answer[T]
	switch {
	case fault.LoseRequest || healed != nil:
		<-ctx.Done()
		return none, ctx.Err()
	case fault.Delay <= 0:
		a.value, a.err = do(ctx)
	default:
		answers := make(chan answer[T], 1) // the caller may have gone when there is one
		f.after(fault.Delay, func(ctx context.Context) {
			v, err := do(ctx)
			answers <- answer[T]{v, err}
		})
		select {
		case a = <-answers:
		case <-ctx.Done():
			return none, ctx.Err()
		}
	}
	if err := sleepOrNil(ctx, fault.ReplyDelay); err != nil {
		return none, err
	}
	if now, _ := f.link(); fault.LoseReply || now != cuts {
		<-ctx.Done()
		return none, ctx.Err()
	}
	return a.value, a.err
}

// sleepOrNil is sleep, but does not look at ctx if there is nothing to wait
// for: an answer that arrived is not taken back by a ctx that ended with it.
func sleepOrNil(ctx context.Context, d time.Duration) error {
	if d <= 0 {
		return nil
	}
	return sleep(ctx, d)
}

// writes reports whether a request of this method may change the store.
func (m Method) writes() bool {
	switch m {
	case MethodWatch, MethodListen, MethodNotify, MethodLoad, MethodKeys, MethodMembers, MethodLives, MethodObservers, MethodLine:
		return false
	}
	return true
}

func claimRequest(m Method, c dsync.Claim) Request {
	return Request{Method: m, Session: c.Session, Claim: c.ID, Key: c.Key}
}

// Register implements [dsync.Store].
func (f *Faulty) Register(ctx context.Context, m dsync.Member) (time.Time, error) {
	m.Meta = maps.Clone(m.Meta)
	return call(ctx, f, Request{Method: MethodRegister, Session: m.ID}, func(ctx context.Context) (time.Time, error) {
		return f.store.Register(ctx, m)
	})
}

// Heartbeat implements [dsync.Store].
func (f *Faulty) Heartbeat(ctx context.Context, session string, given []dsync.Revocation) (dsync.Pulse, error) {
	given = slices.Clone(given)
	return call(ctx, f, Request{Method: MethodHeartbeat, Session: session}, func(ctx context.Context) (dsync.Pulse, error) {
		return f.store.Heartbeat(ctx, session, given)
	})
}

// Bury implements [dsync.Store].
func (f *Faulty) Bury(ctx context.Context, session string) (time.Duration, error) {
	return call(ctx, f, Request{Method: MethodBury, Session: session}, func(ctx context.Context) (time.Duration, error) {
		return f.store.Bury(ctx, session)
	})
}

// Unregister implements [dsync.Store].
func (f *Faulty) Unregister(ctx context.Context, session string) error {
	_, err := call(ctx, f, Request{Method: MethodUnregister, Session: session}, func(ctx context.Context) (struct{}, error) {
		return struct{}{}, f.store.Unregister(ctx, session)
	})
	return err
}

// Revoke implements [dsync.Store].
func (f *Faulty) Revoke(ctx context.Context, session string, r dsync.Revocation) error {
	_, err := call(ctx, f, Request{Method: MethodRevoke, Session: session, Claim: r.Claim, Key: r.Key}, func(ctx context.Context) (struct{}, error) {
		return struct{}{}, f.store.Revoke(ctx, session, r)
	})
	return err
}

// Observe implements [dsync.Store].
func (f *Faulty) Observe(ctx context.Context, session string, seq int64, keys []string) error {
	keys = slices.Clone(keys)
	_, err := call(ctx, f, Request{Method: MethodObserve, Session: session}, func(ctx context.Context) (struct{}, error) {
		return struct{}{}, f.store.Observe(ctx, session, seq, keys)
	})
	return err
}

// Acquire implements [dsync.Store].
func (f *Faulty) Acquire(ctx context.Context, c dsync.Claim, wait bool, dead []string, notAfter time.Time) (dsync.State, error) {
	dead = slices.Clone(dead)
	r := claimRequest(MethodAcquire, c)
	r.Wait = wait
	return call(ctx, f, r, func(ctx context.Context) (dsync.State, error) {
		return f.store.Acquire(ctx, c, wait, dead, notAfter)
	})
}

// Notify implements [dsync.Store].
func (f *Faulty) Notify(ctx context.Context, session string) error {
	_, err := call(ctx, f, Request{Method: MethodNotify, Session: session}, func(ctx context.Context) (struct{}, error) {
		return struct{}{}, f.store.Notify(ctx, session)
	})
	return err
}

// Release implements [dsync.Store].
func (f *Faulty) Release(ctx context.Context, c dsync.Claim, o dsync.Outcome) (bool, error) {
	o.Result = slices.Clone(o.Result)
	return call(ctx, f, claimRequest(MethodRelease, c), func(ctx context.Context) (bool, error) {
		return f.store.Release(ctx, c, o)
	})
}

// Extend implements [dsync.Store].
func (f *Faulty) Extend(ctx context.Context, c dsync.Claim) (dsync.Holder, error) {
	return call(ctx, f, claimRequest(MethodExtend, c), func(ctx context.Context) (dsync.Holder, error) {
		return f.store.Extend(ctx, c)
	})
}

// Publish implements [dsync.Store].
func (f *Faulty) Publish(ctx context.Context, c dsync.Claim, seq int64, value []byte) error {
	value = slices.Clone(value)
	_, err := call(ctx, f, claimRequest(MethodPublish, c), func(ctx context.Context) (struct{}, error) {
		return struct{}{}, f.store.Publish(ctx, c, seq, value)
	})
	return err
}

// Resize implements [dsync.Store].
func (f *Faulty) Resize(ctx context.Context, key string, kind dsync.Kind, from, limit int64) error {
	_, err := call(ctx, f, Request{Method: MethodResize, Key: key}, func(ctx context.Context) (struct{}, error) {
		return struct{}{}, f.store.Resize(ctx, key, kind, from, limit)
	})
	return err
}

// Load implements [dsync.Store].
func (f *Faulty) Load(ctx context.Context, key string) (dsync.State, error) {
	return call(ctx, f, Request{Method: MethodLoad, Key: key}, func(ctx context.Context) (dsync.State, error) {
		return f.store.Load(ctx, key)
	})
}

// Keys implements [dsync.Store].
func (f *Faulty) Keys(ctx context.Context, prefix, after string, n int) ([]dsync.State, error) {
	return call(ctx, f, Request{Method: MethodKeys}, func(ctx context.Context) ([]dsync.State, error) {
		return f.store.Keys(ctx, prefix, after, n)
	})
}

// Members implements [dsync.Store].
func (f *Faulty) Members(ctx context.Context, ids ...string) ([]dsync.Member, time.Time, error) {
	return f.sessions(ctx, MethodMembers, f.store.Members, ids)
}

// Lives implements [dsync.Store].
func (f *Faulty) Lives(ctx context.Context, ids ...string) ([]dsync.Member, time.Time, error) {
	return f.sessions(ctx, MethodLives, f.store.Lives, ids)
}

// sessions reads sessions by the method.
func (f *Faulty) sessions(ctx context.Context, m Method, read func(context.Context, ...string) ([]dsync.Member, time.Time, error),
	ids []string) ([]dsync.Member, time.Time, error) {
	type reading struct {
		members []dsync.Member
		now     time.Time
	}
	ids = slices.Clone(ids)
	r, err := call(ctx, f, Request{Method: m}, func(ctx context.Context) (reading, error) {
		members, now, err := read(ctx, ids...)
		return reading{members, now}, err
	})
	return r.members, r.now, err
}

// Observers implements [dsync.Store].
func (f *Faulty) Observers(ctx context.Context, key, after string, n int) ([]dsync.Member, error) {
	return call(ctx, f, Request{Method: MethodObservers, Key: key}, func(ctx context.Context) ([]dsync.Member, error) {
		return f.store.Observers(ctx, key, after, n)
	})
}

// Line implements [dsync.Store].
func (f *Faulty) Line(ctx context.Context, key string) ([]dsync.Waiter, error) {
	return call(ctx, f, Request{Method: MethodLine, Key: key}, func(ctx context.Context) ([]dsync.Waiter, error) {
		return f.store.Line(ctx, key)
	})
}

// Sweep implements [dsync.Store].
func (f *Faulty) Sweep(ctx context.Context, session string, last dsync.SweepState, retention time.Duration) (dsync.SweepState, error) {
	return call(ctx, f, Request{Method: MethodSweep, Session: session}, func(ctx context.Context) (dsync.SweepState, error) {
		return f.store.Sweep(ctx, session, last, retention)
	})
}
