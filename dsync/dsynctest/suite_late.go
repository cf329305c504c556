package dsynctest

import (
	"bytes"
	"time"

	"github.com/leasehold-go/leasehold/dsync/driver"
	"github.com/leasehold-go/leasehold/internal/storecmd"
)

// lateCases test that late and repeated requests do no harm.
func lateCases() []conformanceCase {
	return []conformanceCase{
		{name: "Late/EveryRequestTwiceAfterEveryLaterOne_B31", test: testLateReplay},
		{name: "Late/EveryRequestTwiceAfterItsSessionsEnd_B31", test: testLateReplayDead},
	}
}

// A life describes a session that has sent nearly every kind of request, and the keys that it used.
type life struct {
	session string
	wire    *Faulty // keeps a copy of each request of the session
	keys    []string
	sealed  string // the key that the session sealed; also in keys
	resized string // a key whose limit the session changed; not in keys
}

// live makes a session send nearly every kind of request. When live returns, the session holds nothing and waits for
// nothing.
func (e *env) live() life {
	e.Helper()
	wire := NewFaulty(e.store, nil)
	wire.Record()
	other, expired := e.session(), e.session()
	e.expire(expired)

	// me is e with its commands sent through the wire.
	me := *e
	me.store = wire
	session := me.session()
	l := life{session: session, wire: wire}
	key := func() string {
		l.keys = append(l.keys, newID())
		return l.keys[len(l.keys)-1]
	}
	latest := e.now()
	ask := func(c driver.Claim, wait bool, expired ...string) driver.State {
		e.Helper()
		latest = e.now().Add(3 * time.Second)
		return me.acquireAs(c, wait, latest, expired...)
	}
	beat := func() {
		e.Helper()
		if _, err := wire.Heartbeat(e.ctx, session, nil); err != nil {
			e.Fatalf("Heartbeat: %v", err)
		}
	}

	c := e.claim(key(), session) // this claim is granted at once and then released
	e.wantHolders(ask(c, true), c)
	me.release(c)
	beat()

	c = e.claim(key(), session) // this claim is requested without waiting and released twice
	e.wantHolders(ask(c, false), c)
	me.release(c)
	me.releaseKeep(c, 0, false)

	held := e.claim(key(), other) // while this claim is held, a try fails; then another claim waits and is released
	e.hold(held)
	ask(e.claim(held.Key, session), false)
	c = e.claim(held.Key, session)
	ask(c, true)
	ask(c, true)
	me.release(c)
	e.release(held)

	held = e.claim(key(), other) // while this claim is held, another waits; it is granted when this one is released
	e.hold(held)
	c = e.claim(held.Key, session)
	ask(c, true)
	e.release(held)
	e.wantHolders(ask(c, true), c)
	me.release(c)
	beat()

	held = e.claim(key(), expired) // this key is acquired from an expired session
	e.hold(held)
	if _, err := wire.Expire(e.ctx, expired, false); err != nil {
		e.Fatalf("Expire: %v", err)
	}
	c = e.claim(held.Key, session)
	e.wantHolders(ask(c, true, expired), c)
	me.release(c)

	c = e.leased(key(), session, long) // a fixed lease, released early
	e.wantHolders(ask(c, true), c)
	me.extend(c)
	me.release(c)

	lapses := e.leased(key(), session, short) // a fixed lease that lapses
	e.wantHolders(ask(lapses, true), lapses)
	me.extend(lapses)

	c = e.candidate(key(), session) // this claim leads, and publishes values
	e.wantHolders(ask(c, true), c)
	me.publish(c, []byte("older"))
	me.publish(c, []byte("value"))
	me.release(c)

	c = e.claim(key(), session) // this claim is released first, so its Seal has no effect
	e.wantHolders(ask(c, true), c)
	e.release(c)
	me.seal(c, []byte("late"), false)

	held = e.claim(key(), other) // a claim with First waits, and is granted while others wait behind it
	e.hold(held)
	behind := e.claim(held.Key, other)
	e.queue(behind)
	c = e.yielding(held.Key, session, 1, 1)
	c.First = true
	ask(c, true)
	e.release(held)
	e.wantHolders(ask(c, true), c)
	me.release(c)
	e.release(behind)

	c = e.claim(key(), session) // this claim seals its key
	l.sealed = c.Key
	e.wantHolders(ask(c, true), c)
	me.seal(c, []byte("result"), true)

	l.resized = newID()
	c = e.weighted(l.resized, session, 2, 2)
	e.wantHolders(ask(c, true), c)
	me.resize(l.resized, 2, 4)
	me.release(c)

	r := driver.Revocation{Key: c.Key, Claim: c.ID} // this revocation is requested and then removed
	me.revoke(session, r)
	me.revoke(other, r)
	me.wantRevoked(session, []driver.Revocation{r})
	e.wantRevoked(other, []driver.Revocation{r})

	c = e.candidate(key(), session) // this claim is released to the second in the queue
	e.wantHolders(ask(c, true), c)
	first, second := e.candidate(c.Key, other), e.candidate(c.Key, other)
	e.queue(first)
	e.queue(second)
	me.releaseAs(c, driver.Release{Successor: second.ID}, true)
	e.wantHolders(e.load(c.Key), second)
	e.release(second)
	e.release(first)

	kept := e.claim(key(), session) // this hold is released with Keep, and outlives the session
	e.wantHolders(ask(kept, true), kept)
	me.releaseKeep(kept, short, true)
	beat()

	held = e.claim(key(), session) // claims are replaced, while others wait and while none do
	e.wantHolders(ask(held, true), held)
	behind = e.claim(held.Key, other)
	e.queue(behind)
	c = e.claim(held.Key, session)
	latest = e.now().Add(3 * time.Second)
	e.wantHolders(me.replace(held, c, latest), behind)
	e.release(behind)
	last := e.claim(c.Key, session)
	latest = e.now().Add(3 * time.Second)
	e.wantHolders(me.replace(c, last, latest), last)
	me.release(last)

	e.until(latest.Add(short + time.Millisecond)) // requests sent again from here on are late
	return l
}

// replayed sends all requests of l again, twice, and checks that the keys' states don't change.
func (e *env) replayed(l life, keys ...string) {
	e.Helper()
	for range 2 {
		var before []driver.State
		for _, key := range keys {
			before = append(before, e.load(key))
		}
		if err := l.wire.Replay(e.ctx); err != nil {
			e.Fatalf("Replay: %v", err)
		}
		for i, key := range keys {
			was, is := before[i], e.load(key)
			same := len(was.Holders) == len(is.Holders) && was.Waiting == is.Waiting && was.Token == is.Token && was.Kind == is.Kind &&
				was.Term == is.Term && was.Limit == is.Limit && was.Sealed == is.Sealed && bytes.Equal(was.Value, is.Value)
			for j := 0; same && j < len(is.Holders); j++ {
				same = was.Holders[j].Claim == is.Holders[j].Claim && was.Holders[j].Until.Equal(is.Holders[j].Until)
			}
			if !same {
				e.Errorf("late requests changed the key\nfrom %+v\nto   %+v", was, is)
			}
		}
	}
}

func testLateReplay(e *env) {
	l := e.live()
	// Some keys are left free. Others get a holder and a waiter: a claim of l's session and a claim of another session,
	// in either order. The first Acquire of a key drops lapsed leases.
	other := e.session()
	for i, key := range l.keys {
		if key == l.sealed {
			continue
		}
		first, second := e.candidate(key, other), e.candidate(key, l.session)
		if i%2 == 1 {
			first, second = second, first
		}
		e.hold(first)
		e.publish(first, []byte(key))
		e.queue(second)
		if i%3 == 0 {
			e.release(first)
			e.release(second)
		}
	}
	part, all := e.weighted(l.resized, other, 3, 4), e.weighted(l.resized, other, 4, 4)
	e.hold(part)
	e.queue(all)
	e.replayed(l, append(l.keys, l.resized)...)
	// A heartbeat can still remove a revocation that arrived late.
	e.wantRevoked(l.session, e.revoked(l.session))
}

// revoked returns the unanswered revocations of a session.
func (e *env) revoked(session string) []driver.Revocation {
	e.Helper()
	p, err := e.store.Heartbeat(e.ctx, session, nil)
	if err != nil {
		e.Fatalf("Heartbeat: %v", err)
	}
	return p.Revoked
}

func testLateReplayDead(e *env) {
	l := e.live()
	if err := storecmd.Unregister(e.ctx, l.wire, l.session); err != nil {
		e.Fatalf("Unregister: %v", err)
	}
	other := e.session()
	for _, key := range l.keys {
		if key != l.sealed {
			e.hold(e.claim(key, other), l.session)
		}
	}
	e.replayed(l, append(l.keys, l.resized)...)
	e.wantExpired(l.session)
}

// replace releases the old claim and acquires the next one in one edit.
func (e *env) replace(old, next driver.Claim, notAfter time.Time) driver.State {
	e.Helper()
	if h, ok := e.load(old.Key).Holder(old.ID); ok {
		old.Token, old.NoneWaiting = h.Token, e.alone[old.ID]
	}
	return e.join(driver.Edit{Release: &driver.Release{Claim: old}, Acquire: &driver.Acquire{Claim: next, Wait: true, NotAfter: notAfter}})
}
