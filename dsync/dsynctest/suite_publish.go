package dsynctest

import (
	"bytes"
	"errors"
	"strings"
	"sync/atomic"
	"time"

	"github.com/leasehold-go/leasehold/dsync/driver"
	"github.com/leasehold-go/leasehold/internal/storecmd"
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
		{name: "Publish/ByTheGrant", test: testPublishByGrant},
		{name: "Publish/ByTheGrantOfEverySort", test: testPublishByGrantSorts},
		{name: "Publish/ClaimsOfMoreThan256BytesAreRefused", test: testClaimValueTooLarge},
		{name: "Race/PublishAndHandOff", test: testPublishRace},
	}
}

// publish sends a Publish with c's next sequence number. The Publish must not fail.
func (e *env) publish(c driver.Claim, value []byte) {
	e.Helper()
	e.published[c.ID]++
	e.publishAs(c, e.published[c.ID], value)
}

// publishAs sends a Publish, which must not fail.
func (e *env) publishAs(c driver.Claim, seq int64, value []byte) {
	e.Helper()
	before := e.seen
	notices, err := storecmd.Publish(e.ctx, e.store, c, seq, value)
	if err != nil {
		e.Fatalf("Publish(%s, %d, %d bytes): %v", c.ID, seq, len(value), err)
	}
	e.noticed(c, before, notices)
}

// wantValue checks the published value; nil means no value, not an empty one.
func (e *env) wantValue(s driver.State, want []byte) {
	e.Helper()
	if !bytes.Equal(s.Value, want) || (s.Value == nil) != (want == nil) {
		e.Fatalf("the value has %d bytes (nil %t): %.40q; want %d bytes (nil %t): %.40q",
			len(s.Value), s.Value == nil, s.Value, len(want), want == nil, want)
	}
}

// values returns values to publish one after the other.
func values() [][]byte {
	return [][]byte{
		[]byte("10.0.0.1:8080"), []byte("$$NOW"), []byte("$h"), {0, 1, 0xff, 0}, {}, []byte("again"),
		bytes.Repeat([]byte{0xfe}, 64<<10), []byte("10.0.0.1:8080"),
	}
}

func testPublishRead(e *env) {
	for _, c := range []driver.Claim{
		e.candidate(newID(), e.session()), e.claim(newID(), e.session()), e.leased(newID(), e.session(), long),
	} {
		e.hold(c)
		before := e.load(c.Key)
		e.wantValue(before, nil)
		for _, v := range values() {
			sent := bytes.Clone(v)
			e.publish(c, sent)
			e.publishAs(c, e.published[c.ID], sent)
			for i := range sent {
				sent[i]++ // the caller may change its slice
			}
			read := e.load(c.Key)
			e.wantValue(read, v)
			other := e.claim(c.Key, c.Session)
			other.Kind = c.Kind
			e.wantValue(e.try(other), v)
			e.wantHolders(read, c)
			e.wantQueue(read)
			h, was := read.Holders[0], before.Holders[0]
			if h.Token != was.Token || !h.Since.Equal(was.Since) || !h.Until.Equal(was.Until) || read.Term != before.Term {
				e.Errorf("Publish changed %+v to %+v", before, read)
			}
		}
	}
}

func testPublishStays(e *env) {
	key, session, expired := newID(), e.session(), e.session()
	c, value := e.leased(key, session, long), []byte("value")
	e.hold(c)
	e.publish(c, value)
	first, second := e.claim(key, expired), e.claim(key, session)
	for _, step := range []func(){
		func() { e.acquire(c) },
		func() { e.queue(first) },
		func() { e.queue(second) },
		func() { e.try(e.claim(key, session)) },
		func() {
			e.expire(expired)
			e.acquire(second, expired)
		},
		func() { e.release(second) },
		func() {
			e.extend(c)
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
	// wantGone checks that the key has no value under its new holder, even if earlier holders publish late.
	wantGone := func(next driver.Claim, before ...driver.Claim) {
		e.Helper()
		e.wantHolders(e.load(key), next)
		e.wantValue(e.load(key), nil)
		e.wantValue(e.acquire(next), nil)
		for _, c := range before {
			if _, err := storecmd.Publish(e.ctx, e.store, c, 100, value); !errors.Is(err, driver.ErrNotHeld) {
				e.Errorf("Publish by a former holder: %v, want ErrNotHeld", err)
			}
		}
		e.wantValue(e.load(key), nil)
	}
	first, second := e.claim(key, session), e.claim(key, session)
	e.hold(first)
	e.publish(first, value)
	e.queue(second)
	e.release(first) // by a release
	wantGone(second, first)
	e.publish(second, value)
	e.release(second) // and then nobody
	e.wantFree(key)
	e.wantValue(e.load(key), nil)

	third := e.claim(key, e.session())
	e.hold(third)
	wantGone(third, first, second)
	e.publish(third, value)
	e.expire(third.Session)                   // taken from an expired session
	fourth := e.leased(key, session, 5*short) // the lease must not end before the commands below
	h := e.hold(fourth, third.Session)
	wantGone(fourth, third)
	e.publish(fourth, value)
	e.until(h.Until) // taken from a lapsed lease
	fifth := e.claim(key, session)
	e.hold(fifth)
	wantGone(fifth, fourth)
}

func testPublishNotHeld(e *env) {
	key, session := newID(), e.session()
	wantNotHeld := func(c driver.Claim, what string) {
		e.Helper()
		if _, err := storecmd.Publish(e.ctx, e.store, c, 100, []byte("mine")); !errors.Is(err, driver.ErrNotHeld) {
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
	wantNotHeld(waiter, "a claim in the queue")
	wantNotHeld(e.claim(key, session), "a claim that was never requested")
	s := e.load(key)
	e.wantHolders(s, holder)
	e.wantQueue(s, waiter)
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
	// The lease has lapsed, but nobody else has acquired the key, and no command has dropped the lease.
	if _, err := storecmd.Publish(e.ctx, e.store, c, 100, []byte("value")); !errors.Is(err, driver.ErrNotHeld) {
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
		e.publishAs(c, step.seq, []byte(step.value)) // a late Publish succeeds and changes nothing
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
	if _, err := storecmd.Publish(e.ctx, e.store, c, 100, make([]byte, 64<<10+1)); !errors.Is(err, driver.ErrRefused) {
		e.Errorf("Publish of 64 KiB and a byte: %v, want ErrRefused", err)
	}
	e.wantValue(e.load(c.Key), []byte("value"))
}

// valued returns c with a value.
func valued(c driver.Claim, value string) driver.Claim {
	c.Value = value
	return c
}

// testPublishByGrant grants claims that have a value, in several ways. From the grant on, the key must have the claim's
// value, until the claim publishes another value or its hold ends.
func testPublishByGrant(e *env) {
	full := strings.Repeat("\xfe", driver.MaxClaimValue)
	for _, new := range []func(key, session string) driver.Claim{e.candidate, e.claim} {
		key, session, other := newID(), e.session(), e.session()
		value := func(c driver.Claim, want string) {
			e.Helper()
			s := e.load(key)
			e.wantHolders(s, c)
			e.wantValue(s, []byte(want))
			e.wantValue(e.acquire(c), []byte(want))
		}
		first, second, third := valued(new(key, session), "first"), valued(new(key, other), "$$NOW"), new(key, session)
		fourth, fifth := valued(new(key, other), full), valued(new(key, session), "fifth")
		e.wantValue(e.acquire(first), []byte("first"))
		value(first, "first")
		e.queue(second)
		e.queue(third)
		value(first, "first")
		e.publish(first, []byte("another"))
		value(first, "another")
		e.publish(first, []byte{})
		value(first, "")
		e.release(first)
		value(second, "$$NOW")
		e.publishAs(second, 1, []byte("$h"))
		value(second, "$h")
		e.release(second)
		e.wantHolders(e.load(key), third)
		e.wantValue(e.load(key), nil)
		e.release(third)
		e.wantFree(key)
		e.wantValue(e.load(key), nil)

		e.wantValue(e.try(fourth), []byte(full))
		value(fourth, full)
		e.expire(other)
		e.wantValue(e.acquire(fifth, other), []byte("fifth"))
		value(fifth, "fifth")
		e.publish(fifth, []byte("another"))
		e.release(fifth)
		e.again(fifth) // a late copy of its request
		value(fifth, "fifth")
		next := valued(new(key, session), "next")
		e.wantValue(e.replace(fifth, next, e.far), []byte("next"))
		value(next, "next")
	}
}

// testPublishByGrantSorts grants claims of four sorts, each with a value. It grants them by a replacement and by a
// Release with Successor.
func testPublishByGrantSorts(e *env) {
	for _, sort := range []func(key, session string) driver.Claim{
		e.candidate, e.claim, func(key, session string) driver.Claim { return e.leased(key, session, long) },
		func(key, session string) driver.Claim { return e.yielding(key, session, 1, 1) },
	} {
		key, session := newID(), e.session()
		holder, first, second := valued(sort(key, session), "holder"), valued(sort(key, session), "first"), valued(sort(key, e.session()), "second")
		e.hold(holder)
		e.queue(first)
		e.queue(second)
		next := valued(sort(key, session), "next")
		e.wantValue(e.replace(holder, next, e.far), []byte("first"))
		s := e.load(key)
		e.wantHolders(s, first)
		e.wantQueue(s, second, next)
		e.wantValue(s, []byte("first"))
		e.releaseTo(first, next, true)
		s = e.load(key)
		e.wantHolders(s, next)
		e.wantQueue(s, second)
		e.wantValue(s, []byte("next"))
	}

	// If several claims hold the key, its value is that of the last granted claim that has one.
	key, session := newID(), e.session()
	whole, a, b, c := e.weighted(key, session, 3, 3), e.weighted(key, session, 1, 3), e.weighted(key, session, 1, 3), e.weighted(key, session, 1, 3)
	e.hold(whole)
	a, b = valued(a, "a"), valued(b, "b")
	for _, w := range []driver.Claim{a, b, c} {
		e.queue(w)
	}
	e.release(whole)
	s := e.load(key)
	e.wantHolders(s, a, b, c)
	e.wantValue(s, []byte("b"))
	e.release(b)
	e.wantValue(e.load(key), []byte("a"))
	e.publish(c, []byte("c"))
	e.wantValue(e.load(key), []byte("c"))
	e.release(c)
	e.release(a)
	e.wantValue(e.load(key), nil)
}

func testClaimValueTooLarge(e *env) {
	key, session := newID(), e.session()
	c := valued(e.claim(key, session), strings.Repeat("v", driver.MaxClaimValue+1))
	for _, wait := range []bool{true, false} {
		if _, _, err := storecmd.Acquire(e.ctx, e.store, c, wait, nil, e.far); !errors.Is(err, driver.ErrRefused) {
			e.Errorf("Acquire with a value of %d bytes: %v, want ErrRefused", len(c.Value), err)
		}
	}
	if s := e.load(key); s.Kind != "" {
		e.Errorf("after the refused Acquires, the key is %+v", s)
	}
}

// testPublishRace publishes a value while another claim gets the key. Whichever command arrives first, the key must
// not have that value under its new holder.
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
				_, _, errs[i] = storecmd.Release(e.ctx, e.store, holder, driver.Release{})
				return
			}
			_, err := storecmd.Publish(e.ctx, e.store, holder, int64(i+1), []byte{byte(i)})
			if err == nil {
				published.Add(1)
			} else if !errors.Is(err, driver.ErrNotHeld) {
				errs[i] = err
			}
		})
		if err := errors.Join(errs...); err != nil {
			e.Fatalf("Publish and Release at the same time: %v", err)
		}
		s := e.load(key)
		e.wantHolders(s, next)
		if s.Value != nil {
			e.Fatalf("the next holder has the value %v of the last holder; %d Publishes succeeded", s.Value, published.Load())
		}
		holder = next
	}
}

// sealCases test Release with Seal.
func sealCases() []conformanceCase {
	return []conformanceCase{
		{name: "Seal/ResultIsReadByAll", test: testSealResult},
		{name: "Seal/NobodyJoinsAnyMore", test: testSealJoins},
		{name: "Seal/NotAfterItsEnd", test: testSealAfterEnd},
		{name: "Seal/OtherKindIsMismatch", test: testSealKind},
		{name: "Seal/RepeatedOrLateDoesNothing", test: testSealRepeated},
		{name: "Seal/OtherHoldersDoNotChangeTheResult", test: testSealHolders},
		{name: "Seal/MoreThan64KiBIsRefused", test: testSealTooLarge},
		{name: "Race/SealAndAcquire", test: testSealRace},
	}
}

// seal sends a Release that seals, which must not fail.
func (e *env) seal(c driver.Claim, result []byte, wantFound bool) {
	e.Helper()
	e.releaseAs(c, driver.Release{Seal: 1, Result: result}, wantFound)
}

// wantSealed checks that a state is sealed up to tick 1, with the result and the last token.
func (e *env) wantSealed(s driver.State, token int64, result []byte) {
	e.Helper()
	e.wantTick(s, 1, token, result)
}

// wantTick checks that a state shows its key as sealed up to the tick, with the result and the last token.
func (e *env) wantTick(s driver.State, tick, token int64, result []byte) {
	e.Helper()
	if s.Sealed != tick || s.Value == nil || !bytes.Equal(s.Value, result) || s.Token != token {
		e.Fatalf("sealed up to %d, token %d, %d bytes (nil %t) %.40q; want %d, %d, %d bytes %.40q",
			s.Sealed, s.Token, len(s.Value), s.Value == nil, s.Value, tick, token, len(result), result)
	}
}

// wantNotSealed checks that a key is not sealed.
func (e *env) wantNotSealed(key string) {
	e.Helper()
	if s := e.load(key); s.Sealed > 0 {
		e.Fatalf("the key is sealed: %+v", s)
	}
}

func testSealResult(e *env) {
	session := e.session()
	for _, result := range append(values(), nil) {
		c := e.claim(newID(), session)
		c.Kind = driver.KindOnce
		token := e.hold(c).Token
		e.publish(c, []byte("value"))
		if s := e.load(c.Key); s.Sealed > 0 {
			e.Fatalf("sealed before any Release with Seal: %+v", s)
		}
		sent := bytes.Clone(result)
		e.seal(c, sent, true)
		for i := range sent {
			sent[i]++ // the caller may change its slice
		}
		other := e.claim(c.Key, e.session())
		other.Kind = c.Kind
		for _, s := range []driver.State{e.load(c.Key), e.acquire(other), e.try(other), e.load(c.Key), e.key(c.Key)} {
			e.wantSealed(s, token, result)
			e.wantHolders(s)
			e.wantQueue(s)
			if s.Kind != c.Kind {
				e.Errorf("kind %q, want %q", s.Kind, c.Kind)
			}
		}
	}
}

func testSealJoins(e *env) {
	key, session := newID(), e.session()
	c := e.weighted(key, session, 1, 2)
	token := e.hold(c).Token
	e.seal(c, []byte("result"), true)
	first := e.weighted(key, session, 2, 2)
	first.First = true
	for _, other := range []driver.Claim{c, e.weighted(key, session, 1, 2), e.weighted(key, e.session(), 2, 2), first, e.leased(key, session, long)} {
		for range 2 {
			for _, s := range []driver.State{e.acquire(other), e.try(other), e.acquire(other, session)} {
				e.wantSealed(s, token, []byte("result"))
				e.wantHolders(s)
				e.wantQueue(s)
			}
		}
		e.releaseKeep(other, 0, false)
	}
	e.wantFree(key)
}

func testSealAfterEnd(e *env) {
	key, session := newID(), e.session()
	c := e.leased(key, session, short)
	e.until(e.hold(c).Until)
	// The lease has lapsed, but nobody else has acquired the key, and no command has dropped the lease.
	if _, _, err := storecmd.Release(e.ctx, e.store, c, driver.Release{Seal: 1, Result: []byte("late")}); err != nil {
		e.Fatalf("Release with Seal after its end: %v", err)
	}
	e.wantNotSealed(key)
	e.wantFree(key)
	e.wantValue(e.load(key), nil)
	kept, next := e.claim(key, session), e.claim(key, session) // Keep will set its end
	e.hold(kept)
	e.until(e.keep(kept, time.Millisecond).Until)
	storecmd.Release(e.ctx, e.store, kept, driver.Release{Seal: 1, Result: []byte("late")})
	e.wantNotSealed(key)
	e.hold(next)
	e.seal(kept, []byte("late"), false)
	e.wantHolders(e.load(key), next)
	e.wantNotSealed(key)
	e.seal(next, []byte("result"), true)
	e.wantValue(e.load(key), []byte("result"))
}

func testSealKind(e *env) {
	key, session := newID(), e.session()
	c := e.claim(key, session)
	c.Kind = driver.KindOnce
	token := e.hold(c).Token
	e.seal(c, []byte("result"), true)
	other := e.claim(key, session)
	e.wantMismatch(other, driver.MismatchError{Key: key, Kind: c.Kind, WantKind: other.Kind, Limit: 1, WantLimit: 1})
	if _, err := storecmd.Resize(e.ctx, e.store, key, other.Kind, 1, 2); !errors.Is(err, driver.ErrMismatch) {
		e.Errorf("Resize of a sealed key as another kind: %v, want a *MismatchError", err)
	}
	e.wantSealed(e.load(key), token, []byte("result"))
	e.wantSize(key, c.Kind, 1)
}

func testSealRepeated(e *env) {
	key, session := newID(), e.session()
	before, c, waiter := e.claim(key, session), e.leased(key, session, long), e.claim(key, session)
	e.hold(before)
	e.release(before)
	token := e.hold(c).Token
	e.queue(waiter)
	e.seal(c, []byte("result"), true)
	for range 2 {
		for _, late := range []driver.Claim{c, before, waiter} {
			e.seal(late, []byte("another"), false)
			e.releaseKeep(late, 0, false)
			e.releaseKeep(late, long, false)
			if _, err := storecmd.Publish(e.ctx, e.store, late, 100, []byte("value")); !errors.Is(err, driver.ErrNotHeld) {
				e.Errorf("Publish on a sealed key: %v, want ErrNotHeld", err)
			}
			e.wantSealed(e.acquire(late), token, []byte("result"))
		}
		e.wantNotHeld(c, "the claim that sealed the key")
		e.wantSealed(e.load(key), token, []byte("result"))
		e.wantFree(key)
	}
}

func testSealHolders(e *env) {
	key, session := newID(), e.session()
	a, b, waiter := e.weighted(key, session, 1, 2), e.weighted(key, session, 1, 2), e.weighted(key, session, 1, 2)
	e.hold(a)
	token := e.hold(b).Token
	e.queue(waiter)
	e.seal(b, []byte("result"), true)
	s := e.load(key)
	e.wantSealed(s, token, []byte("result"))
	e.wantHolders(s, a)
	e.wantQueue(s)
	storecmd.Publish(e.ctx, e.store, a, 1, []byte("value"))
	e.wantSealed(e.load(key), token, []byte("result"))
	e.seal(a, []byte("another"), true)
	e.wantSealed(e.load(key), token, []byte("result"))
	e.wantFree(key)
}

// testSweepSealed is one of sweepCases.
func testSweepSealed(e *env) {
	session := e.session()
	c := e.claim(newID(), session)
	token := e.hold(c).Token
	e.seal(c, []byte("result"), true)
	e.expire(session)
	for range 2 {
		e.until(e.now().Add(short / 2))
		e.sweep(short / 8)
		e.sweep(0)
		e.wantSealed(e.load(c.Key), token, []byte("result"))
	}
}

func testSealTooLarge(e *env) {
	key, session := newID(), e.session()
	c, waiter := e.claim(key, session), e.claim(key, session)
	token := e.hold(c).Token
	e.queue(waiter)
	if _, _, err := storecmd.Release(e.ctx, e.store, c, driver.Release{Seal: 1, Result: make([]byte, 64<<10+1)}); !errors.Is(err, driver.ErrRefused) {
		e.Errorf("Release with a result of 64 KiB and a byte: %v, want ErrRefused", err)
	}
	s := e.load(key)
	e.wantHolders(s, c)
	e.wantQueue(s, waiter)
	e.wantNotSealed(key)
	result := bytes.Repeat([]byte{0xfe}, 64<<10)
	e.seal(c, result, true)
	e.wantSealed(e.load(key), token, result)
}
