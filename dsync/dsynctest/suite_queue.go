package dsynctest

import (
	"errors"
	"time"

	"github.com/leasehold-go/leasehold/dsync/driver"
	"github.com/leasehold-go/leasehold/internal/storecmd"
)

// queueCases test the queue, weights, and which claims a command grants.
func queueCases() []conformanceCase {
	return []conformanceCase{
		{name: "Queue/OneCommandGrantsAllThatFit", test: testQueueGrantsAllThatFit},
	}
}

func testQueueGrantsAllThatFit(e *env) {
	const readers = 70
	key, session := newID(), e.session()
	writer, last := e.weighted(key, session, 100, 100), e.weighted(key, session, 100, 100)
	e.hold(writer)
	var want []driver.Claim
	for range readers {
		c := e.weighted(key, session, 1, 100)
		e.queue(c)
		want = append(want, c)
	}
	e.queue(last)
	e.release(writer)
	s := e.load(key)
	e.wantHolders(s, want...) // env.check compares the tokens
	e.wantQueue(s, last)
	for _, h := range s.Holders {
		if !h.Since.Equal(s.Holders[0].Since) {
			e.Errorf("granted by one command at %v and %v, want one reading of the clock", h.Since, s.Holders[0].Since)
		}
	}
}

// wantMismatch acquires c with and without waiting, and checks that each Acquire returns the given error.
func (e *env) wantMismatch(c driver.Claim, want driver.MismatchError) {
	e.Helper()
	for _, wait := range []bool{true, false} {
		s, _, err := storecmd.Acquire(e.ctx, e.store, c, wait, nil, e.far)
		var mismatch *driver.MismatchError
		if !errors.Is(err, driver.ErrMismatch) || !errors.As(err, &mismatch) {
			e.Fatalf("Acquire(wait %t) as another kind or limit = %+v, %v; want a *MismatchError", wait, s, err)
		}
		if *mismatch != want {
			e.Errorf("Acquire(wait %t): %+v, want %+v", wait, *mismatch, want)
		}
	}
}

// yieldCases test the distance from the token of a claim with Yield to the key's next token.
func yieldCases() []conformanceCase {
	return []conformanceCase{
		{name: "Token/RoomBehindOneThatYields", test: testYieldRoom},
		{name: "Token/NoRoomBehindAPart", test: testYieldPart},
	}
}

// yielding returns a new claim that yields.
func (e *env) yielding(key, session string, weight, limit int64) driver.Claim {
	c := e.weighted(key, session, weight, limit)
	c.Yield = true
	return c
}

// testYieldRoom ends the holds of yielding claims in four ways.
func testYieldRoom(e *env) {
	key, living := newID(), e.session()
	var last int64
	for i := range 16 {
		session := living
		if i%4 == 2 {
			session = e.session()
		}
		limit := int64(i%3 + 1)
		c, next := e.yielding(key, session, limit, limit), e.weighted(key, living, 1, limit)
		if i%4 == 3 {
			c.Lease = time.Millisecond
		}
		s := e.acquire(c)
		e.wantHolders(s, c)
		token := s.Holders[0].Token
		if token < last+driver.TokenStep || s.Token < token || s.Token >= token+driver.TokenRoom {
			e.Fatalf("token %d after %d, and the key's last token is %d; want the last token less than %d above the claim's", token, last, s.Token, driver.TokenRoom)
		}
		var h driver.Holder
		switch i % 4 {
		case 0: // after a release
			e.release(c)
			h = e.hold(next)
		case 1: // by a release
			e.queue(next)
			e.release(c)
			h, _ = e.load(key).Holder(next.ID)
		case 2: // from an expired session
			e.expire(session)
			h = e.hold(next, session)
		case 3: // from a lapsed lease
			e.until(e.extend(c).Until)
			h = e.hold(next)
		}
		if h.Token < token+driver.TokenRoom {
			e.Fatalf("round %d: token %d after %d, which yields; want at least %d more", i, h.Token, token, driver.TokenRoom)
		}
		e.release(next)
		last = h.Token
	}
}

func testYieldPart(e *env) {
	key, session := newID(), e.session()
	for range 5 {
		part, all := e.yielding(key, session, 1, 2), e.weighted(key, session, 2, 2)
		for _, c := range []driver.Claim{part, all} {
			h := e.hold(c)
			if s := e.load(key); s.Token < h.Token || s.Token >= h.Token+driver.TokenStep {
				e.Errorf("claim %+v has token %d, and the key's last token is %d; want the last token less than %d above the claim's", c, h.Token, s.Token, driver.TokenStep)
			}
			e.release(c)
		}
	}
}

// testSweepRoom is one of sweepCases: it sweeps soon after each release.
func testSweepRoom(e *env) {
	key, session := newID(), e.session()
	var last int64
	for i := range 12 {
		c := e.yielding(key, session, 1, 1)
		h := e.hold(c)
		if i > 0 && h.Token < last+driver.TokenRoom {
			e.Fatalf("round %d: token %d after %d, which yielded; want at least %d more", i, h.Token, last, driver.TokenRoom)
		}
		last = h.Token
		e.release(c)
		e.until(e.now().Add(time.Duration(i) * 10 * time.Millisecond)) // TokenRoom corresponds to 64 ms of the clock
		e.sweep(0)
	}
}
