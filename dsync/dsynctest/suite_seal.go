package dsynctest

import (
	"bytes"
	"errors"
	"time"

	"github.com/leasehold-go/leasehold/dsync"
)

// sealCases test Release with Outcome.Seal.
func sealCases() []conformanceCase {
	return []conformanceCase{
		{name: "Seal/ResultIsReadByAll", test: testSealResult},
		{name: "Seal/NobodyJoinsAnyMore", test: testSealJoins},
		{name: "Seal/DropsTheLine", test: testSealLine},
		{name: "Seal/NotHeld", test: testSealNotHeld},
		{name: "Seal/NotAfterItsEnd", test: testSealAfterEnd},
		{name: "Seal/OtherKindIsMismatch", test: testSealKind},
		{name: "Seal/RepeatedOrLateDoesNothing", test: testSealRepeated},
		{name: "Seal/OtherHoldersDoNotChangeTheResult", test: testSealHolders},
		{name: "Seal/MoreThan64KiBIsRefused", test: testSealTooLarge},
		{name: "Race/SealAndAcquire", test: testSealRace},
		{name: "Watch/SealWakesTheLine", test: testSealWatch},
		{name: "Watch/KeepWakesTheFirstInLine", test: testKeepWatch},
	}
}

// seal is a Release that seals, without an error.
func (e *env) seal(c dsync.Claim, result []byte, wantFound bool) {
	e.Helper()
	found, err := e.store.Release(e.ctx, c, dsync.Outcome{Seal: true, Result: result})
	if err != nil || found != wantFound {
		e.Fatalf("Release(%s) with Seal = %t, %v; want %t, no error", c.ID, found, err, wantFound)
	}
}

// wantSealed checks a state of a key that a claim with the token has sealed.
func (e *env) wantSealed(s dsync.State, token int64, result []byte) {
	e.Helper()
	if !s.Sealed || s.Value == nil || !bytes.Equal(s.Value, result) || s.Token != token {
		e.Fatalf("sealed %t, token %d, %d bytes (nil %t) %.40q; want true, %d, %d bytes %.40q",
			s.Sealed, s.Token, len(s.Value), s.Value == nil, s.Value, token, len(result), result)
	}
}

// wantNotSealed checks that a key is not sealed, and so has no value.
func (e *env) wantNotSealed(key string) {
	e.Helper()
	if s := e.load(key); s.Sealed {
		e.Fatalf("sealed: %+v", s)
	}
}

func testSealResult(e *env) {
	session := e.session()
	for _, result := range append(values(), nil) {
		c := e.claim(newID(), session)
		c.Kind = dsync.KindOnce
		token := e.hold(c).Token
		e.publish(c, []byte("value"))
		if s := e.load(c.Key); s.Sealed {
			e.Fatalf("sealed before it was: %+v", s)
		}
		sent := bytes.Clone(result)
		e.seal(c, sent, true)
		for i := range sent {
			sent[i]++ // the caller's own
		}
		other := e.claim(c.Key, e.session())
		other.Kind = c.Kind
		for _, s := range []dsync.State{e.load(c.Key), e.acquire(other), e.try(other), e.load(c.Key), e.key(c.Key)} {
			e.wantSealed(s, token, result)
			e.wantHolders(s)
			e.wantLine(s)
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
	for _, other := range []dsync.Claim{c, e.weighted(key, session, 1, 2), e.weighted(key, e.session(), 2, 2), first, e.leased(key, session, long)} {
		for range 2 {
			for _, s := range []dsync.State{e.acquire(other), e.try(other), e.acquire(other, session)} {
				e.wantSealed(s, token, []byte("result"))
				e.wantHolders(s)
				e.wantLine(s)
			}
		}
		e.releaseKeep(other, 0, false)
	}
	e.wantFree(key)
}

func testSealLine(e *env) {
	key, session := newID(), e.session()
	holder := e.claim(key, session)
	token := e.hold(holder).Token
	var line []dsync.Claim
	for range 12 {
		c := e.claim(key, session)
		e.queue(c)
		line = append(line, c)
	}
	e.seal(holder, []byte("result"), true)
	e.wantFree(key)
	for _, c := range line {
		e.wantSealed(e.acquire(c), token, []byte("result"))
		e.releaseKeep(c, 0, false)
	}
	e.wantFree(key)
}

func testSealNotHeld(e *env) {
	key, session := newID(), e.session()
	never := e.claim(key, session)
	e.seal(never, []byte("result"), false)
	if s := e.load(key); s.Kind != "" || s.Sealed {
		e.Fatalf("sealing a key that was never used left %+v", s)
	}
	holder, waiter, behind := e.claim(key, session), e.claim(key, session), e.claim(key, session)
	e.hold(holder)
	e.queue(waiter)
	e.queue(behind)
	e.seal(never, []byte("result"), false)
	e.seal(waiter, []byte("result"), true) // it was in line
	s := e.load(key)
	e.wantHolders(s, holder)
	e.wantLine(s, behind)
	e.wantNotSealed(key)
	e.release(holder)
	e.seal(holder, []byte("result"), false) // it holds no more
	e.wantNotSealed(key)
	e.wantHolders(e.load(key), behind)
}

func testSealAfterEnd(e *env) {
	key, session := newID(), e.session()
	c := e.leased(key, session, short)
	e.until(e.hold(c).Until)
	// Nobody else has taken it, nobody has dropped it.
	if _, err := e.store.Release(e.ctx, c, dsync.Outcome{Seal: true, Result: []byte("late")}); err != nil {
		e.Fatalf("Release with Seal after its end: %v", err)
	}
	e.wantNotSealed(key)
	e.wantFree(key)
	e.wantValue(e.load(key), nil)
	kept, next := e.claim(key, session), e.claim(key, session) // an end that Keep has set
	e.hold(kept)
	e.until(e.keep(kept, time.Millisecond).Until)
	e.store.Release(e.ctx, kept, dsync.Outcome{Seal: true, Result: []byte("late")})
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
	c.Kind = dsync.KindOnce
	token := e.hold(c).Token
	e.seal(c, []byte("result"), true)
	other := e.claim(key, session)
	e.wantMismatch(other, dsync.MismatchError{Key: key, Kind: c.Kind, WantKind: other.Kind, Limit: 1, WantLimit: 1})
	if err := e.store.Resize(e.ctx, key, other.Kind, 1, 2); !errors.Is(err, dsync.ErrMismatch) {
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
		for _, late := range []dsync.Claim{c, before, waiter} {
			e.seal(late, []byte("another"), false)
			e.releaseKeep(late, 0, false)
			e.releaseKeep(late, long, false)
			if err := e.store.Publish(e.ctx, late, 100, []byte("value")); !errors.Is(err, dsync.ErrNotHeld) {
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
	e.wantLine(s)
	e.store.Publish(e.ctx, a, 1, []byte("value"))
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
	e.kill(session)
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
	if _, err := e.store.Release(e.ctx, c, dsync.Outcome{Seal: true, Result: make([]byte, 64<<10+1)}); !errors.Is(err, dsync.ErrRefused) {
		e.Errorf("Release with a result of 64 KiB and a byte: %v, want ErrRefused", err)
	}
	s := e.load(key)
	e.wantHolders(s, c)
	e.wantLine(s, waiter)
	e.wantNotSealed(key)
	result := bytes.Repeat([]byte{0xfe}, 64<<10)
	e.seal(c, result, true)
	e.wantSealed(e.load(key), token, result)
}
