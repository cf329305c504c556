package dsynctest

import (
	"errors"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/leasehold-go/leasehold/dsync"
)

// raceCases test that commands which run concurrently are atomic.
func raceCases() []conformanceCase {
	return []conformanceCase{
		{name: "Race/FiftyOnAFreshKey_B01", test: testRaceFreshKey},
		{name: "Race/FiftyTriesOnAFreshKey_B01", test: testRaceTries},
		{name: "Race/RepeatsOfOneClaim", test: testRaceRepeats},
		{name: "Race/RepeatsOfOneRelease", test: testRaceReleases},
		{name: "Race/NeverMoreThanTheLimit_B01", test: testRaceLimit},
		{name: "Race/EveryWaiterIsServed", test: testRaceWaiters},
		{name: "Race/RegistersOfOneSession", test: testRaceRegister},
		{name: "Race/BurialsAndHeartbeats", test: testRaceBury},
	}
}

// together calls f n times at the same time and waits for all of it.
func together(n int, f func(i int)) {
	var wg sync.WaitGroup
	start := make(chan struct{})
	for i := range n {
		wg.Go(func() {
			<-start
			f(i)
		})
	}
	close(start)
	wg.Wait()
}

// race makes n claims of five sessions and acquires them at the same time.
func (e *env) race(key string, n int, wait bool) (claims []dsync.Claim, states []dsync.State) {
	e.Helper()
	var sessions []string
	for range 5 {
		sessions = append(sessions, e.session())
	}
	for i := range n {
		claims = append(claims, e.claim(key, sessions[i%len(sessions)]))
	}
	states = make([]dsync.State, n)
	errs := make([]error, n)
	together(n, func(i int) {
		states[i], errs[i] = e.store.Acquire(e.ctx, claims[i], wait, nil, e.far)
	})
	if err := errors.Join(errs...); err != nil {
		e.Fatalf("%d that Acquire at the same time: %v", n, err)
	}
	return claims, states
}

func testRaceFreshKey(e *env) {
	const n = 50
	for round := range 3 {
		key := newID()
		claims, states := e.race(key, n, true)
		inOrder := make([]dsync.Claim, n) // by place, the holder first
		for i, s := range states {
			place := s.Place
			if _, held := s.Holder(claims[i].ID); held {
				place = 0
			} else if place == 0 {
				e.Fatalf("claim %s neither holds nor waits: %+v", claims[i].ID, s)
			}
			if len(s.Holders) != 1 || place >= n || inOrder[place].ID != "" {
				e.Fatalf("claims %s and %s have place %d, holders %+v", claims[i].ID, inOrder[place].ID, place, s.Holders)
			}
			inOrder[place] = claims[i]
		}
		if round > 0 {
			continue
		}
		for i, c := range inOrder { // each once, each alone
			s := e.load(key)
			e.wantHolders(s, c)
			if s.Waiting != n-1-i {
				e.Fatalf("%d wait, want %d", s.Waiting, n-1-i)
			}
			e.release(c)
		}
		e.wantFree(key)
	}
}

func testRaceTries(e *env) {
	for range 3 {
		key := newID()
		claims, states := e.race(key, 50, false)
		var held []dsync.Claim
		for i, s := range states {
			if _, ok := s.Holder(claims[i].ID); ok {
				held = append(held, claims[i])
			}
		}
		if len(held) != 1 {
			e.Fatalf("%d of 50 tries hold the key", len(held))
		}
		s := e.load(key)
		e.wantHolders(s, held...)
		e.wantLine(s)
	}
}

func testRaceRepeats(e *env) {
	key, session := newID(), e.session()
	for _, granted := range []bool{true, false} {
		c := e.claim(key, session)
		states := make([]dsync.State, 16)
		errs := make([]error, len(states))
		together(len(states), func(i int) {
			states[i], errs[i] = e.store.Acquire(e.ctx, c, true, nil, e.far)
		})
		if err := errors.Join(errs...); err != nil {
			e.Fatalf("Acquire of one claim at the same time: %v", err)
		}
		for _, s := range states {
			h, ok := s.Holder(c.ID)
			if ok != granted || ok && h.Token != states[0].Token || !ok && (s.Place != 1 || s.Waiting != 1) {
				e.Errorf("repeats: granted %t, token %d, place %d of %d; want granted %t, once", ok, h.Token, s.Place, s.Waiting, granted)
			}
		}
	}
}

func testRaceReleases(e *env) {
	key, session := newID(), e.session()
	c, next, last := e.claim(key, session), e.claim(key, session), e.claim(key, session)
	c.Token = e.hold(c).Token
	e.queue(next)
	e.queue(last)
	var found atomic.Int32
	errs := make([]error, 16)
	together(len(errs), func(i int) {
		var ok bool
		if ok, errs[i] = e.store.Release(e.ctx, c, dsync.Outcome{}); ok {
			found.Add(1)
		}
	})
	if err := errors.Join(errs...); err != nil || found.Load() != 1 {
		e.Errorf("%d releases of one claim found it %d times, %v; want once, no error", len(errs), found.Load(), err)
	}
	s := e.load(key)
	e.wantHolders(s, next)
	e.wantLine(s, last)
}

// testRaceLimit counts holders between the reply to Acquire and the sending of
// Release: there are never more than the limit.
func testRaceLimit(e *env) {
	const limit = 3
	key, session := newID(), e.session()
	const workers, rounds = 8, 10
	claims := make([][]dsync.Claim, workers)
	for i := range claims {
		for range rounds {
			claims[i] = append(claims[i], e.weighted(key, session, int64(i%2+1), limit))
		}
	}
	var held atomic.Int64
	var mu sync.Mutex
	var tokens []int64
	together(workers, func(i int) {
		for _, c := range claims[i] {
			s, err := e.store.Acquire(e.ctx, c, false, nil, e.far)
			if err != nil {
				e.Errorf("Acquire: %v", err)
				return
			}
			h, ok := s.Holder(c.ID)
			if !ok {
				continue
			}
			if sum := held.Add(c.Weight); sum > limit {
				e.Errorf("holders weigh %d of %d", sum, limit)
			}
			mu.Lock()
			tokens = append(tokens, h.Token)
			mu.Unlock()
			time.Sleep(time.Millisecond)
			held.Add(-c.Weight)
			c.Token = h.Token
			if found, err := e.store.Release(e.ctx, c, dsync.Outcome{}); err != nil || !found {
				e.Errorf("Release = %t, %v", found, err)
			}
		}
	})
	e.wantFree(key)
	slices.Sort(tokens)
	for i := 1; i < len(tokens); i++ {
		if tokens[i] < tokens[i-1]+1024 {
			e.Errorf("tokens %d and %d, want them at least 1024 apart", tokens[i-1], tokens[i])
		}
	}
}

// testRaceWaiters lets workers wait in line by asking again, each alone.
func testRaceWaiters(e *env) {
	const workers, rounds = 6, 3
	key := newID()
	claims := make([][]dsync.Claim, workers)
	for i := range claims {
		session := e.session()
		for range rounds {
			claims[i] = append(claims[i], e.claim(key, session))
		}
	}
	var holders atomic.Int32
	together(workers, func(i int) {
		for _, c := range claims[i] {
			for {
				s, err := e.store.Acquire(e.ctx, c, true, nil, e.far)
				if err != nil {
					e.Errorf("Acquire: %v", err)
					return
				}
				if h, ok := s.Holder(c.ID); ok {
					c.Token = h.Token
					break
				}
				time.Sleep(2 * time.Millisecond)
			}
			if n := holders.Add(1); n > 1 {
				e.Errorf("%d hold the key", n)
			}
			time.Sleep(time.Millisecond)
			holders.Add(-1)
			if found, err := e.store.Release(e.ctx, c, dsync.Outcome{}); err != nil || !found {
				e.Errorf("Release = %t, %v", found, err)
			}
		}
	})
	e.wantFree(key)
}

// testRaceRegister registers sessions that have one id, as those of two processes on
// cloned machines could.
func testRaceRegister(e *env) {
	id := newID()
	errs := make([]error, 16)
	together(len(errs), func(i int) {
		_, errs[i] = e.store.Register(e.ctx, dsync.Member{ID: id, TTL: long})
	})
	registered := 0
	for _, err := range errs {
		switch {
		case err == nil:
			registered++
		case !errors.Is(err, dsync.ErrSessionExists):
			e.Errorf("Register of one id at the same time: error %v, want ErrSessionExists", err)
		}
	}
	if registered != 1 {
		e.Errorf("%d sessions were registered under one id, want 1", registered)
	}
	if _, err := e.store.Heartbeat(e.ctx, id, nil); err != nil {
		e.Errorf("Heartbeat: %v", err)
	}
}

// testRaceBury buries a lapsed session while its owner's heartbeat arrives:
// either it is dead for ever or it lives for all.
func testRaceBury(e *env) {
	for round := range 6 {
		const ttl = 60 * time.Millisecond
		id, at := e.sessionTTL(ttl)
		e.until(at.Add(ttl))
		var buried, beat atomic.Bool
		errs := make([]error, 16)
		together(len(errs), func(i int) {
			if i%2 == round%2 { // the last one often starts first
				left, err := e.store.Bury(e.ctx, id)
				if err == nil && left == 0 {
					buried.Store(true)
				}
				errs[i] = err
				return
			}
			wasBuried := buried.Load()
			_, err := e.store.Heartbeat(e.ctx, id, nil)
			if err == nil {
				beat.Store(true)
			} else if !errors.Is(err, dsync.ErrSessionDead) {
				errs[i] = err
			}
			if wasBuried && err == nil {
				e.Error("a heartbeat that was sent after the burial's answer succeeded")
			}
		})
		if err := errors.Join(errs...); err != nil {
			e.Fatalf("Bury and Heartbeat at the same time: %v", err)
		}
		if buried.Load() {
			e.wantDead(id)
		} else if !beat.Load() {
			e.Error("neither buried nor alive")
		}
	}
}
