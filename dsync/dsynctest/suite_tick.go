package dsynctest

import (
	"errors"

	"github.com/leasehold-go/leasehold/dsync/driver"
	"github.com/leasehold-go/leasehold/internal/storecmd"
)

// tickCases test claims with a Tick; the claims of sealCases have none.
func tickCases() []conformanceCase {
	return []conformanceCase{
		{name: "Tick/OverForItselfAndEarlierOnes", test: testTickOver},
		{name: "Tick/LaterOnesAreGranted", test: testTickLater},
		{name: "Tick/EarlierOnesAreServedFirst", test: testTickOrder},
		{name: "Tick/SealDropsThoseThatAreOver", test: testTickQueue},
		{name: "Tick/AnEarlierSealChangesNothing", test: testTickFalls},
		{name: "Tick/RunThatFailsIsFollowed", test: testTickFails},
		{name: "Tick/SealedKeyKeepsItsKindAndLimit", test: testTickKind},
		{name: "Tick/Forgotten", test: testTickForgotten},
		{name: "Tick/NegativeIsRefused", test: testTickNegative},
		{name: "Notice/SealUpToATick", test: testTickNotice},
	}
}

// tick returns a new claim for a tick.
func (e *env) tick(key, session string, tick int64) driver.Claim {
	c := e.claim(key, session)
	c.Kind, c.Tick = driver.KindPeriodic, tick
	return c
}

// sealUpTo releases a claim that must hold, and seals the key up to tick.
func (e *env) sealUpTo(c driver.Claim, tick int64, result string) {
	e.Helper()
	e.releaseAs(c, driver.Release{Seal: tick, Result: []byte(result)}, true)
}

func testTickOver(e *env) {
	key, session := newID(), e.session()
	c := e.tick(key, session, 5)
	token := e.hold(c).Token
	e.sealUpTo(c, 5, "five")
	for _, tick := range []int64{5, 4, 1, 0} {
		over := e.tick(key, session, tick)
		for _, s := range []driver.State{e.acquire(over), e.try(over), e.acquire(over, session)} {
			e.wantTick(s, 5, token, []byte("five"))
			e.wantHolders(s)
			e.wantQueue(s)
			if !s.Over(tick) || s.Over(6) {
				e.Errorf("Over(%d) = %t, Over(6) = %t of a key that is sealed up to 5", tick, s.Over(tick), s.Over(6))
			}
		}
		e.releaseKeep(over, 0, false)
	}
}

func testTickLater(e *env) {
	key, session := newID(), e.session()
	var last driver.Holder
	for _, tick := range []int64{1, 2, 5, 1 << 50} {
		c := e.tick(key, session, tick)
		h := e.hold(c)
		if h.Token <= last.Token {
			e.Errorf("token %d after %d", h.Token, last.Token)
		}
		last = h
		e.sealUpTo(c, tick, "result")
		e.wantTick(e.load(key), tick, h.Token, []byte("result"))
		e.wantFree(key)
	}
	// While the next claim holds the key, the result is still that of the last tick.
	c := e.tick(key, session, 1<<50+1)
	e.wantTick(e.acquire(c), 1<<50, e.load(key).Token, []byte("result"))
	e.wantHolders(e.load(key), c)
}

func testTickOrder(e *env) {
	key, session := newID(), e.session()
	holder := e.tick(key, session, 5)
	e.hold(holder)
	waiters := make([]driver.Claim, 7)
	for i, at := range [][2]int64{{5, 1}, {7, 2}, {4, 1}, {6, 3}, {5, 3}, {1 << 50, 6}, {7, 6}} { // the claim's tick, and its expected position
		waiters[i] = e.tick(key, session, at[0])
		if s := e.acquire(waiters[i]); s.Position != int(at[1]) || s.Waiting != i+1 {
			e.Errorf("the claim for tick %d is at position %d of %d, want %d of %d", at[0], s.Position, s.Waiting, at[1], i+1)
		}
	}
	e.release(holder)
	for _, i := range []int{2, 0, 4, 3, 1, 6, 5} {
		e.wantHolders(e.load(key), waiters[i])
		e.release(waiters[i])
	}
	e.wantFree(key)
}

func testTickQueue(e *env) {
	key, session := newID(), e.session()
	holder := e.tick(key, session, 5)
	e.hold(holder)
	var queue []driver.Claim
	for _, tick := range []int64{4, 5, 5, 6, 7, 8} {
		c := e.tick(key, session, tick)
		e.queue(c)
		queue = append(queue, c)
	}
	e.sealUpTo(holder, 5, "five")
	s := e.load(key)
	e.wantHolders(s, queue[3])
	e.wantQueue(s, queue[4:]...)
	e.wantTick(s, 5, s.Token, []byte("five"))
	e.sealUpTo(queue[3], 7, "seven")
	s = e.load(key)
	e.wantHolders(s, queue[5])
	e.wantQueue(s)
	e.wantTick(s, 7, s.Token, []byte("seven"))
	for _, c := range queue[:5] {
		e.releaseKeep(c, 0, false)
		if s := e.acquire(c); s.Position != 0 || s.Waiting != 0 {
			e.Errorf("the claim for tick %d is in the queue again: %+v", c.Tick, s)
		}
	}
}

func testTickFalls(e *env) {
	key, session := newID(), e.session()
	var holders []driver.Claim
	for range 3 {
		c := e.weighted(key, session, 1, 3)
		c.Tick = 9
		e.hold(c)
		holders = append(holders, c)
	}
	waiter := e.weighted(key, session, 3, 3)
	waiter.Tick = 8
	e.queue(waiter)
	e.sealUpTo(holders[0], 6, "six")
	e.sealUpTo(holders[1], 5, "five")
	e.wantTick(e.load(key), 6, e.load(key).Token, []byte("six"))
	e.sealUpTo(holders[2], 6, "six again")
	s := e.load(key)
	e.wantTick(s, 6, s.Token, []byte("six"))
	e.wantHolders(s, waiter) // the claim's tick is not over
}

func testTickFails(e *env) {
	key, session := newID(), e.session()
	before, first := e.tick(key, session, 4), e.tick(key, session, 5)
	e.hold(before)
	e.sealUpTo(before, 4, "four")
	e.hold(first)
	again, late := e.tick(key, session, 5), e.tick(key, session, 4)
	e.queue(again)
	if s := e.acquire(late); s.Position != 0 || s.Waiting != 1 { // although the key is held
		e.Fatalf("a claim whose tick is over is in the queue: %+v", s)
	}
	e.release(first)
	s := e.load(key)
	e.wantHolders(s, again)
	e.wantTick(s, 4, s.Token, []byte("four"))
	e.sealUpTo(again, 5, "five")
	e.wantTick(e.load(key), 5, s.Token, []byte("five"))
}

func testTickKind(e *env) {
	key, session := newID(), e.session()
	c := e.tick(key, session, 5)
	token := e.hold(c).Token
	e.sealUpTo(c, 5, "five")
	for _, tick := range []int64{5, 6} {
		other := e.tick(key, session, tick)
		other.Kind = driver.KindOnce
		e.wantMismatch(other, driver.MismatchError{Key: key, Kind: c.Kind, WantKind: other.Kind, Limit: 1, WantLimit: 1})
	}
	other := e.weighted(key, session, 1, 2)
	other.Kind, other.Tick = c.Kind, 6
	e.wantMismatch(other, driver.MismatchError{Key: key, Kind: c.Kind, WantKind: c.Kind, Limit: 1, WantLimit: 2})
	e.wantTick(e.load(key), 5, token, []byte("five"))
	e.wantSize(key, c.Kind, 1)
}

func testTickForgotten(e *env) {
	key, session := newID(), e.session()
	c, failed := e.tick(key, session, 5), e.tick(key, session, 6)
	sealer := e.hold(c).Token
	e.sealUpTo(c, 5, "five")
	token := e.hold(failed).Token
	e.release(failed)
	e.forget(key, sealer, false) // the key has been used since
	e.wantTick(e.load(key), 5, token, []byte("five"))
	e.forget(key, token, true)
	e.wantNotSealed(key)
	e.hold(e.tick(key, session, 1))
}

func testTickNegative(e *env) {
	key, session := newID(), e.session()
	c := e.tick(key, session, -1)
	if _, _, err := storecmd.Acquire(e.ctx, e.store, c, true, nil, e.far); !errors.Is(err, driver.ErrRefused) {
		e.Errorf("Acquire for tick -1: %v, want ErrRefused", err)
	}
	c.Tick = 1
	e.hold(c)
	if _, _, err := storecmd.Release(e.ctx, e.store, c, driver.Release{Seal: -1}); !errors.Is(err, driver.ErrRefused) {
		e.Errorf("Release with Seal -1: %v, want ErrRefused", err)
	}
	e.wantHolders(e.load(key), c)
}

func testTickNotice(e *env) {
	key := newID()
	a, b := e.hears(), e.hears()
	if a == nil || b == nil {
		return
	}
	holder := e.tick(key, a.session, 5)
	e.hold(holder)
	e.wantNotices()
	var queue []driver.Claim
	for i, tick := range []int64{4, 5, 6, 7} {
		c := e.tick(key, []string{a.session, b.session}[i%2], tick)
		e.queue(c)
		queue = append(queue, c)
	}
	e.sealUpTo(holder, 5, "five")
	e.wantNotices(wakes(queue[0]), wakes(queue[1]), wakes(queue[2]))
	e.sealUpTo(queue[2], 7, "seven")
	e.wantNotices(wakes(queue[3]))
}
