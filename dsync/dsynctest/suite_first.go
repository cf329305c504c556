package dsynctest

import "time"

// firstCases test claims that go to the head of the line.
func firstCases() []conformanceCase {
	return []conformanceCase{
		{name: "First/GoesToTheHead", test: testFirstGoes},
		{name: "First/WhoIsInLineStaysWhere", test: testFirstStays},
		{name: "First/HolderIsNotJoinedAgain", test: testFirstHolder},
		{name: "First/HeavyOneHoldsUpTheLine", test: testFirstHeavy},
		{name: "First/TryThatFitsIsGranted", test: testFirstTry},
		{name: "First/AfterNotAfterJoinsNothing", test: testFirstLate},
	}
}

func testFirstGoes(e *env) {
	key, session := newID(), e.session()
	holder, a, b := e.claim(key, session), e.claim(key, session), e.claim(key, session)
	first, second := e.claim(key, session), e.claim(key, e.session())
	first.First, second.First = true, true
	e.hold(holder)
	e.queue(a)
	e.queue(b)
	if s := e.acquire(first); s.Place != 1 || s.Waiting != 3 || len(s.Ahead) != 0 {
		e.Fatalf("place %d of %d, ahead %q; want 1 of 3, none", s.Place, s.Waiting, ahead(s))
	}
	s := e.load(key)
	e.wantHolders(s, holder)
	e.wantLine(s, first, a, b)
	if s := e.acquire(second); s.Place != 1 || s.Waiting != 4 {
		e.Fatalf("another: place %d of %d, want 1 of 4", s.Place, s.Waiting)
	}
	e.wantLine(e.load(key), second, first, a, b)
	e.release(holder)
	e.release(second)
	s = e.load(key)
	e.wantHolders(s, first)
	e.wantLine(s, a, b)
}

func testFirstStays(e *env) {
	key, session := newID(), e.session()
	holder, a, first := e.claim(key, session), e.claim(key, session), e.claim(key, session)
	e.hold(holder)
	e.queue(a)
	first.First = true
	e.acquire(first)
	for range 3 {
		e.wantLine(e.load(key), first, a)
		if s := e.acquire(first); s.Place != 1 || s.Waiting != 2 {
			e.Fatalf("repeated: place %d of %d, want 1 of 2", s.Place, s.Waiting)
		}
	}
	a.First = true // unless it is there
	if s := e.acquire(a); s.Place != 2 || s.Waiting != 2 {
		e.Fatalf("who is in line asks to be first: place %d of %d, want still 2 of 2", s.Place, s.Waiting)
	}
	e.wantLine(e.load(key), first, a)
	other := e.claim(key, session)
	other.First = true
	e.acquire(other)
	if s := e.acquire(first); s.Place != 2 || s.Waiting != 3 {
		e.Fatalf("repeated behind another first: place %d of %d, want 2 of 3", s.Place, s.Waiting)
	}
	e.wantLine(e.load(key), other, first, a)
}

func testFirstHolder(e *env) {
	key, session := newID(), e.session()
	holder, a := e.claim(key, session), e.claim(key, session)
	holder.First = true
	token := e.hold(holder).Token
	e.queue(a)
	for range 2 {
		if again := e.hold(holder).Token; again != token {
			e.Errorf("a holder repeats: token %d, want %d", again, token)
		}
	}
	s := e.load(key)
	e.wantHolders(s, holder)
	e.wantLine(s, a)
}

func testFirstHeavy(e *env) {
	key, session := newID(), e.session()
	holder, second := e.weighted(key, session, 1, 3), e.weighted(key, session, 1, 3)
	waits, heavy, light := e.weighted(key, session, 2, 3), e.weighted(key, session, 3, 3), e.weighted(key, session, 1, 3)
	e.hold(holder)
	e.hold(second)
	e.queue(waits)
	heavy.First = true
	e.acquire(heavy)
	e.queue(light) // would fit
	s := e.load(key)
	e.wantHolders(s, holder, second)
	e.wantLine(s, heavy, waits, light)
	e.release(holder)
	s = e.load(key) // from here on the one behind it would
	e.wantHolders(s, second)
	e.wantLine(s, heavy, waits, light)
	e.release(second)
	e.wantHolders(e.load(key), heavy)
}

func testFirstTry(e *env) {
	key, session := newID(), e.session()
	holder, heavy := e.weighted(key, session, 2, 3), e.weighted(key, session, 3, 3)
	e.hold(holder)
	e.queue(heavy)
	tooHeavy, fits := e.weighted(key, session, 2, 3), e.weighted(key, session, 1, 3)
	tooHeavy.First, fits.First = true, true
	s := e.try(tooHeavy)
	e.wantHolders(s, holder)
	e.wantLine(s, heavy)
	e.wantLine(e.load(key), heavy)
	s = e.try(fits)
	e.wantHolders(s, holder, fits)
	e.wantLine(s, heavy)
}

func testFirstLate(e *env) {
	key, session := newID(), e.session()
	holder, a, late := e.claim(key, session), e.claim(key, session), e.claim(key, session)
	late.First = true
	e.hold(holder)
	e.queue(a)
	s := e.ask(late, true, e.now().Add(-time.Millisecond))
	e.wantHolders(s, holder)
	e.wantLine(s, a)
	e.wantLine(e.load(key), a)
}
