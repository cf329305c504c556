package dsynctest

import (
	"context"
	"maps"
	"slices"
	"time"

	"github.com/leasehold-go/leasehold/dsync/driver"
)

// An answer holds the results of a call of the store.
type answer[T any] struct {
	value T
	err   error
}

// call sends the request r through f, and calls do to execute it.
func call[T any](ctx context.Context, f *Faulty, r Request, do func(context.Context) (T, error)) (T, error) {
	var none T
	if err := ctx.Err(); err != nil {
		return none, err
	}
	execute, sent := do, &recorded{f: f}
	if r.Method.writes() {
		sent.do = func(ctx context.Context) { execute(ctx) }
	}
	fault := f.send(r, sent)
	do = func(ctx context.Context) (T, error) {
		defer sent.setArrived()
		return execute(ctx)
	}
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
		sent.setArrived()
		<-ctx.Done()
		return none, ctx.Err()
	case fault.Delay <= 0:
		a.value, a.err = do(ctx)
	default:
		answers := make(chan answer[T], 1) // the caller may have returned before the answer
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

// sleepOrNil is like sleep, but ignores ctx if d is 0. So an answer is returned even if ctx ended just when the answer
// arrived.
func sleepOrNil(ctx context.Context, d time.Duration) error {
	if d <= 0 {
		return nil
	}
	return sleep(ctx, d)
}

// writes returns true for every method whose requests can change the store.
func (m Method) writes() bool {
	switch m {
	case MethodListen, MethodNotify, MethodLoad, MethodKeys, MethodMembers, MethodLiveness, MethodObservers, MethodQueue, MethodOwn:
		return false
	}
	return true
}

func claimRequest(m Method, c driver.Claim) Request {
	return Request{Method: m, Session: c.Session, Claim: c.ID, Key: c.Key}
}

// Register implements [driver.Store].
func (f *Faulty) Register(ctx context.Context, m driver.Member) (time.Time, error) {
	m.Meta = maps.Clone(m.Meta)
	return call(ctx, f, Request{Method: MethodRegister, Session: m.ID}, func(ctx context.Context) (time.Time, error) {
		return f.store.Register(ctx, m)
	})
}

// Heartbeat implements [driver.Store].
func (f *Faulty) Heartbeat(ctx context.Context, session string, given []driver.Revocation) (driver.HeartbeatReply, error) {
	given = slices.Clone(given)
	return call(ctx, f, Request{Method: MethodHeartbeat, Session: session}, func(ctx context.Context) (driver.HeartbeatReply, error) {
		return f.store.Heartbeat(ctx, session, given)
	})
}

// Expire implements [driver.Store].
func (f *Faulty) Expire(ctx context.Context, session string, owner bool) (time.Duration, error) {
	return call(ctx, f, Request{Method: expireMethod(owner), Session: session}, func(ctx context.Context) (time.Duration, error) {
		return f.store.Expire(ctx, session, owner)
	})
}

// Revoke implements [driver.Store].
func (f *Faulty) Revoke(ctx context.Context, session string, r driver.Revocation) ([]driver.Notice, error) {
	return call(ctx, f, Request{Method: MethodRevoke, Session: session, Claim: r.Claim, Key: r.Key}, func(ctx context.Context) ([]driver.Notice, error) {
		return f.store.Revoke(ctx, session, r)
	})
}

// Observe implements [driver.Store].
func (f *Faulty) Observe(ctx context.Context, session string, seq int64, keys []string) error {
	keys = slices.Clone(keys)
	_, err := call(ctx, f, Request{Method: MethodObserve, Session: session}, func(ctx context.Context) (struct{}, error) {
		return struct{}{}, f.store.Observe(ctx, session, seq, keys)
	})
	return err
}

// Edit implements [driver.Store].
func (f *Faulty) Edit(ctx context.Context, e driver.Edit) (driver.Edited, error) {
	e = cloneEdit(e)
	return call(ctx, f, editRequest(e), func(ctx context.Context) (driver.Edited, error) {
		return f.store.Edit(ctx, e)
	})
}

// cloneEdit returns a deep copy of e, so that the caller may change e after the call.
func cloneEdit(e driver.Edit) driver.Edit {
	if j := clonePart(&e.Acquire); j != nil {
		j.Expired = slices.Clone(j.Expired)
	}
	if l := clonePart(&e.Release); l != nil {
		l.Result = slices.Clone(l.Result)
	}
	clonePart(&e.Extend)
	if p := clonePart(&e.Publish); p != nil {
		p.Value = slices.Clone(p.Value)
	}
	clonePart(&e.Resize)
	clonePart(&e.Forget)
	return e
}

// clonePart replaces the pointer *part, unless it is nil, with a pointer to a copy. It returns the new *part.
func clonePart[T any](part **T) *T {
	if *part != nil {
		c := **part
		*part = &c
	}
	return *part
}

func editRequest(e driver.Edit) Request {
	m := editMethod(e)
	switch {
	case e.Acquire != nil:
		r := claimRequest(m, e.Acquire.Claim)
		if e.Release != nil {
			r.Replaces = e.Release.Claim.ID
		}
		return r
	case e.Release != nil:
		return claimRequest(m, e.Release.Claim)
	case e.Extend != nil:
		return claimRequest(m, e.Extend.Claim)
	case e.Publish != nil:
		return claimRequest(m, e.Publish.Claim)
	}
	return Request{Method: m, Key: e.Key()}
}

// Notify implements [driver.Store].
func (f *Faulty) Notify(ctx context.Context, notices []driver.Notice) error {
	notices = slices.Clone(notices)
	r := Request{Method: MethodNotify}
	if len(notices) > 0 {
		n := notices[0]
		r.Session, r.Claim, r.Key, r.Notice = n.Session, n.Claim, n.Key, n.Type
	}
	_, err := call(ctx, f, r, func(ctx context.Context) (struct{}, error) {
		return struct{}{}, f.store.Notify(ctx, notices)
	})
	return err
}

// Discard implements [driver.Store]. Its Request has the first claim.
func (f *Faulty) Discard(ctx context.Context, claims []driver.Claim) ([]driver.Notice, error) {
	claims = slices.Clone(claims)
	r := Request{Method: MethodDiscard}
	if len(claims) > 0 {
		r = claimRequest(MethodDiscard, claims[0])
	}
	return call(ctx, f, r, func(ctx context.Context) ([]driver.Notice, error) {
		return f.store.Discard(ctx, claims)
	})
}

// Load implements [driver.Store].
func (f *Faulty) Load(ctx context.Context, key string, waiters int) (driver.State, error) {
	return call(ctx, f, Request{Method: loadMethod(waiters), Key: key}, func(ctx context.Context) (driver.State, error) {
		return f.store.Load(ctx, key, waiters)
	})
}

// Keys implements [driver.Store].
func (f *Faulty) Keys(ctx context.Context, q driver.KeyQuery) ([]driver.State, error) {
	q.Keys = slices.Clone(q.Keys)
	return call(ctx, f, Request{Method: keysMethod(q), Session: q.Session}, func(ctx context.Context) ([]driver.State, error) {
		return f.store.Keys(ctx, q)
	})
}

// RecordName implements [driver.Namer] if the wrapped store implements it.
func (f *Faulty) RecordName(key string) string {
	if n, ok := f.store.(driver.Namer); ok {
		return n.RecordName(key)
	}
	return ""
}

// Sessions implements [driver.Store].
func (f *Faulty) Sessions(ctx context.Context, q driver.SessionQuery) ([]driver.Member, time.Time, error) {
	type reading struct {
		members []driver.Member
		now     time.Time
	}
	q.IDs = slices.Clone(q.IDs)
	r, err := call(ctx, f, Request{Method: sessionsMethod(q), Key: q.Observing}, func(ctx context.Context) (reading, error) {
		members, now, err := f.store.Sessions(ctx, q)
		return reading{members, now}, err
	})
	return r.members, r.now, err
}

// Sweep implements [driver.Store].
func (f *Faulty) Sweep(ctx context.Context, session string, last driver.SweepState, retention time.Duration) (driver.SweepState, error) {
	return call(ctx, f, Request{Method: MethodSweep, Session: session}, func(ctx context.Context) (driver.SweepState, error) {
		return f.store.Sweep(ctx, session, last, retention)
	})
}
