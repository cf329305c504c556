package dsynctest

import (
	"errors"
	"time"

	"github.com/leasehold-go/leasehold/dsync"
)

// testSealRace seals while others ask: each of them either was in line and is
// not any more, or sees the result.
func testSealRace(e *env) {
	for range 3 {
		key, session := newID(), e.session()
		holder := e.claim(key, session)
		token := e.hold(holder).Token
		claims, states := make([]dsync.Claim, 15), make([]dsync.State, 15)
		for i := range claims {
			claims[i] = e.claim(key, session)
		}
		errs := make([]error, len(claims)+1)
		together(len(errs), func(i int) {
			if i == len(claims) {
				_, errs[i] = e.store.Release(e.ctx, holder, dsync.Outcome{Seal: true, Result: []byte("result")})
				return
			}
			states[i], errs[i] = e.store.Acquire(e.ctx, claims[i], true, nil, e.far)
		})
		if err := errors.Join(errs...); err != nil {
			e.Fatalf("Acquire while the key is sealed: %v", err)
		}
		for i, s := range states {
			if _, ok := s.Holder(claims[i].ID); ok || s.Sealed == (s.Place > 0) {
				e.Errorf("granted %t, sealed %t, place %d; want it in line or sealed", ok, s.Sealed, s.Place)
			}
		}
		e.wantSealed(e.load(key), token, []byte("result"))
		e.wantFree(key)
	}
}

func testSealWatch(e *env) {
	key, a, b := newID(), e.session(), e.session()
	wa, wb, none := e.watch(a), e.watch(b), e.watch(e.session(), key)
	if wa == nil || wb == nil || none == nil {
		return
	}
	holder := e.claim(key, a)
	e.hold(holder)
	var line []dsync.Claim
	for i := range 40 {
		c := e.claim(key, []string{a, b}[i%2])
		e.queue(c)
		line = append(line, c)
	}
	gone := e.claim(key, a)
	e.queue(gone)
	e.release(gone)
	none.wantChange(key, "sealed", func() { e.seal(holder, nil, true) })
	for i, c := range line {
		[]*watcher{wa, wb}[i%2].wantTold(dsync.EventWake, key, c.ID)
	}
	for _, w := range []*watcher{wa, wb} {
		w.wantOnly(holder) // nobody else was granted
	}
	wa.wantUntold(dsync.EventWake, every(line, 0)...)
	wb.wantUntold(dsync.EventWake, every(line, 1)...)
	none.wantUntold(dsync.EventWake)
}

// every returns every second claim.
func every(claims []dsync.Claim, from int) (some []dsync.Claim) {
	for i := from; i < len(claims); i += 2 {
		some = append(some, claims[i])
	}
	return some
}

func testKeepWatch(e *env) {
	key, session, other := newID(), e.session(), e.session()
	w, none := e.watch(session), e.watch(other, key)
	if w == nil || none == nil {
		return
	}
	holder, first, second := e.claim(key, other), e.claim(key, session), e.claim(key, session)
	e.hold(holder)
	e.queue(first)
	e.queue(second)
	e.queue(e.claim(key, other))
	w.wantUntold(dsync.EventWake)
	e.releaseKeep(holder, long, true)
	w.wantTold(dsync.EventWake, key, first.ID)
	w.wantUntold(dsync.EventWake, first)
	none.wantUntold(dsync.EventWake)

	// An earlier end once more.
	e.release(first)
	time.Sleep(20 * time.Millisecond)
	e.releaseKeep(holder, long/2, true)
	w.wantTold(dsync.EventWake, key, second.ID)
	w.wantOnly()
}
