package dsynctest

import (
	"bytes"
	"errors"
	"sync/atomic"

	"github.com/leasehold-go/leasehold/dsync"
)

// publishCases test Publish.
func publishCases() []conformanceCase {
	return []conformanceCase{
		{name: "Publish/IsReadByAll", test: testPublishRead},
		{name: "Publish/StaysWhileItsHolderHolds", test: testPublishStays},
		{name: "Publish/GoesWithItsHolder", test: testPublishGoes},
		{name: "Publish/NotHeld", test: testPublishNotHeld},
		{name: "Publish/NotAfterItsEnd", test: testPublishAfterEnd},
		{name: "Publish/LateOlderOneChangesNothing", test: testPublishLate},
		{name: "Publish/EveryClaimCountsFromOne", test: testPublishFromOne},
		{name: "Publish/MoreThan64KiBIsRefused", test: testPublishTooLarge},
		{name: "Race/PublishAndHandOver", test: testPublishRace},
	}
}

// publish is a Publish without an error, of one value more.
func (e *env) publish(c dsync.Claim, value []byte) {
	e.Helper()
	e.published[c.ID]++
	e.publishAs(c, e.published[c.ID], value)
}

// publishAs is a Publish without an error.
func (e *env) publishAs(c dsync.Claim, seq int64, value []byte) {
	e.Helper()
	if err := e.store.Publish(e.ctx, c, seq, value); err != nil {
		e.Fatalf("Publish(%s, %d, %d bytes): %v", c.ID, seq, len(value), err)
	}
}

// wantValue checks what is published; nil is nothing, not an empty value.
func (e *env) wantValue(s dsync.State, want []byte) {
	e.Helper()
	if !bytes.Equal(s.Value, want) || (s.Value == nil) != (want == nil) {
		e.Fatalf("the value has %d bytes (nil %t): %.40q; want %d bytes (nil %t): %.40q",
			len(s.Value), s.Value == nil, s.Value, len(want), want == nil, want)
	}
}

// values are published one after the other.
func values() [][]byte {
	return [][]byte{
		[]byte("10.0.0.1:8080"), []byte("$$NOW"), []byte("$h"), {0, 1, 0xff, 0}, {}, []byte("again"),
		bytes.Repeat([]byte{0xfe}, 64<<10), []byte("10.0.0.1:8080"),
	}
}

func testPublishRead(e *env) {
	for _, c := range []dsync.Claim{
		e.candidate(newID(), e.session()), e.claim(newID(), e.session()), e.leased(newID(), e.session(), long),
	} {
		before := e.acquire(c)
		e.wantValue(before, nil)
		for _, v := range values() {
			sent := bytes.Clone(v)
			e.publish(c, sent)
			e.publishAs(c, e.published[c.ID], sent)
			for i := range sent {
				sent[i]++ // the caller's own
			}
			read := e.load(c.Key)
			e.wantValue(read, v)
			other := e.claim(c.Key, c.Session)
			other.Kind = c.Kind
			e.wantValue(e.try(other), v)
			e.wantHolders(read, c)
			e.wantLine(read)
			h, was := read.Holders[0], before.Holders[0]
			if h.Token != was.Token || !h.Since.Equal(was.Since) || !h.Until.Equal(was.Until) || read.Term != before.Term {
				e.Errorf("Publish changed %+v to %+v", before, read)
			}
		}
	}
}

func testPublishStays(e *env) {
	key, session, dead := newID(), e.session(), e.session()
	c, value := e.leased(key, session, long), []byte("value")
	e.hold(c)
	e.publish(c, value)
	first, second := e.claim(key, dead), e.claim(key, session)
	for _, step := range []func(){
		func() { e.acquire(c) },
		func() { e.queue(first) },
		func() { e.queue(second) },
		func() { e.try(e.claim(key, session)) },
		func() {
			e.kill(dead)
			e.acquire(second, dead)
		},
		func() { e.release(second) },
		func() {
			if _, err := e.store.Extend(e.ctx, c); err != nil {
				e.Errorf("Extend: %v", err)
			}
		},
		func() { e.releaseKeep(c, long/2, true) },
	} {
		step()
		s := e.load(key)
		e.wantHolders(s, c)
		e.wantValue(s, value)
	}
}

func testPublishGoes(e *env) {
	key, session, value := newID(), e.session(), []byte("value")
	// wantGone checks it while next holds, and that what comes late from those
	// who held before is not next's.
	wantGone := func(next dsync.Claim, before ...dsync.Claim) {
		e.Helper()
		e.wantHolders(e.load(key), next)
		e.wantValue(e.load(key), nil)
		e.wantValue(e.acquire(next), nil)
		for _, c := range before {
			if err := e.store.Publish(e.ctx, c, 100, value); !errors.Is(err, dsync.ErrNotHeld) {
				e.Errorf("Publish of one who held before: %v, want ErrNotHeld", err)
			}
		}
		e.wantValue(e.load(key), nil)
	}
	first, second := e.claim(key, session), e.claim(key, session)
	e.hold(first)
	e.publish(first, value)
	e.queue(second)
	e.release(first) // hand-over
	wantGone(second, first)
	e.publish(second, value)
	e.release(second) // and then nobody
	e.wantFree(key)
	e.wantValue(e.load(key), nil)

	third := e.claim(key, e.session())
	e.hold(third)
	wantGone(third, first, second)
	e.publish(third, value)
	e.kill(third.Session)                     // the dead's
	fourth := e.leased(key, session, 5*short) // it must last for what is done under it
	h := e.hold(fourth, third.Session)
	wantGone(fourth, third)
	e.publish(fourth, value)
	e.until(h.Until) // the lapsed one's
	fifth := e.claim(key, session)
	e.hold(fifth)
	wantGone(fifth, fourth)
}

func testPublishNotHeld(e *env) {
	key, session := newID(), e.session()
	wantNotHeld := func(c dsync.Claim, what string) {
		e.Helper()
		if err := e.store.Publish(e.ctx, c, 100, []byte("mine")); !errors.Is(err, dsync.ErrNotHeld) {
			e.Errorf("Publish of %s: %v, want ErrNotHeld", what, err)
		}
	}
	wantNotHeld(e.claim(key, session), "a claim on a key that was never used")
	if s := e.load(key); s.Kind != "" {
		e.Errorf("Publish made a record: %+v", s)
	}
	holder, waiter := e.claim(key, session), e.claim(key, session)
	e.hold(holder)
	e.publish(holder, []byte("theirs"))
	e.queue(waiter)
	wantNotHeld(waiter, "a claim in line")
	wantNotHeld(e.claim(key, session), "a claim that never asked")
	s := e.load(key)
	e.wantHolders(s, holder)
	e.wantLine(s, waiter)
	e.wantValue(s, []byte("theirs"))
	e.release(holder)
	wantNotHeld(holder, "a released claim")
	e.release(waiter)
	wantNotHeld(waiter, "the last one, released")
	e.wantFree(key)
}

func testPublishAfterEnd(e *env) {
	c := e.leased(newID(), e.session(), short)
	e.until(e.hold(c).Until)
	// Nobody else has taken it, nobody has dropped it.
	if err := e.store.Publish(e.ctx, c, 100, []byte("value")); !errors.Is(err, dsync.ErrNotHeld) {
		e.Errorf("Publish of a lease whose end has come: %v, want ErrNotHeld", err)
	}
	e.wantValue(e.load(c.Key), nil)
}

func testPublishLate(e *env) {
	c := e.claim(newID(), e.session())
	e.hold(c)
	for _, step := range []struct {
		seq         int64
		value, want string
	}{{1, "a", "a"}, {2, "b", "b"}, {1, "a", "b"}, {2, "b", "b"}, {12, "c", "c"}, {2, "b", "c"}, {9, "d", "c"}, {13, "", ""}, {12, "c", ""}} {
		e.publishAs(c, step.seq, []byte(step.value)) // it is no error
		e.wantValue(e.load(c.Key), []byte(step.want))
	}
}

func testPublishFromOne(e *env) {
	key, session := newID(), e.session()
	first, second, third := e.claim(key, session), e.claim(key, session), e.claim(key, session)
	e.hold(first)
	e.publishAs(first, 1000, []byte("first"))
	e.queue(second)
	e.release(first)
	e.publishAs(second, 1, []byte("second"))
	e.wantValue(e.load(key), []byte("second"))
	e.publishAs(second, 999, []byte("again"))
	e.release(second)
	e.hold(third)
	e.publishAs(third, 1, []byte("third"))
	e.wantValue(e.load(key), []byte("third"))
}

func testPublishTooLarge(e *env) {
	c := e.claim(newID(), e.session())
	e.hold(c)
	e.publish(c, []byte("value"))
	if err := e.store.Publish(e.ctx, c, 100, make([]byte, 64<<10+1)); !errors.Is(err, dsync.ErrRefused) {
		e.Errorf("Publish of 64 KiB and a byte: %v, want ErrRefused", err)
	}
	e.wantValue(e.load(c.Key), []byte("value"))
}

// testPublishRace publishes while the hold goes over to another: whatever
// arrives first, it is not the other's.
func testPublishRace(e *env) {
	key, session := newID(), e.session()
	holder := e.claim(key, session)
	e.hold(holder)
	for range 12 {
		next := e.claim(key, session)
		e.queue(next)
		var published atomic.Int32
		errs := make([]error, 8)
		together(len(errs), func(i int) {
			if i == len(errs)/2 {
				_, errs[i] = e.store.Release(e.ctx, holder, dsync.Outcome{})
				return
			}
			err := e.store.Publish(e.ctx, holder, int64(i+1), []byte{byte(i)})
			if err == nil {
				published.Add(1)
			} else if !errors.Is(err, dsync.ErrNotHeld) {
				errs[i] = err
			}
		})
		if err := errors.Join(errs...); err != nil {
			e.Fatalf("Publish and Release at the same time: %v", err)
		}
		s := e.load(key)
		e.wantHolders(s, next)
		if s.Value != nil {
			e.Fatalf("the next holder has the value %v of the last, of which %d succeeded", s.Value, published.Load())
		}
		holder = next
	}
}
