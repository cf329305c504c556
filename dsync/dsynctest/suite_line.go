package dsynctest

import (
	"errors"
	"slices"

	"github.com/leasehold-go/leasehold/dsync"
)

// lineCases test the line, weights and settling.
func lineCases() []conformanceCase {
	return []conformanceCase{
		{name: "Line/IsServedInOrder", test: testLineInOrder},
		{name: "Line/ShowsTheNearestAhead", test: testLineShowsNearestAhead},
		{name: "Load/ShowsTheLine", test: testLoadLine},
		{name: "Line/LightDoesNotOvertakeHeavy", test: testLineNoOvertaking},
		{name: "Line/TryDoesNotOvertake", test: testLineTryDoesNotOvertake},
		{name: "Line/OneCommandGrantsAllThatFit", test: testLineGrantsAllThatFit},
		{name: "Line/WhenTheHeavyHeadLeavesTheNextAreGranted", test: testLineHeadLeaves},
		{name: "Line/WeightsNeverExceedTheLimit", test: testLineWeights},
	}
}

// mismatchCases test the kind and limit of a key.
func mismatchCases() []conformanceCase {
	return []conformanceCase{
		{name: "Mismatch/Kind", test: testMismatchKind},
		{name: "Mismatch/Limit", test: testMismatchLimit},
		{name: "Mismatch/FreeKeyTakesOver", test: testMismatchFreeKey},
	}
}

func testLineInOrder(e *env) {
	key, session := newID(), e.session()
	var claims []dsync.Claim
	for i := range 6 {
		if i%2 == 0 {
			session = e.session() // some of one session, some of others
		}
		claims = append(claims, e.claim(key, session))
	}
	e.hold(claims[0])
	for _, c := range claims[1:] {
		e.queue(c)
	}
	for i, c := range claims {
		s := e.load(key)
		e.wantHolders(s, c)
		e.wantLine(s, claims[i+1:]...)
		e.release(c)
	}
	e.wantFree(key)
}

func testLineShowsNearestAhead(e *env) {
	key, session := newID(), e.session()
	e.hold(e.claim(key, session))
	var line []dsync.Claim
	for range 12 {
		c := e.claim(key, session)
		e.queue(c)
		line = append(line, c)
	}
	for i, c := range line {
		s := e.acquire(c)
		want := claimIDs(line[max(0, i-8):i])
		if s.Place != i+1 || s.Waiting != 12 || !slices.Equal(ahead(s), want) {
			e.Fatalf("place %d of %d, ahead %q; want %d of 12, %q", s.Place, s.Waiting, ahead(s), i+1, want)
		}
	}
	want := claimIDs(line[:8])
	if s := e.try(e.claim(key, session)); s.Place != 0 || s.Waiting != 12 || !slices.Equal(ahead(s), want) {
		e.Errorf("not in line: place %d of %d, ahead %q; want 0 of 12, the line's head %q", s.Place, s.Waiting, ahead(s), want)
	}
}

func testLoadLine(e *env) {
	key, session := newID(), e.session()
	e.hold(e.weighted(key, session, 3, 3))
	var line []dsync.Claim
	for i := range 40 {
		c := e.weighted(key, session, int64(i%3+1), 3)
		e.queue(c)
		line = append(line, c)
	}
	s := e.load(key)
	e.wantLine(s, line...)
	for i, w := range s.Ahead {
		if w.Session != session || w.Weight != line[i].Weight {
			e.Errorf("in line %+v, want the session and weight of %+v", w, line[i])
		}
	}
}

func testLineNoOvertaking(e *env) {
	key, session := newID(), e.session()
	first, heavy, light := e.weighted(key, session, 2, 3), e.weighted(key, session, 3, 3), e.weighted(key, session, 1, 3)
	e.hold(first)
	e.queue(heavy)
	e.queue(light) // would fit
	for range 2 {
		s := e.acquire(light)
		e.wantHolders(s, first)
		if s.Place != 2 {
			e.Fatalf("the light claim has place %d, want 2", s.Place)
		}
	}
	e.release(first)
	s := e.load(key)
	e.wantHolders(s, heavy)
	e.wantLine(s, light)
	e.release(heavy)
	e.wantHolders(e.load(key), light)
}

func testLineTryDoesNotOvertake(e *env) {
	key, session := newID(), e.session()
	first, heavy, try := e.weighted(key, session, 2, 3), e.weighted(key, session, 3, 3), e.weighted(key, session, 1, 3)
	e.hold(first)
	e.queue(heavy)
	s := e.try(try)
	e.wantHolders(s, first)
	e.wantLine(s, heavy)
	e.wantLine(e.load(key), heavy)
}

func testLineGrantsAllThatFit(e *env) {
	const readers = 70
	key, session := newID(), e.session()
	writer, last := e.weighted(key, session, 100, 100), e.weighted(key, session, 100, 100)
	e.hold(writer)
	var want []dsync.Claim
	for range readers {
		c := e.weighted(key, session, 1, 100)
		e.queue(c)
		want = append(want, c)
	}
	e.queue(last)
	e.release(writer)
	s := e.load(key)
	e.wantHolders(s, want...) // check compares their tokens
	e.wantLine(s, last)
	for _, h := range s.Holders {
		if !h.Since.Equal(s.Holders[0].Since) {
			e.Errorf("granted by one command at %v and %v, want one reading of the clock", h.Since, s.Holders[0].Since)
		}
	}
}

func testLineHeadLeaves(e *env) {
	key, session := newID(), e.session()
	first, heavy := e.weighted(key, session, 2, 3), e.weighted(key, session, 3, 3)
	light, behind := e.weighted(key, session, 1, 3), e.weighted(key, session, 1, 3)
	e.hold(first)
	e.queue(heavy)
	e.queue(light)
	e.queue(behind)
	e.release(heavy)
	s := e.load(key)
	e.wantHolders(s, first, light)
	e.wantLine(s, behind)
}

// testLineWeights runs a fixed program of joins and releases and compares each
// state with a model of the line.
func testLineWeights(e *env) {
	const limit = 5
	key, session := newID(), e.session()
	var holders, line []dsync.Claim
	settle := func() {
		for len(line) > 0 {
			sum := line[0].Weight
			for _, h := range holders {
				sum += h.Weight
			}
			if sum > limit {
				return
			}
			holders, line = append(holders, line[0]), line[1:]
		}
	}
	for _, weight := range []int64{2, 2, 0, 5, 1, 3, 0, 0, 1, 1, 4, 0, 5, 2, 0, 0, 1, 0, 3, 0, 0} {
		if weight == 0 && len(holders) > 0 { // the oldest holder leaves
			e.release(holders[0])
			holders = holders[1:]
		} else if weight > 0 {
			c := e.weighted(key, session, weight, limit)
			e.acquire(c)
			line = append(line, c)
		}
		settle()
		s := e.load(key)
		e.wantHolders(s, holders...)
		e.wantLine(s, line...)
	}
}

// wantMismatch asks for c in both ways and checks that the answer is want.
func (e *env) wantMismatch(c dsync.Claim, want dsync.MismatchError) {
	e.Helper()
	for _, wait := range []bool{true, false} {
		s, err := e.store.Acquire(e.ctx, c, wait, nil, e.far)
		var mismatch *dsync.MismatchError
		if !errors.Is(err, dsync.ErrMismatch) || !errors.As(err, &mismatch) {
			e.Fatalf("Acquire(wait %t) as another kind or limit = %+v, %v; want a *MismatchError", wait, s, err)
		}
		if *mismatch != want {
			e.Errorf("Acquire(wait %t): %+v, want %+v", wait, *mismatch, want)
		}
	}
}

func testMismatchKind(e *env) {
	key, session := newID(), e.session()
	holder, waiter := e.claim(key, session), e.claim(key, session)
	other := e.claim(key, session)
	other.Kind = "other"
	want := dsync.MismatchError{Key: key, Kind: holder.Kind, WantKind: "other", Limit: 1, WantLimit: 1}
	e.hold(holder)
	e.wantMismatch(other, want)
	e.queue(waiter)
	e.wantMismatch(other, want)
	s := e.load(key)
	e.wantHolders(s, holder)
	e.wantLine(s, waiter)
	if s.Kind != holder.Kind {
		e.Errorf("kind %q, want it still %q", s.Kind, holder.Kind)
	}
}

func testMismatchLimit(e *env) {
	key, session := newID(), e.session()
	holder, other := e.weighted(key, session, 1, 3), e.weighted(key, session, 1, 5)
	e.hold(holder)
	e.wantMismatch(other, dsync.MismatchError{Key: key, Kind: holder.Kind, WantKind: other.Kind, Limit: 3, WantLimit: 5})
	s := e.load(key)
	e.wantHolders(s, holder)
	e.wantLine(s)
	if s.Limit != 3 {
		e.Errorf("limit %d, want it still 3", s.Limit)
	}
}

func testMismatchFreeKey(e *env) {
	key, session := newID(), e.session()
	first := e.claim(key, session)
	token := e.hold(first).Token
	e.release(first)

	second := e.weighted(key, session, 2, 4)
	second.Kind = "other"
	s := e.acquire(second)
	e.wantHolders(s, second)
	if s.Kind != "other" || s.Limit != 4 || s.Token < token+1024 {
		e.Errorf("kind %q, limit %d, token %d after token %d; want those of the new claim, and a greater token", s.Kind, s.Limit, s.Token, token)
	}
	e.wantMismatch(e.claim(key, session), dsync.MismatchError{Key: key, Kind: "other", WantKind: dsync.KindMutex, Limit: 4, WantLimit: 1})

	// Dead holders do not keep the key what it was.
	e.kill(session)
	third := e.claim(key, e.session())
	if h := e.hold(third, session); h.Token < s.Token+1024 {
		e.Errorf("token %d after %d", h.Token, s.Token)
	}
}
