package dsynctest

import (
	"context"
	"errors"
	"sync/atomic"
	"time"

	"github.com/leasehold-go/leasehold/dsync"
)

// watchCases test Watch. Of a store that can't push they test that it says so.
func watchCases() []conformanceCase {
	return []conformanceCase{
		{name: "Watch/ReadyFirstOrUnsupportedAtOnce", test: testWatchReadyFirst},
		{name: "Watch/GrantReachesItsWaiter", test: testWatchGrant},
		{name: "Watch/WhoeversCommandGrants", test: testWatchWhoevers},
		{name: "Watch/OnlyItsSession", test: testWatchOnlyItsSession},
		{name: "Watch/SeveralGrantsOfOneCommand", test: testWatchSeveralGrants},
		{name: "Watch/TwoOfOneSession", test: testWatchTwo},
		{name: "Watch/OneCallAtATime", test: testWatchOneCallAtATime},
		{name: "Watch/EndsWithItsContext", test: testWatchEnds},
	}
}

func testWatchReadyFirst(e *env) {
	start := time.Now()
	session := e.session()
	w := e.watch(session)
	if w == nil {
		if took := time.Since(start); took > patience/3 {
			e.Errorf("Watch took %v to say that it is not supported", took)
		}
		return
	}
	holder, waiter := e.claim(newID(), session), e.claim(newID(), session)
	waiter.Key = holder.Key
	e.hold(holder)
	e.queue(waiter)
	e.release(holder)
	w.wantGrant(waiter)
	if first := w.seen()[0]; first.Type != dsync.EventReady {
		e.Errorf("first event %+v, want EventReady", first)
	}
}

func testWatchGrant(e *env) {
	key, session := newID(), e.session()
	w := e.watch(session)
	if w == nil {
		return
	}
	holder, waiter := e.claim(key, e.session()), e.claim(key, session)
	e.hold(holder)
	e.queue(waiter)
	e.release(holder)
	w.wantGrant(waiter)
	w.wantOnly(waiter)
}

// testWatchWhoevers lets the waiter in by each kind of command that can.
func testWatchWhoevers(e *env) {
	session, other := e.session(), e.session()
	w := e.watch(session)
	if w == nil {
		return
	}
	var waiters []dsync.Claim
	for _, let := range []func(key string, holder, heavy dsync.Claim){
		func(key string, holder, heavy dsync.Claim) { e.release(heavy) },
		func(key string, holder, heavy dsync.Claim) {
			e.release(heavy)
			e.release(holder)
		},
		func(key string, holder, heavy dsync.Claim) { // the dead
			e.kill(heavy.Session)
			e.try(e.weighted(key, other, 1, 3), heavy.Session)
		},
		func(key string, holder, heavy dsync.Claim) { // a late request that names the dead
			e.kill(heavy.Session)
			e.ask(e.weighted(key, other, 1, 3), true, e.now().Add(-time.Second), heavy.Session)
		},
	} {
		key := newID()
		holder, heavy, waiter := e.weighted(key, other, 2, 3), e.weighted(key, e.session(), 3, 3), e.weighted(key, session, 1, 3)
		e.hold(holder)
		e.queue(heavy)
		e.queue(waiter)
		waiters = append(waiters, waiter)
		w.wantOnly(waiters...)
		let(key, holder, heavy)
		w.wantGrant(waiter)
	}

	// A lease whose end has come.
	leased := e.leased(newID(), other, short)
	waiter := e.claim(leased.Key, session)
	h := e.hold(leased)
	e.queue(waiter)
	e.until(h.Until)
	e.try(e.claim(leased.Key, other))
	w.wantGrant(waiter)
	w.wantOnly(append(waiters, waiter)...)
}

// testWatchOnlyItsSession watches for sessions whose ids are nearly the same.
func testWatchOnlyItsSession(e *env) {
	key, holder := newID(), e.session()
	base := newID()
	sessions := []string{base, base + "1", "1" + base, base + "-", base + "_"}
	var watchers []*watcher
	var claims []dsync.Claim
	held := e.claim(key, holder)
	e.hold(held)
	for _, session := range sessions {
		if _, err := e.store.Register(e.ctx, dsync.Member{ID: session, TTL: long}); err != nil {
			e.Fatalf("Register: %v", err)
		}
		w := e.watch(session)
		if w == nil {
			return
		}
		watchers = append(watchers, w)
		c := e.claim(key, session)
		e.queue(c)
		claims = append(claims, c)
	}
	for i, w := range watchers {
		e.release(held)
		held = claims[i]
		w.wantGrant(held)
	}
	for i, w := range watchers {
		w.wantOnly(claims[i])
	}
}

func testWatchSeveralGrants(e *env) {
	key, a, b := newID(), e.session(), e.session()
	wa, wb := e.watch(a), e.watch(b)
	if wa == nil || wb == nil {
		return
	}
	writer := e.weighted(key, e.session(), 4, 4)
	e.hold(writer)
	first, second, third := e.weighted(key, a, 1, 4), e.weighted(key, b, 1, 4), e.weighted(key, a, 1, 4)
	e.queue(first)
	e.queue(second)
	e.queue(third)
	e.release(writer)
	wa.wantGrant(first)
	wa.wantGrant(third)
	wb.wantGrant(second)
	wa.wantOnly(first, third)
	wb.wantOnly(second)
}

func testWatchTwo(e *env) {
	key, session := newID(), e.session()
	first, second := e.watch(session), e.watch(session)
	if first == nil || second == nil {
		return
	}
	holder, waiter, next := e.claim(key, e.session()), e.claim(key, session), e.claim(key, session)
	e.hold(holder)
	e.queue(waiter)
	e.queue(next)
	e.release(holder)
	first.wantGrant(waiter)
	second.wantGrant(waiter)
	first.cancel()
	<-first.done
	e.release(waiter)
	second.wantGrant(next)
}

func testWatchOneCallAtATime(e *env) {
	const grants = 8
	key, session := newID(), e.session()
	var calls, seen atomic.Int32
	done := make(chan error, 1)
	ready, all := make(chan struct{}), make(chan struct{})
	e.wg.Go(func() {
		done <- e.store.Watch(e.ctx, session, nil, func(event dsync.Event) {
			if calls.Add(1) > 1 {
				e.Error("Watch calls f while a call of it is running")
			}
			defer calls.Add(-1)
			time.Sleep(5 * time.Millisecond)
			if event.Type == dsync.EventReady {
				close(ready)
			} else if seen.Add(1) == grants {
				close(all)
			}
		})
	})
	select {
	case <-ready:
	case err := <-done:
		if !errors.Is(err, errors.ErrUnsupported) {
			e.Errorf("Watch: %v", err)
		}
		return
	}
	writer := e.weighted(key, e.session(), grants, grants)
	e.hold(writer)
	for range grants {
		e.queue(e.weighted(key, session, 1, grants))
	}
	e.release(writer)
	select {
	case <-all:
	case <-time.After(patience):
		e.Errorf("%d events of %d grants", seen.Load(), grants)
	}
}

func testWatchEnds(e *env) {
	key, session := newID(), e.session()
	w := e.watch(session)
	if w == nil {
		return
	}
	w.cancel()
	select {
	case <-w.done:
	case <-time.After(patience):
		e.Fatal("Watch goes on after its ctx has ended")
	}
	if !errors.Is(w.err, context.Canceled) {
		e.Errorf("Watch: error %v when its ctx was cancelled, want context.Canceled", w.err)
	}
	before := len(w.seen())
	holder, waiter := e.claim(key, session), e.claim(key, session)
	e.hold(holder)
	e.queue(waiter)
	e.release(holder)
	time.Sleep(50 * time.Millisecond)
	if events := w.seen(); len(events) > before {
		e.Errorf("events after Watch has returned: %+v", events[before:])
	}
}
