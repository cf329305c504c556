package dsynctest

import (
	"errors"
	"sync/atomic"
	"time"

	"github.com/leasehold-go/leasehold/dsync"
)

// resizeCases test Resize.
func resizeCases() []conformanceCase {
	return []conformanceCase{
		{name: "Resize/GrowsAndGrants", test: testResizeGrows},
		{name: "Resize/ShrinksAndBlocksUntilTheyFit", test: testResizeShrinks},
		{name: "Resize/HolderMayRepeat", test: testResizeHolder},
		{name: "Resize/WaitingWeightTooGreatIsRefused", test: testResizeRefused},
		{name: "Resize/OtherKindIsMismatch", test: testResizeKind},
		{name: "Resize/RepeatedChangesNothing", test: testResizeRepeated},
		{name: "Watch/ResizeGrantsAndYields", test: testResizeWatch},
		{name: "Race/ResizeAndAcquire", test: testResizeRace},
	}
}

// resize is a Resize without an error, from the kind of claims that the env
// makes.
func (e *env) resize(key string, from, limit int64) {
	e.Helper()
	if err := e.store.Resize(e.ctx, key, dsync.KindMutex, from, limit); err != nil {
		e.Fatalf("Resize(%d, %d): %v", from, limit, err)
	}
	if g := e.tokens[key]; g != nil {
		g.shrunk = true
	}
}

// wantSize checks a key's kind and limit.
func (e *env) wantSize(key string, kind dsync.Kind, limit int64) {
	e.Helper()
	if s := e.load(key); s.Kind != kind || s.Limit != limit {
		e.Fatalf("kind %q, limit %d; want %q, %d", s.Kind, s.Limit, kind, limit)
	}
}

func testResizeGrows(e *env) {
	key, session := newID(), e.session()
	holder := e.weighted(key, session, 2, 2)
	e.hold(holder)
	a, b, c, d := e.weighted(key, session, 1, 2), e.weighted(key, session, 1, 2), e.weighted(key, session, 2, 2), e.weighted(key, session, 1, 2)
	for _, w := range []dsync.Claim{a, b, c, d} {
		e.queue(w)
	}
	e.resize(key, 2, 5)
	s := e.load(key)
	e.wantHolders(s, holder, a, b)
	e.wantLine(s, c, d) // a light one does not overtake
	e.wantSize(key, holder.Kind, 5)
	e.resize(key, 5, 7)
	e.wantHolders(e.load(key), holder, a, b, c, d)
}

func testResizeShrinks(e *env) {
	key, session := newID(), e.session()
	a, b, c := e.weighted(key, session, 2, 5), e.weighted(key, session, 2, 5), e.weighted(key, session, 1, 5)
	next := e.weighted(key, session, 1, 5)
	e.hold(a)
	e.hold(b)
	e.hold(c)
	e.load(key)
	e.resize(key, 5, 2)
	e.wantHolders(e.load(key), a, b, c) // they keep what they have
	e.wantSize(key, a.Kind, 2)
	e.queue(next)
	for _, step := range []struct {
		leaves dsync.Claim
		stay   []dsync.Claim
	}{{a, []dsync.Claim{b, c}}, {c, []dsync.Claim{b}}} {
		e.release(step.leaves)
		s := e.load(key)
		e.wantHolders(s, step.stay...)
		e.wantLine(s, next)
		e.wantHolders(e.try(e.weighted(key, session, 1, 2)), step.stay...)
	}
	e.release(b)
	e.wantHolders(e.load(key), next)
}

func testResizeHolder(e *env) {
	key, session := newID(), e.session()
	holder, waiter := e.weighted(key, session, 4, 4), e.weighted(key, session, 1, 4)
	h := e.hold(holder)
	e.queue(waiter)
	e.resize(key, 4, 2)
	for range 2 {
		s := e.acquire(holder)
		e.wantHolders(s, holder)
		if s.Holders[0].Token != h.Token {
			e.Errorf("token %d, want %d as before Resize", s.Holders[0].Token, h.Token)
		}
		if s := e.acquire(waiter); s.Place != 1 || s.Waiting != 1 {
			e.Errorf("who waits repeats: place %d of %d, want 1 of 1", s.Place, s.Waiting)
		}
	}
	e.release(holder)
	e.wantHolders(e.load(key), waiter)
}

func testResizeRefused(e *env) {
	key, session := newID(), e.session()
	holder, light, heavy := e.weighted(key, session, 4, 4), e.weighted(key, session, 1, 4), e.weighted(key, session, 3, 4)
	e.hold(holder)
	e.queue(light)
	e.queue(heavy)
	for _, limit := range []int64{2, 1} {
		if err := e.store.Resize(e.ctx, key, holder.Kind, 4, limit); !errors.Is(err, dsync.ErrRefused) {
			e.Errorf("Resize to %d while a claim waits for 3: %v, want ErrRefused", limit, err)
		}
	}
	e.wantSize(key, holder.Kind, 4)
	s := e.load(key)
	e.wantHolders(s, holder)
	e.wantLine(s, light, heavy)
	e.resize(key, 4, 3) // it is as heavy as that
	e.wantSize(key, holder.Kind, 3)
	e.release(heavy)
	e.resize(key, 3, 1)
	e.release(holder)
	e.wantHolders(e.load(key), light)
}

func testResizeKind(e *env) {
	key, session := newID(), e.session()
	holder, waiter := e.weighted(key, session, 2, 2), e.weighted(key, session, 2, 2)
	e.hold(holder)
	e.queue(waiter)
	for range 2 { // held and waited for, then only held
		var mismatch *dsync.MismatchError
		err := e.store.Resize(e.ctx, key, "other", 2, 3)
		want := dsync.MismatchError{Key: key, Kind: holder.Kind, WantKind: "other", Limit: 2, WantLimit: 3}
		if !errors.As(err, &mismatch) || !errors.Is(err, dsync.ErrMismatch) || *mismatch != want {
			e.Errorf("Resize as another kind: %v, want %+v", err, want)
		}
		e.wantSize(key, holder.Kind, 2)
		e.release(holder)
		holder = waiter
	}
	if err := e.store.Resize(e.ctx, key, "other", 1, 3); err != nil { // nobody holds or waits
		e.Errorf("Resize of a free key as another kind: %v", err)
	}
	e.wantSize(key, "other", 3)
	c := e.weighted(key, session, 1, 1)
	c.Kind = "other"
	e.wantHolders(e.acquire(c), c)
	e.wantSize(key, "other", 3)
}

func testResizeRepeated(e *env) {
	key, session := newID(), e.session()
	holder, second, waiter := e.weighted(key, session, 1, 2), e.weighted(key, session, 1, 2), e.weighted(key, session, 2, 2)
	e.hold(holder)
	e.hold(second)
	e.publish(holder, []byte("value"))
	e.queue(waiter)
	for range 3 {
		e.resize(key, 2, 3)
		s := e.load(key)
		e.wantHolders(s, holder, second)
		e.wantLine(s, waiter)
		e.wantValue(s, []byte("value"))
		e.wantSize(key, holder.Kind, 3)
	}
	e.queue(e.weighted(key, session, 1, 2)) // it is known still
}

func testResizeWatch(e *env) {
	key, session, other := newID(), e.session(), e.session()
	w := e.watch(session, key)
	if w == nil {
		return
	}
	waiter, held := e.weighted(key, session, 1, 1), e.yielding(key, session, 1, 1)
	e.hold(e.claim(key, other))
	e.queue(waiter)
	e.queue(held)
	e.queue(e.claim(key, other))
	e.queue(e.claim(key, other))
	w.wantChange(key, "resized", func() { e.resize(key, 1, 3) })
	w.wantGrant(waiter)
	w.wantGrant(held)
	w.wantTold(dsync.EventYield, key, held.ID)
	w.wantOnly(waiter, held)
	w.wantUntold(dsync.EventYield, held)
	w.wantChange(key, "resized, granting nothing", func() { e.resize(key, 3, 2) })
}

// testResizeRace resizes to and fro while claims come with both limits.
func testResizeRace(e *env) {
	const workers, rounds = 6, 8
	key, session := newID(), e.session()
	claims := make([][]dsync.Claim, workers)
	for i := range claims {
		for range rounds {
			claims[i] = append(claims[i], e.weighted(key, session, 1, int64(2+i%2)))
		}
	}
	e.resize(key, 2, 3)
	var held atomic.Int32
	together(workers+1, func(i int) {
		if i == workers {
			for j := range rounds {
				from := int64(3 - j%2)
				if err := e.store.Resize(e.ctx, key, dsync.KindMutex, from, 5-from); err != nil {
					e.Errorf("Resize: %v", err)
				}
				time.Sleep(time.Millisecond)
			}
			return
		}
		for _, c := range claims[i] {
			s, err := e.store.Acquire(e.ctx, c, false, nil, e.far)
			if err != nil {
				e.Errorf("Acquire with a limit that the key has or had: %v", err)
				return
			}
			if _, ok := s.Holder(c.ID); !ok {
				continue
			}
			if n := held.Add(1); n > 3 {
				e.Errorf("%d hold at a time, the limit was never above 3", n)
			}
			time.Sleep(time.Millisecond)
			held.Add(-1)
			if found, err := e.store.Release(e.ctx, c, dsync.Outcome{}); err != nil || !found {
				e.Errorf("Release = %t, %v", found, err)
			}
		}
	})
	e.wantFree(key)
}
