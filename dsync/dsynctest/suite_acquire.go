package dsynctest

import (
	"context"
	"errors"
	"strings"
	"time"

	"github.com/leasehold-go/leasehold/dsync"
)

// acquireCases test Acquire of one claim, Load, and what is true of every
// command.
func acquireCases() []conformanceCase {
	return []conformanceCase{
		{name: "Load/UnusedKeyIsZero", test: testLoadUnused},
		{name: "Load/AsAcquired_B25", test: testLoadAsAcquired},
		{name: "Acquire/GrantsFreeKey", test: testAcquireGrantsFreeKey},
		{name: "Acquire/HolderMayRepeat", test: testAcquireHolderMayRepeat},
		{name: "Acquire/JoinsLine", test: testAcquireJoinsLine},
		{name: "Acquire/WaiterMayRepeat", test: testAcquireWaiterMayRepeat},
		{name: "Acquire/TryIsGranted", test: testTryIsGranted},
		{name: "Acquire/TryLeavesNothing", test: testTryLeavesNothing},
		{name: "Acquire/AfterNotAfterJoinsNothing", test: testNotAfterJoinsNothing},
		{name: "Acquire/AfterNotAfterReportsOwnClaim", test: testNotAfterReportsOwnClaim},
		{name: "Acquire/KeysAreApart", test: testKeysAreApart},
		{name: "Contexts/EndedOneEndsEveryCall", test: testEndedContext},
		{name: "Contexts/ValuesDoNotMatter", test: testContextValues},
	}
}

func testLoadUnused(e *env) {
	key := newID()
	for range 2 { // the first must not make a record
		s := e.load(key)
		if s.Kind != "" || s.Limit != 0 || s.Token != 0 || s.Term != 0 || s.Value != nil || len(s.Holders) != 0 || s.Waiting != 0 || s.Place != 0 || len(s.Ahead) != 0 {
			e.Fatalf("Load of a key that was never used = %+v, want the zero State but for Key and Now", s)
		}
	}
}

func testLoadAsAcquired(e *env) {
	c := e.leased(newID(), e.session(), long)
	asked := e.acquire(c)
	read := e.load(c.Key)
	e.wantHolders(asked, c)
	e.wantHolders(read, c)
	a, b := asked.Holders[0], read.Holders[0]
	if !a.Since.Equal(b.Since) || !a.Until.Equal(b.Until) || a.Token != b.Token || a.Session != b.Session || a.Weight != b.Weight {
		e.Errorf("Load reads %+v back, Acquire returned %+v", b, a)
	}
	if read.Kind != asked.Kind || read.Limit != asked.Limit || read.Token != asked.Token || read.Now.Before(asked.Now) {
		e.Errorf("Load = %+v after Acquire = %+v", read, asked)
	}
}

func testAcquireGrantsFreeKey(e *env) {
	session := e.session()
	c := e.weighted(newID(), session, 3, 7)
	before := e.now()
	s := e.acquire(c)
	e.wantHolders(s, c)
	e.wantLine(s)
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

func testAcquireHolderMayRepeat(e *env) {
	c := e.claim(newID(), e.session())
	first := e.hold(c)
	for range 3 {
		if again := e.hold(c); again.Token != first.Token || !again.Since.Equal(first.Since) {
			e.Errorf("repeated: token %d since %v, at first %d, %v", again.Token, again.Since, first.Token, first.Since)
		}
	}
	s := e.load(c.Key)
	e.wantHolders(s, c)
	e.wantLine(s)
	if s.Token != first.Token {
		e.Errorf("the key's token is %d after repeats, want %d as granted", s.Token, first.Token)
	}
}

func testAcquireJoinsLine(e *env) {
	key := newID()
	var line []dsync.Claim
	holder := e.claim(key, e.session())
	e.hold(holder)
	for i := range 3 {
		c := e.claim(key, e.session())
		s := e.acquire(c)
		e.wantHolders(s, holder)
		if got, want := strings.Join(ahead(s), " "), strings.Join(claimIDs(line), " "); s.Place != i+1 || s.Waiting != i+1 || got != want {
			e.Fatalf("place %d of %d, ahead [%s]; want place %d of as many, ahead [%s]", s.Place, s.Waiting, got, i+1, want)
		}
		for j, w := range s.Ahead {
			if w.Session != line[j].Session || w.Weight != line[j].Weight {
				e.Errorf("ahead %+v, want the session and weight of %+v", w, line[j])
			}
		}
		line = append(line, c)
	}
	s := e.load(key)
	e.wantHolders(s, holder)
	e.wantLine(s, line...)
}

func testAcquireWaiterMayRepeat(e *env) {
	key, session := newID(), e.session()
	holder, first, second := e.claim(key, session), e.claim(key, session), e.claim(key, session)
	e.hold(holder)
	e.queue(first)
	e.queue(second)
	for range 3 {
		if s := e.acquire(first); s.Place != 1 || s.Waiting != 2 || len(s.Ahead) != 0 {
			e.Fatalf("the first in line repeats: place %d of %d, ahead %q; want 1 of 2, none", s.Place, s.Waiting, ahead(s))
		}
	}
	e.wantLine(e.load(key), first, second)
}

func testTryIsGranted(e *env) {
	c := e.claim(newID(), e.session())
	for range 2 { // repeating it is harmless
		s := e.try(c)
		e.wantHolders(s, c)
		e.wantLine(s)
	}
	s := e.load(c.Key)
	e.wantHolders(s, c)
	e.wantLine(s)
}

func testTryLeavesNothing(e *env) {
	key, session := newID(), e.session()
	holder, waiter := e.claim(key, session), e.claim(key, session)
	e.hold(holder)
	try := e.claim(key, e.session())
	for range 2 {
		s := e.try(try)
		e.wantHolders(s, holder)
		e.wantLine(s)
	}
	e.wantLine(e.load(key))
	e.queue(waiter)
	e.wantLine(e.try(try), waiter)
	e.wantLine(e.load(key), waiter)
	e.releaseKeep(try, 0, false)
	e.release(holder)
	e.wantHolders(e.load(key), waiter)
	e.release(waiter)
	e.wantFree(key)
}

func testNotAfterJoinsNothing(e *env) {
	key, session := newID(), e.session()
	for _, wait := range []bool{true, false} {
		late := e.claim(key, session)
		for _, notAfter := range []time.Time{e.now().Add(-time.Millisecond), e.now().Add(-24 * time.Hour), time.Time{}} {
			s := e.ask(late, wait, notAfter)
			e.wantHolders(s)
			e.wantLine(s)
		}
	}
	e.wantFree(key)

	holder, waiter := e.claim(key, session), e.claim(key, session)
	e.hold(holder)
	e.queue(waiter)
	s := e.ask(e.claim(key, session), true, e.now().Add(-time.Millisecond))
	e.wantHolders(s, holder)
	e.wantLine(s, waiter)
	e.wantLine(e.load(key), waiter)
}

func testNotAfterReportsOwnClaim(e *env) {
	key, session := newID(), e.session()
	holder, waiter := e.claim(key, session), e.claim(key, session)
	e.hold(holder)
	e.queue(waiter)
	past := e.now().Add(-time.Second)
	e.wantHolders(e.ask(holder, true, past), holder)
	if s := e.ask(waiter, true, past); s.Place != 1 || s.Waiting != 1 {
		e.Errorf("a claim in line repeated after notAfter: place %d of %d, want 1 of 1", s.Place, s.Waiting)
	}
	e.wantLine(e.load(key), waiter)
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

// everyMethod calls each method of a store once, those that write on keys and
// sessions of their own, and passes each its error.
func (e *env) everyMethod(ctx context.Context, report func(Method, error)) {
	session := e.session()
	held := e.leased(newID(), session, long)
	e.hold(held)

	_, err := e.store.Register(ctx, dsync.Member{ID: newID(), TTL: long})
	report(MethodRegister, err)
	_, err = e.store.Heartbeat(ctx, session, nil)
	report(MethodHeartbeat, err)
	report(MethodRevoke, e.store.Revoke(ctx, session, dsync.Revocation{Key: held.Key, Claim: held.ID}))
	_, err = e.store.Bury(ctx, session)
	report(MethodBury, err)
	_, err = e.store.Acquire(ctx, e.claim(newID(), session), true, nil, e.far)
	report(MethodAcquire, err)
	_, err = e.store.Extend(ctx, held)
	report(MethodExtend, err)
	report(MethodPublish, e.store.Publish(ctx, held, 1, []byte("value")))
	report(MethodResize, e.store.Resize(ctx, newID(), held.Kind, 1, 2))
	_, err = e.store.Load(ctx, held.Key)
	report(MethodLoad, err)
	_, err = e.store.Keys(ctx, held.Key, "", 10)
	report(MethodKeys, err)
	_, _, err = e.store.Members(ctx, session)
	report(MethodMembers, err)
	_, _, err = e.store.Lives(ctx, session)
	report(MethodLives, err)
	_, err = e.store.Sweep(ctx, session, dsync.SweepState{}, 24*time.Hour)
	report(MethodSweep, err)
	_, err = e.store.Release(ctx, held, dsync.Outcome{})
	report(MethodRelease, err)
	report(MethodUnregister, e.store.Unregister(ctx, session))
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
		err := e.store.Watch(ctx, newID(), []string{newID()}, func(dsync.Event) {})
		if !errors.Is(err, ctx.Err()) && !errors.Is(err, errors.ErrUnsupported) {
			e.Errorf("Watch with an ended ctx: error %v, want %v", err, ctx.Err())
		}
		if took := time.Since(start); took > patience/3 {
			e.Errorf("Watch with an ended ctx took %v", took)
		}
	}
}

func testContextValues(e *env) {
	type key struct{}
	ctx := context.WithValue(e.ctx, key{}, "value")
	e.everyMethod(ctx, func(m Method, err error) {
		if err != nil {
			e.Errorf("%s with a ctx that has a value: %v", m, err)
		}
	})
}
