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

// yielding returns a new claim that yields.
func (e *env) yielding(key, session string, weight, limit int64) driver.Claim {
	c := e.weighted(key, session, weight, limit)
	c.Yield = true
	return c
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
