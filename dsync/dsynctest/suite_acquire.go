package dsynctest

import (
	"context"
	"errors"
	"strings"
	"time"

	"github.com/leasehold-go/leasehold/dsync/driver"
	"github.com/leasehold-go/leasehold/internal/storecmd"
)

// acquireCases test Acquire of one claim, Load, and the rules for all commands.
func acquireCases() []conformanceCase {
	return []conformanceCase{
		{name: "Acquire/GrantsFreeKey", test: testAcquireGrantsFreeKey},
		{name: "Acquire/AfterNotAfterJoinsNothing", test: testNotAfterJoinsNothing},
		{name: "Acquire/KeysAreApart", test: testKeysAreApart},
		{name: "Contexts/EndedOneEndsEveryCall", test: testEndedContext},
		{name: "Contexts/ValuesDoNotMatter", test: testContextValues},
	}
}

func testAcquireGrantsFreeKey(e *env) {
	session := e.session()
	c := e.weighted(newID(), session, 3, 7)
	before := e.now()
	s := e.acquire(c)
	e.wantHolders(s, c)
	e.wantQueue(s)
	h := s.Holders[0]
	if s.Kind != c.Kind || s.Limit != 7 || h.Weight != 3 || h.Session != session {
		e.Errorf("state %+v, want the kind, limit, weight and session of %+v", s, c)
	}
	if h.Token <= 0 || h.Token != s.Token {
		e.Errorf("token %d, the key's last %d, want them positive and equal", h.Token, s.Token)
	}
	if !h.Since.Equal(s.Now) || h.Since.Before(before) || !h.Until.IsZero() {
		e.Errorf("held since %v until %v; want since now, which is %v, without an end", h.Since, h.Until, s.Now)
	}
}

func testNotAfterJoinsNothing(e *env) {
	key, session := newID(), e.session()
	for _, wait := range []bool{true, false} {
		late := e.claim(key, session)
		for _, notAfter := range []time.Time{e.now().Add(-time.Millisecond), e.now().Add(-24 * time.Hour), time.Time{}} {
			s := e.acquireAs(late, wait, notAfter)
			e.wantHolders(s)
			e.wantQueue(s)
		}
	}
	e.wantFree(key)

	holder, waiter := e.claim(key, session), e.claim(key, session)
	e.hold(holder)
	e.queue(waiter)
	s := e.acquireAs(e.claim(key, session), true, e.now().Add(-time.Millisecond))
	e.wantHolders(s, holder)
	e.wantQueue(s, waiter)
	e.wantQueue(e.load(key), waiter)
}

func testKeysAreApart(e *env) {
	session := e.session()
	base := newID()
	keys := []string{
		base, strings.ToLower(base), base + " ", base + "/", "k/" + base, "s/" + session, session,
		base + ".a", "$" + base, "$$NOW" + base, base + `"'\{$gt:1}`, base + "\n\x01", base + "é", base + "e\u0301",
		base + strings.Repeat("x", 512-len(base)),
	}
	for _, key := range keys {
		e.hold(e.claim(key, session))
	}
	for _, key := range keys {
		if s := e.load(key); len(s.Holders) != 1 || s.Waiting != 0 {
			e.Errorf("key %q has %d holders and %d waiting, want 1 and 0", key, len(s.Holders), s.Waiting)
		}
	}
	if _, err := e.store.Heartbeat(e.ctx, session, nil); err != nil {
		e.Errorf("Heartbeat of a session whose id is used as a key: %v", err)
	}
}

// everyMethod sends most kinds of commands, once each, and passes their errors to report. It uses new keys and
// sessions.
func (e *env) everyMethod(ctx context.Context, report func(Method, error)) {
	session := e.session()
	held := e.leased(newID(), session, long)
	held.Token = e.hold(held).Token

	_, err := e.store.Register(ctx, driver.Member{ID: newID(), TTL: long})
	report(MethodRegister, err)
	_, err = e.store.Heartbeat(ctx, session, nil)
	report(MethodHeartbeat, err)
	notices, err := e.store.Revoke(ctx, session, driver.Revocation{Key: held.Key, Claim: held.ID})
	report(MethodRevoke, err)
	report(MethodNotify, e.store.Notify(ctx, notices))
	_, err = e.store.Expire(ctx, session, false)
	report(MethodExpire, err)
	_, _, err = storecmd.Acquire(ctx, e.store, e.claim(newID(), session), true, nil, e.far)
	report(MethodAcquire, err)
	_, err = storecmd.Extend(ctx, e.store, held, 1)
	report(MethodExtend, err)
	_, err = storecmd.Publish(ctx, e.store, held, 1, []byte("value"))
	report(MethodPublish, err)
	_, err = storecmd.Resize(ctx, e.store, newID(), held.Kind, 1, 2)
	report(MethodResize, err)
	_, _, err = storecmd.Forget(ctx, e.store, newID(), 1)
	report(MethodForget, err)
	_, err = e.store.Load(ctx, held.Key, 1000)
	report(MethodLoad, err)
	_, err = e.store.Keys(ctx, driver.KeyQuery{Prefix: held.Key, Limit: 10})
	report(MethodKeys, err)
	_, _, err = storecmd.Members(ctx, e.store, session)
	report(MethodMembers, err)
	_, _, err = storecmd.Liveness(ctx, e.store, session)
	report(MethodLiveness, err)
	_, err = e.store.Sweep(ctx, session, driver.SweepState{}, 24*time.Hour)
	report(MethodSweep, err)
	_, _, err = storecmd.Release(ctx, e.store, held, driver.Release{})
	report(MethodRelease, err)
	report(MethodUnregister, storecmd.Unregister(ctx, e.store, session))
}

func testEndedContext(e *env) {
	cancelled, cancel := context.WithCancel(e.ctx)
	cancel()
	passed, cancel := context.WithDeadline(e.ctx, time.Now().Add(-time.Second))
	defer cancel()
	for _, ctx := range []context.Context{cancelled, passed} {
		start := time.Now()
		e.everyMethod(ctx, func(m Method, err error) {
			if took := time.Since(start); took > patience/3 {
				e.Errorf("%s with an ended ctx: %v after %v, want it soon", m, err, took)
			}
			start = time.Now()
		})
		err := e.store.Listen(ctx, newID(), []string{newID()}, func(driver.Notice) {})
		if !errors.Is(err, ctx.Err()) && !errors.Is(err, errors.ErrUnsupported) {
			e.Errorf("Listen with an ended ctx: error %v, want %v", err, ctx.Err())
		}
		if took := time.Since(start); took > patience/3 {
			e.Errorf("Listen with an ended ctx took %v", took)
		}
	}
}

func testContextValues(e *env) {
	type key struct{}
	ctx := context.WithValue(e.ctx, key{}, "value")
	e.everyMethod(ctx, func(m Method, err error) {
		if err != nil && !(m == MethodNotify && errors.Is(err, errors.ErrUnsupported)) {
			e.Errorf("%s with a ctx that has a value: %v", m, err)
		}
	})
}

// candidate returns a new claim of KindElection.
func (e *env) candidate(key, session string) driver.Claim {
	c := e.claim(key, session)
	c.Kind = driver.KindElection
	return c
}

// wantTerm checks the term in a state, and in the state that Load then returns.
func (e *env) wantTerm(s driver.State, want int64) {
	e.Helper()
	if read := e.load(s.Key); s.Term != want || read.Term != want {
		e.Fatalf("term %d, read back as %d, want %d", s.Term, read.Term, want)
	}
}
