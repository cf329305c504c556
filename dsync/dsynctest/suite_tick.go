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
		{name: "Tick/AnEarlierSealChangesNothing", test: testTickFalls},
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

// sealUpTo releases a claim that must hold, and seals the key up to the tick.
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
				e.Errorf("Over(%d) = %t, Over(6) = %t of a key that is sealed up to 5; want true and false", tick, s.Over(tick), s.Over(6))
			}
		}
		e.releaseKeep(over, 0, false)
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
