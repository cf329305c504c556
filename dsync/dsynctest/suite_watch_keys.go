package dsynctest

import (
	"strings"
	"time"

	"github.com/leasehold-go/leasehold/dsync"
)

// watchKeyCases test the changes that Watch reports.
func watchKeyCases() []conformanceCase {
	return []conformanceCase{
		{name: "Watch/EveryChangeOfAKey", test: testWatchChanges},
		{name: "Watch/ChangesOnlyOfItsKeys", test: testWatchOnlyItsKeys},
		{name: "Watch/ChangeWithGrantIsBoth", test: testWatchChangeAndGrant},
		{name: "Watch/ManyKeys", test: testWatchManyKeys},
	}
}

// changes is how many changes of a key were reported so far.
func (w *watcher) changes(key string) int {
	n := 0
	for _, event := range w.seen() {
		if event.Type == dsync.EventChange && event.Key == key {
			n++
		}
	}
	return n
}

// wantChange checks that what do does is reported as a change of the key. Two
// changes may be merged into one, so each waits for its own.
func (w *watcher) wantChange(key, what string, do func()) {
	w.e.Helper()
	time.Sleep(20 * time.Millisecond) // what is left to report of the last one
	before := w.changes(key)
	do()
	if !w.wait(func([]dsync.Event) bool { return w.changes(key) > before }) {
		w.e.Fatalf("no event for a change of key %q: %s; events: %+v", key, what, w.seen())
	}
}

func testWatchChanges(e *env) {
	key, other := newID(), e.session()
	w := e.watch(e.session(), newID(), key) // others' doing: none of it is of its own session
	if w == nil {
		return
	}
	dead := e.session()
	c, waiter, heir, lapsing := e.leased(key, other, long), e.claim(key, dead), e.claim(key, other), e.leased(key, other, short)
	last := e.claim(key, other)
	for _, step := range []struct {
		what string
		do   func()
	}{
		{"granted, the record is new", func() { e.hold(c) }},
		{"published", func() { e.publish(c, []byte("value")) }},
		{"published anew", func() { e.publish(c, []byte("another")) }},
		{"joined", func() { e.queue(waiter) }},
		{"joined again", func() { e.queue(heir) }},
		{"extended", func() {
			time.Sleep(5 * time.Millisecond)
			if _, err := e.store.Extend(e.ctx, c); err != nil {
				e.Errorf("Extend: %v", err)
			}
		}},
		{"kept", func() { e.releaseKeep(c, long/2, true) }},
		{"handed over", func() { e.release(c) }},
		{"taken from the dead", func() {
			e.kill(dead)
			e.try(e.claim(key, other), dead)
		}},
		{"released", func() { e.release(heir) }},
		{"granted", func() { e.hold(lapsing) }},
		{"taken from a lapsed lease", func() {
			e.until(e.load(key).Holders[0].Until)
			e.try(e.claim(key, other))
		}},
		{"resized", func() { e.resize(key, 1, 2) }},
		{"granted once more", func() { e.hold(last) }},
		{"sealed", func() { e.seal(last, []byte("result"), true) }},
	} {
		w.wantChange(key, step.what, step.do)
	}
	for _, event := range w.seen() {
		if event.Type == dsync.EventGrant {
			e.Errorf("event %+v of another session", event)
		}
	}
}

// testWatchOnlyItsKeys watches a key among others whose names are nearly the
// same.
func testWatchOnlyItsKeys(e *env) {
	key, session := newID(), e.session()
	w, none := e.watch(e.session(), key), e.watch(session)
	if w == nil || none == nil {
		return
	}
	for _, other := range []string{key + "1", key[1:], strings.ToLower(key), "k/" + key, session, "s/" + session, newID()} {
		c := e.claim(other, session)
		e.hold(c)
		e.publish(c, []byte(key))
	}
	c := e.claim(key, session)
	w.wantChange(key, "granted", func() { e.hold(c) })
	w.wantChange(key, "released", func() { e.release(c) })
	time.Sleep(20 * time.Millisecond)
	for _, event := range w.seen() {
		if event.Type != dsync.EventReady && event.Key != key {
			e.Errorf("event %+v of a key that is not watched", event)
		}
	}
	for _, event := range none.seen() {
		if event.Type == dsync.EventChange {
			e.Errorf("event %+v of a watch without keys", event)
		}
	}
}

func testWatchChangeAndGrant(e *env) {
	key, session := newID(), e.session()
	w := e.watch(session, key)
	if w == nil {
		return
	}
	holder, waiter := e.candidate(key, e.session()), e.candidate(key, session)
	e.hold(holder)
	e.queue(waiter)
	w.wantChange(key, "handed over", func() { e.release(holder) })
	w.wantGrant(waiter)
	w.wantOnly(waiter)
}

func testWatchManyKeys(e *env) {
	keys := make([]string, 1500)
	for i := range keys {
		keys[i] = newID()
	}
	session := e.session()
	w := e.watch(session, keys...)
	if w == nil {
		return
	}
	for _, i := range []int{0, 999, 1000, len(keys) - 1} {
		w.wantChange(keys[i], "granted", func() { e.hold(e.claim(keys[i], session)) })
	}
}

// testSweepIsAChange is one of sweepCases.
func testSweepIsAChange(e *env) {
	session := e.session()
	key, _ := e.used(session)
	w := e.watch(session, key)
	if w == nil {
		return
	}
	e.until(e.now().Add(short))
	w.wantChange(key, "deleted", func() { e.sweep(short / 4) })
}
