package dsynctest

import (
	"errors"
	"fmt"
	"time"

	"github.com/leasehold-go/leasehold/dsync"
)

// tokenCases test fencing tokens, sweepCases Sweep.
func tokenCases() []conformanceCase {
	return []conformanceCase{
		{name: "Token/GrowsOverEveryHandOver_B08", test: testTokenGrows},
		{name: "Token/LastOneStaysReadable", test: testTokenStays},
	}
}

func sweepCases() []conformanceCase {
	return []conformanceCase{
		{name: "Sweep/DeletesIdleKeys_B22", alone: true, test: testSweepIdleKeys},
		{name: "Sweep/LeavesKeysInUse_B22", alone: true, test: testSweepKeysInUse},
		{name: "Sweep/LeavesKeysThatCountTerms", alone: true, test: testSweepTerms},
		{name: "Sweep/LeavesSealedKeys", alone: true, test: testSweepSealed},
		{name: "Sweep/OfAWatchedKeyIsAChange", alone: true, test: testSweepIsAChange},
		{name: "Sweep/DeletesOldDeadSessions", alone: true, test: testSweepSessions},
		{name: "Sweep/LeavesWhatIsYoungerThanRetention", alone: true, test: testSweepRetention},
		{name: "Sweep/TokensGrowOn_B08", alone: true, test: testSweepTokens},
		{name: "Sweep/RoomStaysBehindOneThatYields", alone: true, test: testSweepRoom},
		{name: "Sweep/CursorPassesEveryRecord", alone: true, test: testSweepCursor},
		{name: "Sweep/CountsTheLiving", alone: true, test: testSweepCounts},
		{name: "Members/WithoutIDsAreAtMostAThousand", alone: true, test: testMembersMost},
	}
}

// sweep goes once through the whole store.
func (e *env) sweep(retention time.Duration) (alive int) {
	e.Helper()
	for cursor, n := "", 0; ; n++ {
		next, k, err := e.store.Sweep(e.ctx, cursor, retention)
		if err != nil {
			e.Fatalf("Sweep(%q, %v): %v", cursor, retention, err)
		}
		if next == "" {
			return k
		}
		if next == cursor || n > 100_000 {
			e.Fatalf("slice %d of Sweep goes on from %q to %q: it does not get on", n, cursor, next)
		}
		cursor = next
	}
}

// testTokenGrows takes a key over in every way there is: check, which sees each
// state, compares the tokens.
func testTokenGrows(e *env) {
	key, living := newID(), e.session()
	var last int64
	for i := range 24 {
		var c dsync.Claim
		var h dsync.Holder
		switch i % 4 {
		case 0: // after a release
			c = e.claim(key, living)
			h = e.hold(c)
			e.release(c)
		case 1: // by hand-over
			first := e.claim(key, living)
			c = e.claim(key, living)
			e.hold(first)
			e.queue(c)
			e.release(first)
			h, _ = e.load(key).Holder(c.ID)
			e.release(c)
		case 2: // from the dead
			session := e.session()
			e.hold(e.claim(key, session))
			e.kill(session)
			c = e.claim(key, living)
			h = e.hold(c, session)
			e.release(c)
		case 3: // from a lapsed lease
			e.until(e.hold(e.leased(key, living, time.Millisecond)).Until)
			c = e.claim(key, living)
			h = e.hold(c)
			e.release(c)
		}
		if h.Token < last+1024 {
			e.Fatalf("round %d: token %d after %d, want at least 1024 more", i, h.Token, last)
		}
		last = h.Token
	}
}

func testTokenStays(e *env) {
	c := e.claim(newID(), e.session())
	h := e.hold(c)
	e.release(c)
	if s := e.load(c.Key); s.Token != h.Token {
		e.Errorf("the free key's last token is %d, want %d", s.Token, h.Token)
	}
}

// used returns a key that was held, with others behind, and is free.
func (e *env) used(session string) (key string, token int64) {
	e.Helper()
	key = newID()
	holder, waiter := e.claim(key, session), e.claim(key, session)
	e.hold(holder)
	e.queue(waiter)
	e.release(holder)
	e.release(waiter)
	return key, e.load(key).Token
}

func testSweepIdleKeys(e *env) {
	key, _ := e.used(e.session())
	e.until(e.now().Add(short))
	e.sweep(short / 4)
	if s := e.load(key); s.Kind != "" || s.Token != 0 {
		e.Errorf("Sweep left the record of an idle key: %+v", s)
	}
}

func testSweepKeysInUse(e *env) {
	session := e.session()
	held, waiter := e.claim(newID(), session), e.claim(newID(), session)
	leased, kept := e.leased(newID(), session, long), e.claim(newID(), session)
	holder := e.claim(waiter.Key, session)
	e.hold(held)
	e.hold(holder)
	e.queue(waiter)
	e.hold(leased)
	e.hold(kept)
	e.releaseKeep(kept, long, true)
	e.until(e.now().Add(short))
	for _, retention := range []time.Duration{short / 4, 0} {
		e.sweep(retention)
		for _, c := range []dsync.Claim{held, holder, leased, kept} {
			e.wantHolders(e.load(c.Key), c)
		}
		e.wantLine(e.load(waiter.Key), waiter)
		if _, err := e.store.Heartbeat(e.ctx, session, nil); err != nil {
			e.Errorf("Heartbeat after Sweep: %v", err)
		}
		e.until(e.now().Add(5 * time.Millisecond))
	}
}

func testSweepTerms(e *env) {
	key, session := newID(), e.session()
	for term := int64(1); term <= 2; term++ {
		c := e.candidate(key, session)
		e.wantTerm(e.acquire(c), term)
		e.release(c)
		e.until(e.now().Add(short / 2))
		e.sweep(short / 8)
		e.wantTerm(e.load(key), term)
	}
	c := e.claim(key, session) // used as something else it does not forget either
	e.hold(c)
	e.release(c)
	e.until(e.now().Add(short / 2))
	e.sweep(short / 8)
	e.wantTerm(e.acquire(e.candidate(key, session)), 3)
}

// testSweepSessions looks for the records by Members: a session that Sweep has
// deleted is unknown.
func testSweepSessions(e *env) {
	living := e.session()
	buried, unregistered, tombstone := newID(), e.session(), newID()
	lapsed, at := e.sessionTTL(short / 4)
	if _, err := e.store.Bury(e.ctx, buried); err != nil {
		e.Fatalf("Bury: %v", err)
	}
	e.kill(unregistered)
	e.kill(tombstone)
	e.until(at.Add(short))
	e.until(e.now().Add(short))
	e.sweep(short / 4)

	gone := []string{buried, unregistered, tombstone, lapsed}
	for start := time.Now(); ; time.Sleep(20 * time.Millisecond) {
		m, _, err := e.store.Members(e.ctx, append(gone, living)...)
		if err != nil {
			e.Fatalf("Members: %v", err)
		}
		if len(m) == 1 && m[0].ID == living && !m[0].Dead {
			break
		}
		if time.Since(start) > patience/3 {
			e.Fatalf("after Sweep there are %+v; want only the living session %s", m, living)
		}
	}
	if _, err := e.store.Heartbeat(e.ctx, living, nil); err != nil {
		e.Errorf("Heartbeat of a living session after Sweep: %v", err)
	}
	if _, err := e.store.Heartbeat(e.ctx, lapsed, nil); err == nil {
		e.Error("Heartbeat of a lapsed session that Sweep deleted: no error")
	}
}

func testSweepRetention(e *env) {
	session, dead := e.session(), e.session()
	key, token := e.used(session)
	e.kill(dead)
	e.until(e.now().Add(short))
	e.sweep(time.Hour)
	if s := e.load(key); s.Token != token {
		e.Errorf("Sweep with an hour's retention: last token of a young key is %d, want %d", s.Token, token)
	}
	e.wantDead(dead)
}

// testSweepTokens sweeps right behind each grant, without any retention.
func testSweepTokens(e *env) {
	key, session := newID(), e.session()
	var last int64
	for i := range 12 {
		a, b := e.weighted(key, session, 1, 2), e.weighted(key, session, 1, 2)
		first, second := e.hold(a).Token, e.hold(b).Token
		if first < last+1024 || second < first+1024 {
			e.Fatalf("round %d: tokens %d and %d after %d, want each at least 1024 more", i, first, second, last)
		}
		last = second
		e.release(a)
		e.release(b)
		if i%3 == 2 {
			e.until(e.now().Add(10 * time.Millisecond)) // else the tokens are ahead of the clock
		}
		e.sweep(0)
	}
}

func testSweepCursor(e *env) {
	session := e.session()
	var claims []dsync.Claim
	for range 120 {
		claims = append(claims, e.claim(newID(), session))
	}
	const workers = 12
	errs := make([]error, workers)
	each := func(do func(dsync.Claim) error) {
		e.Helper()
		together(workers, func(i int) {
			for j := i; j < len(claims) && errs[i] == nil; j += workers {
				errs[i] = do(claims[j])
			}
		})
		if err := errors.Join(errs...); err != nil {
			e.Fatalf("one of %d keys: %v", len(claims), err)
		}
	}
	each(func(c dsync.Claim) error {
		_, err := e.store.Acquire(e.ctx, c, true, nil, e.far)
		return err
	})
	each(func(c dsync.Claim) error {
		_, err := e.store.Release(e.ctx, c, dsync.Outcome{})
		return err
	})
	e.until(e.now().Add(short))
	e.sweep(short / 4)
	each(func(c dsync.Claim) error {
		s, err := e.store.Load(e.ctx, c.Key)
		if err == nil && s.Token != 0 {
			err = fmt.Errorf("Sweep passed by an idle key: %+v", s)
		}
		return err
	})
}

func testSweepCounts(e *env) {
	before := e.sweep(time.Hour)
	var sessions []string
	for range 3 {
		sessions = append(sessions, e.session())
	}
	lapsed, at := e.sessionTTL(short)
	e.until(at.Add(short))
	if alive := e.sweep(time.Hour); alive > before+3 || alive < 3 {
		e.Errorf("%d sessions alive; there were %d, then came 3, and %s that lapsed; want from 3 to %d", alive, before, lapsed, before+3)
	}
	for _, id := range sessions {
		e.kill(id)
	}
	if alive := e.sweep(time.Hour); alive > before {
		e.Errorf("%d sessions alive after those that came died, want at most %d as before", alive, before)
	}
}
