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
		{name: "Load/UnusedKeyIsZero", test: testLoadUnused},
		{name: "Load/AsAcquired_B25", test: testLoadAsAcquired},
		{name: "Acquire/GrantsFreeKey", test: testAcquireGrantsFreeKey},
		{name: "Acquire/AfterNotAfterJoinsNothing", test: testNotAfterJoinsNothing},
		{name: "Acquire/KeysAreApart", test: testKeysAreApart},
		{name: "Contexts/EndedOneEndsEveryCall", test: testEndedContext},
		{name: "Contexts/ValuesDoNotMatter", test: testContextValues},
	}
}

func testLoadUnused(e *env) {
	key := newID()
	for range 2 { // the first Load must not create a record
		s := e.load(key)
		if s.Kind != "" || s.Limit != 0 || s.Token != 0 || s.Term != 0 || s.Value != nil || len(s.Holders) != 0 || s.Waiting != 0 || s.Position != 0 || len(s.WaitersAhead) != 0 {
			e.Fatalf("Load of a key that was never used = %+v, want the zero State except for Key and Now", s)
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
	_, err = storecmd.Extend(ctx, e.store, held)
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

// tokenCases test fencing tokens.
func tokenCases() []conformanceCase {
	return []conformanceCase{
		{name: "Token/GrowsOverEveryHandOff_B08", test: testTokenGrows},
	}
}

// testTokenGrows makes a key change hands in four ways. As in all cases, env.check compares the tokens of all states.
func testTokenGrows(e *env) {
	key, living := newID(), e.session()
	var last int64
	for i := range 24 {
		var c driver.Claim
		var h driver.Holder
		switch i % 4 {
		case 0: // after a release
			c = e.claim(key, living)
			h = e.hold(c)
			e.release(c)
		case 1: // by a release
			first := e.claim(key, living)
			c = e.claim(key, living)
			e.hold(first)
			e.queue(c)
			e.release(first)
			h, _ = e.load(key).Holder(c.ID)
			e.release(c)
		case 2: // from an expired session
			session := e.session()
			e.hold(e.claim(key, session))
			e.expire(session)
			c = e.claim(key, living)
			h = e.hold(c, session)
			e.release(c)
		case 3: // from a lapsed lease
			e.until(e.hold(e.leased(key, living, time.Millisecond)).Until)
			c = e.claim(key, living)
			h = e.hold(c)
			e.release(c)
		}
		if h.Token < last+driver.TokenStep {
			e.Fatalf("round %d: token %d after %d, want at least %d more", i, h.Token, last, driver.TokenStep)
		}
		last = h.Token
	}
}

// termCases test that an election's term is the number of its grants.
func termCases() []conformanceCase {
	return []conformanceCase{
		{name: "Term/CountsEveryGrant", test: testTermCounts},
		{name: "Notice/GrantCarriesItsTerm", test: testTermNotice},
	}
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

// testTermCounts changes the leader in several ways.
func testTermCounts(e *env) {
	key, living := newID(), e.session()
	for term := int64(0); term < 12; {
		first, next := e.candidate(key, living), e.candidate(key, living)

		e.wantTerm(e.acquire(first), term+1) // acquiring a free key
		e.queue(next)
		e.release(first) // by a release
		e.wantTerm(e.load(key), term+2)
		e.wantHolders(e.load(key), next)
		e.release(next)
		e.wantTerm(e.load(key), term+2) // nobody leads

		expired := e.session() // from an expired session
		e.wantTerm(e.acquire(e.candidate(key, expired)), term+3)
		e.expire(expired)
		leased := e.candidate(key, living) // from a lapsed lease
		leased.Lease = time.Millisecond
		e.wantTerm(e.acquire(leased, expired), term+4)
		e.until(e.extend(leased).Until)
		first = e.candidate(key, living)
		e.wantTerm(e.try(first), term+5)
		e.release(first)
		term += 5
	}

	// One command grants several claims.
	all := e.weighted(newID(), living, 3, 3)
	all.Kind = driver.KindElection
	e.wantTerm(e.acquire(all), 1)
	for range 3 {
		one := e.weighted(all.Key, living, 1, 3)
		one.Kind = driver.KindElection
		e.queue(one)
	}
	e.release(all)
	e.wantTerm(e.load(all.Key), 4)
}

// testTermNotice causes notices of grants. As in every case, env.noticed compares their terms with the term that Load
// returns.
func testTermNotice(e *env) {
	key, session := newID(), e.session()
	l := e.hears()
	if l == nil {
		return
	}
	for range 3 {
		leader, waiter := e.candidate(key, session), e.candidate(key, l.session)
		e.hold(leader)
		e.queue(waiter)
		e.release(leader)
		e.wantNotices(granted(waiter, false))
		e.release(waiter)
	}
	holder, waiter := e.claim(key, session), e.claim(key, l.session) // the key was used by an election before
	e.hold(holder)
	e.queue(waiter)
	e.release(holder)
	e.wantNotices(granted(waiter, false))
	e.release(waiter)

	// If one command grants several claims, each has its own term.
	all := e.weighted(newID(), session, 3, 3)
	all.Kind = driver.KindElection
	e.hold(all)
	var want []driver.Notice
	for range 3 {
		one := e.weighted(all.Key, l.session, 1, 3)
		one.Kind = driver.KindElection
		e.queue(one)
		want = append(want, granted(one, false))
	}
	e.release(all)
	e.wantNotices(want...)
}
