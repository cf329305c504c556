package dsynctest

import (
	"context"
	"maps"
	"slices"
	"time"

	"github.com/leasehold-go/leasehold/dsync/driver"
)

// An answer holds the results of a method of the store.
type answer[T any] struct {
	value T
	err   error
}

// A noticed is a result together with the notices that were returned with it.
type noticed[T any] struct {
	value   T
	notices []driver.Notice
}

// call sends the request r through f; do executes it.
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

// sleepOrNil is sleep, but ignores ctx if d is 0: an answer that has arrived counts even
// if ctx ended at the same time.
func sleepOrNil(ctx context.Context, d time.Duration) error {
	if d <= 0 {
		return nil
	}
	return sleep(ctx, d)
}

// writes reports whether a request of this method may change the store.
func (m Method) writes() bool {
	switch m {
	case MethodListen, MethodNotify, MethodLoad, MethodKeys, MethodMembers, MethodLiveness, MethodObservers, MethodQueue:
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
func (f *Faulty) Expire(ctx context.Context, session string) (time.Duration, error) {
	return call(ctx, f, Request{Method: MethodExpire, Session: session}, func(ctx context.Context) (time.Duration, error) {
		return f.store.Expire(ctx, session)
	})
}

// Unregister implements [driver.Store].
func (f *Faulty) Unregister(ctx context.Context, session string) error {
	_, err := call(ctx, f, Request{Method: MethodUnregister, Session: session}, func(ctx context.Context) (struct{}, error) {
		return struct{}{}, f.store.Unregister(ctx, session)
	})
	return err
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

// Acquire implements [driver.Store].
func (f *Faulty) Acquire(ctx context.Context, c driver.Claim, wait bool, expired []string, notAfter time.Time) (driver.State, []driver.Notice, error) {
	expired = slices.Clone(expired)
	r := claimRequest(MethodAcquire, c)
	if r.Wait = wait; c.Replaces != nil {
		r.Replaces = c.Replaces.ID
	}
	s, err := call(ctx, f, r, func(ctx context.Context) (noticed[driver.State], error) {
		s, notices, err := f.store.Acquire(ctx, c, wait, expired, notAfter)
		return noticed[driver.State]{s, notices}, err
	})
	return s.value, s.notices, err
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

// Release implements [driver.Store].
func (f *Faulty) Release(ctx context.Context, c driver.Claim, o driver.ReleaseOptions) (bool, []driver.Notice, error) {
	o.Result = slices.Clone(o.Result)
	found, err := call(ctx, f, claimRequest(MethodRelease, c), func(ctx context.Context) (noticed[bool], error) {
		found, notices, err := f.store.Release(ctx, c, o)
		return noticed[bool]{found, notices}, err
	})
	return found.value, found.notices, err
}

// Discard implements [driver.Store]. Its Request names the first of the claims.
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

// Extend implements [driver.Store].
func (f *Faulty) Extend(ctx context.Context, c driver.Claim) (driver.Holder, error) {
	return call(ctx, f, claimRequest(MethodExtend, c), func(ctx context.Context) (driver.Holder, error) {
		return f.store.Extend(ctx, c)
	})
}

// Publish implements [driver.Store].
func (f *Faulty) Publish(ctx context.Context, c driver.Claim, seq int64, value []byte) ([]driver.Notice, error) {
	value = slices.Clone(value)
	return call(ctx, f, claimRequest(MethodPublish, c), func(ctx context.Context) ([]driver.Notice, error) {
		return f.store.Publish(ctx, c, seq, value)
	})
}

// Resize implements [driver.Store].
func (f *Faulty) Resize(ctx context.Context, key string, kind driver.Kind, from, limit int64) ([]driver.Notice, error) {
	return call(ctx, f, Request{Method: MethodResize, Key: key}, func(ctx context.Context) ([]driver.Notice, error) {
		return f.store.Resize(ctx, key, kind, from, limit)
	})
}

// Load implements [driver.Store].
func (f *Faulty) Load(ctx context.Context, key string) (driver.State, error) {
	return call(ctx, f, Request{Method: MethodLoad, Key: key}, func(ctx context.Context) (driver.State, error) {
		return f.store.Load(ctx, key)
	})
}

// Keys implements [driver.Store].
func (f *Faulty) Keys(ctx context.Context, prefix, after string, n int) ([]driver.State, error) {
	return call(ctx, f, Request{Method: MethodKeys}, func(ctx context.Context) ([]driver.State, error) {
		return f.store.Keys(ctx, prefix, after, n)
	})
}

// Members implements [driver.Store].
func (f *Faulty) Members(ctx context.Context, ids ...string) ([]driver.Member, time.Time, error) {
	return f.sessions(ctx, MethodMembers, f.store.Members, ids)
}

// Liveness implements [driver.Store].
func (f *Faulty) Liveness(ctx context.Context, ids ...string) ([]driver.Member, time.Time, error) {
	return f.sessions(ctx, MethodLiveness, f.store.Liveness, ids)
}

// sessions reads sessions by the method.
func (f *Faulty) sessions(ctx context.Context, m Method, read func(context.Context, ...string) ([]driver.Member, time.Time, error),
	ids []string) ([]driver.Member, time.Time, error) {
	type reading struct {
		members []driver.Member
		now     time.Time
	}
	ids = slices.Clone(ids)
	r, err := call(ctx, f, Request{Method: m}, func(ctx context.Context) (reading, error) {
		members, now, err := read(ctx, ids...)
		return reading{members, now}, err
	})
	return r.members, r.now, err
}

// Observers implements [driver.Store].
func (f *Faulty) Observers(ctx context.Context, key, after string, n int) ([]driver.Member, error) {
	return call(ctx, f, Request{Method: MethodObservers, Key: key}, func(ctx context.Context) ([]driver.Member, error) {
		return f.store.Observers(ctx, key, after, n)
	})
}

// Queue implements [driver.Store].
func (f *Faulty) Queue(ctx context.Context, key string) ([]driver.Waiter, error) {
	return call(ctx, f, Request{Method: MethodQueue, Key: key}, func(ctx context.Context) ([]driver.Waiter, error) {
		return f.store.Queue(ctx, key)
	})
}

// Sweep implements [driver.Store].
func (f *Faulty) Sweep(ctx context.Context, session string, last driver.SweepState, retention time.Duration) (driver.SweepState, error) {
	return call(ctx, f, Request{Method: MethodSweep, Session: session}, func(ctx context.Context) (driver.SweepState, error) {
		return f.store.Sweep(ctx, session, last, retention)
	})
}
