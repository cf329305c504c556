package dsynctest

import (
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/leasehold-go/leasehold/dsync/driver"
	"github.com/leasehold-go/leasehold/internal/storecmd"
)

// raceCases test that concurrent commands are atomic.
func raceCases() []conformanceCase {
	return []conformanceCase{
		{name: "Race/FiftyOnAFreshKey_B01", test: testRaceFreshKey},
		{name: "Race/FiftyTriesOnAFreshKey_B01", test: testRaceTries},
		{name: "Race/RepeatsOfOneClaim", test: testRaceRepeats},
		{name: "Race/RepeatsOfOneRelease", test: testRaceReleases},
		{name: "Race/NeverMoreThanTheLimit_B01", test: testRaceLimit},
		{name: "Race/EachKeyHasItsOwnAnswer", test: testRaceKeys},
		{name: "Race/EveryWaiterIsServed", test: testRaceWaiters},
		{name: "Race/EveryGrantIsNotified", test: testRaceNotices},
		{name: "Race/RegistersOfOneSession", test: testRaceRegister},
		{name: "Race/ExpiriesAndHeartbeats", test: testRaceExpire},
	}
}

// together calls f n times at the same time and waits for all calls.
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
func (e *env) race(key string, n int, wait bool) (claims []driver.Claim, states []driver.State) {
	e.Helper()
	var sessions []string
	for range 5 {
		sessions = append(sessions, e.session())
	}
	for i := range n {
		claims = append(claims, e.claim(key, sessions[i%len(sessions)]))
	}
	states = make([]driver.State, n)
	errs := make([]error, n)
	together(n, func(i int) {
		states[i], _, errs[i] = storecmd.Acquire(e.ctx, e.store, claims[i], wait, nil, e.far)
	})
	if err := errors.Join(errs...); err != nil {
		e.Fatalf("%d concurrent Acquires: %v", n, err)
	}
	return claims, states
}

func testRaceFreshKey(e *env) {
	const n = 50
	for round := range 3 {
		key := newID()
		claims, states := e.race(key, n, true)
		inOrder := make([]driver.Claim, n) // by position, the holder first
		for i, s := range states {
			position := s.Position
			if _, held := s.Holder(claims[i].ID); held {
				position = 0
			} else if position == 0 {
				e.Fatalf("claim %s neither holds nor waits: %+v", claims[i].ID, s)
			}
			if len(s.Holders) != 1 || position >= n || inOrder[position].ID != "" {
				e.Fatalf("claims %s and %s have position %d, holders %+v", claims[i].ID, inOrder[position].ID, position, s.Holders)
			}
			inOrder[position] = claims[i]
		}
		if round > 0 {
			continue
		}
		for i, c := range inOrder { // each claim must hold alone, in the order of the queue
			s := e.load(key)
			e.wantHolders(s, c)
			if s.Waiting != n-1-i {
				e.Fatalf("%d claims wait, want %d", s.Waiting, n-1-i)
			}
			e.release(c)
		}
		e.wantFree(key)
	}
}

// testRaceKeys acquires many keys at the same time, in different states, and then releases them at the same time. A
// store may put such commands together, but each has its own answer, and the effect that it has alone. In the first round
// the store knows none of the keys, so most of the records may be missing; in the others, most exist.
func testRaceKeys(e *env) {
	for round := range 3 {
		raceKeys(e, round)
	}
}

func raceKeys(e *env, round int) {
	const n = 64
	const (
		unused    = iota
		used      // free
		held      // by another claim
		otherKind // held as another kind
		elected   // free, and its terms are counted, though it was last used as the claims' kind
		resized   // free, and another limit counts as the present one
		queued    // free, and another claim waits when it is released
		sealed    // free, but no claim without a tick is granted it any more
		observed  // free, and others observe it
		late      // unused, and the request comes too late; only in the last round, because a store may then not put others together
		states
	)
	stateOf := func(i int) int {
		if s := i % (2 * states); s < late || s == late && round == 2 {
			return s
		}
		return []int{unused, used}[round%2]
	}
	granted := func(state int) bool { return state != held && state != otherKind && state != sealed && state != late }
	mine, others := e.session(), e.session()
	claims, before, next := make([]driver.Claim, n), make([]driver.Claim, n), make([]driver.Claim, n)
	var watched []string
	for i := range n {
		key := newID()
		claims[i], before[i], next[i] = e.claim(key, mine), e.claim(key, others), e.claim(key, others)
		state := stateOf(i)
		if state == otherKind || state == elected {
			before[i].Kind = driver.KindElection
		}
		if state != unused && state != late {
			e.hold(before[i])
		}
		if state == resized {
			e.resizeTo(driver.Resize{Key: key, Kind: before[i].Kind, From: 2, Limit: 1})
		}
		switch state {
		case used, resized, queued:
			e.release(before[i])
		case elected:
			e.release(before[i])
			later := e.claim(key, others)
			e.hold(later)
			e.release(later)
		case sealed:
			e.releaseAs(before[i], driver.Release{Seal: 1}, true)
		case observed:
			e.release(before[i])
			watched = append(watched, key)
		}
	}
	notifies := e.hears(watched...) != nil
	errs := make([]error, n)
	together(n, func(i int) {
		state, notAfter := stateOf(i), e.far
		if state == late {
			notAfter = time.UnixMilli(1)
		}
		st, notices, err := storecmd.Acquire(e.ctx, e.store, claims[i], true, nil, notAfter)
		h, holds := st.Holder(claims[i].ID)
		switch {
		case state == otherKind && errors.Is(err, driver.ErrMismatch):
		case err != nil:
			errs[i] = err
		case state == otherKind || holds != granted(state) || state == held && st.Position != 1:
			errs[i] = fmt.Errorf("acquire of key %d: %+v", i, st)
		case state == observed && notifies && !contains(notices, change(claims[i].Key)):
			errs[i] = fmt.Errorf("acquire of key %d: notices %+v, want those who observe it to be notified", i, notices)
		}
		claims[i].Token, claims[i].NoneWaiting = h.Token, holds
	})
	for i, c := range next {
		if stateOf(i) == queued {
			e.queue(c)
		}
	}
	together(n, func(i int) {
		found, notices, err := storecmd.Release(e.ctx, e.store, claims[i], driver.Release{Early: i%3 == 0})
		state := stateOf(i)
		if want := granted(state) || state == held; err != nil || found != want {
			errs[i] = errors.Join(errs[i], fmt.Errorf("release of key %d: found %t, error %v; want %t, no error", i, found, err, want))
		}
		if state == observed && notifies && !contains(notices, change(claims[i].Key)) {
			errs[i] = errors.Join(errs[i], fmt.Errorf("release of key %d: notices %+v, want those who observe it to be notified", i, notices))
		}
		for _, n := range notices {
			if state != observed && n.Claim != next[i].ID {
				errs[i] = errors.Join(errs[i], fmt.Errorf("release of key %d: notice %+v", i, n))
			}
		}
	})
	if err := errors.Join(errs...); err != nil {
		e.Fatalf("%d keys at the same time: %v", n, err)
	}
	for i, c := range before {
		switch stateOf(i) {
		case held, otherKind:
			e.wantHolders(e.load(c.Key), c)
		case queued:
			e.wantHolders(e.load(c.Key), next[i])
		case elected:
			e.wantFree(c.Key)
			e.wantTerm(e.acquire(e.candidate(c.Key, others)), 2)
		case resized:
			e.wantFree(c.Key)
			if st := e.acquire(e.weighted(c.Key, others, 1, 2)); st.Limit != 1 {
				e.Errorf("a claim of the former limit was granted with the limit %d, want 1", st.Limit)
			}
		default:
			e.wantFree(c.Key)
		}
	}
}

func testRaceTries(e *env) {
	for range 3 {
		key := newID()
		claims, states := e.race(key, 50, false)
		var held []driver.Claim
		for i, s := range states {
			if _, ok := s.Holder(claims[i].ID); ok {
				held = append(held, claims[i])
			}
		}
		if len(held) != 1 {
			e.Fatalf("%d of 50 tries acquired the key", len(held))
		}
		s := e.load(key)
		e.wantHolders(s, held...)
		e.wantQueue(s)
	}
}

func testRaceRepeats(e *env) {
	key, session := newID(), e.session()
	for _, granted := range []bool{true, false} {
		c := e.claim(key, session)
		states := make([]driver.State, 16)
		errs := make([]error, len(states))
		together(len(states), func(i int) {
			states[i], _, errs[i] = storecmd.Acquire(e.ctx, e.store, c, true, nil, e.far)
		})
		if err := errors.Join(errs...); err != nil {
			e.Fatalf("Acquire of one claim at the same time: %v", err)
		}
		for _, s := range states {
			h, ok := s.Holder(c.ID)
			if ok != granted || ok && h.Token != states[0].Token || !ok && (s.Position != 1 || s.Waiting != 1) {
				e.Errorf("repeats: granted %t, token %d, position %d of %d; want granted %t, once", ok, h.Token, s.Position, s.Waiting, granted)
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
		if ok, _, errs[i] = storecmd.Release(e.ctx, e.store, c, driver.Release{}); ok {
			found.Add(1)
		}
	})
	if err := errors.Join(errs...); err != nil || found.Load() != 1 {
		e.Errorf("%d releases of one claim found it %d times, %v; want once, no error", len(errs), found.Load(), err)
	}
	s := e.load(key)
	e.wantHolders(s, next)
	e.wantQueue(s, last)
}

// testRaceLimit counts a claim as a holder from the reply to its Acquire until its Release is sent. The holders
// must never weigh more than the limit.
func testRaceLimit(e *env) {
	const limit = 3
	key, session := newID(), e.session()
	const workers, rounds = 8, 10
	claims := make([][]driver.Claim, workers)
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
			s, _, err := storecmd.Acquire(e.ctx, e.store, c, false, nil, e.far)
			if err != nil {
				e.Errorf("Acquire: %v", err)
				return
			}
			h, ok := s.Holder(c.ID)
			if !ok {
				continue
			}
			if sum := held.Add(c.Weight); sum > limit {
				e.Errorf("the holders' weights add up to %d, more than the limit of %d", sum, limit)
			}
			mu.Lock()
			tokens = append(tokens, h.Token)
			mu.Unlock()
			time.Sleep(time.Millisecond)
			held.Add(-c.Weight)
			c.Token = h.Token
			if found, _, err := storecmd.Release(e.ctx, e.store, c, driver.Release{}); err != nil || !found {
				e.Errorf("Release = %t, %v", found, err)
			}
		}
	})
	e.wantFree(key)
	slices.Sort(tokens)
	for i := 1; i < len(tokens); i++ {
		if tokens[i] < tokens[i-1]+driver.TokenStep {
			e.Errorf("tokens %d and %d, want them at least %d apart", tokens[i-1], tokens[i], driver.TokenStep)
		}
	}
}

// testRaceWaiters runs workers that wait for the key by polling.
func testRaceWaiters(e *env) {
	const workers, rounds = 6, 3
	key := newID()
	claims := make([][]driver.Claim, workers)
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
				s, _, err := storecmd.Acquire(e.ctx, e.store, c, true, nil, e.far)
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
				e.Errorf("%d claims hold the key at a time", n)
			}
			time.Sleep(time.Millisecond)
			holders.Add(-1)
			if found, _, err := storecmd.Release(e.ctx, e.store, c, driver.Release{}); err != nil || !found {
				e.Errorf("Release = %t, %v", found, err)
			}
		}
	})
	e.wantFree(key)
}

// testRaceNotices runs workers that wait for the notices of their grants. Each worker sends the notices that its
// commands return. The queue is often empty, so Acquires race with Releases.
func testRaceNotices(e *env) {
	const workers, rounds, limit = 4, 10, 2
	key := newID()
	listeners, claims := make([]*listener, workers), make([][]driver.Claim, workers)
	for i := range listeners {
		if listeners[i] = e.hears(); listeners[i] == nil {
			return
		}
		for j := range rounds {
			claims[i] = append(claims[i], e.weighted(key, listeners[i].session, int64((i+j)%3/2+1), limit))
		}
	}
	var held atomic.Int64
	together(workers, func(i int) {
		for j, c := range claims[i] {
			time.Sleep(time.Duration(i*j%5) * time.Millisecond)
			h, ok := e.await(listeners[i], c)
			if !ok {
				return
			}
			c.Token, c.NoneWaiting = h.token, h.alone
			if sum := held.Add(c.Weight); sum > limit {
				e.Errorf("the holders' weights add up to %d, more than the limit of %d", sum, limit)
			}
			time.Sleep(time.Millisecond)
			held.Add(-c.Weight)
			found, notices, err := storecmd.Release(e.ctx, e.store, c, driver.Release{})
			if err != nil || !found {
				e.Errorf("Release = %t, %v", found, err)
			}
			if err := e.store.Notify(e.ctx, notices); err != nil {
				e.Errorf("Notify(%+v): %v", notices, err)
			}
		}
	})
	e.wantFree(key)
}

// The type learnt describes what a session knows about the grant of its claim.
type learnt struct {
	token int64
	alone bool // the first reply had the grant, and nobody was in the queue
}

// await acquires c. If c is not granted at once, await waits for the notice of the grant, and repeats the request only
// if the listener receives another NoticeReady.
func (e *env) await(l *listener, c driver.Claim) (learnt, bool) {
	for ready := 0; ; {
		heard := l.heard()
		if n := count(heard, driver.NoticeReady); n > ready {
			s, notices, err := storecmd.Acquire(e.ctx, e.store, c, true, nil, e.far)
			if err == nil {
				err = e.store.Notify(e.ctx, notices)
			}
			if err != nil {
				e.Errorf("Acquire, Notify: %v", err)
				return learnt{}, false
			}
			if h, ok := s.Holder(c.ID); ok {
				return learnt{h.Token, ready == 0 && s.Waiting == 0}, true
			}
			ready = n
		}
		var grant driver.Notice
		if !l.wait(func(heard []driver.Notice) bool {
			i := slices.IndexFunc(heard, func(n driver.Notice) bool { return n.Type == driver.NoticeGrant && n.Claim == c.ID })
			if i >= 0 {
				grant = heard[i]
			}
			return i >= 0 || count(heard, driver.NoticeReady) > ready
		}) {
			e.Errorf("no notice for %s on key %q; received %+v", c.ID, c.Key, l.heard())
			return learnt{}, false
		}
		if grant.Claim != "" {
			return learnt{grant.Token, false}, true
		}
	}
}

// count returns how many notices of a type there are.
func count(notices []driver.Notice, t driver.NoticeType) (n int) {
	for _, o := range notices {
		if o.Type == t {
			n++
		}
	}
	return n
}

// testRaceRegister registers several sessions under the same id at the same time, as cloned machines could.
func testRaceRegister(e *env) {
	id := newID()
	errs := make([]error, 16)
	together(len(errs), func(i int) {
		_, errs[i] = e.store.Register(e.ctx, driver.Member{ID: id, TTL: long})
	})
	registered := 0
	for _, err := range errs {
		switch {
		case err == nil:
			registered++
		case !errors.Is(err, driver.ErrSessionExists):
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

// testRaceExpire calls Expire and Heartbeat for a lapsed session at the same time. Afterwards the session must
// either have expired for good or be alive for everybody.
func testRaceExpire(e *env) {
	for round := range 6 {
		const ttl = 60 * time.Millisecond
		id, at := e.sessionTTL(ttl)
		e.until(at.Add(ttl))
		var expired, beat atomic.Bool
		errs := make([]error, 16)
		together(len(errs), func(i int) {
			if i%2 == round%2 { // the goroutine started last often runs first
				left, err := e.store.Expire(e.ctx, id, false)
				if err == nil && left == 0 {
					expired.Store(true)
				}
				errs[i] = err
				return
			}
			wasExpired := expired.Load()
			_, err := e.store.Heartbeat(e.ctx, id, nil)
			if err == nil {
				beat.Store(true)
			} else if !errors.Is(err, driver.ErrSessionExpired) {
				errs[i] = err
			}
			if wasExpired && err == nil {
				e.Error("a heartbeat succeeded although it was sent after Expire had returned")
			}
		})
		if err := errors.Join(errs...); err != nil {
			e.Fatalf("Expire and Heartbeat at the same time: %v", err)
		}
		if expired.Load() {
			e.wantExpired(id)
		} else if !beat.Load() {
			e.Error("the session is neither expired nor alive")
		}
	}
}
