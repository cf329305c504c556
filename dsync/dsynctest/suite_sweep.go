package dsynctest

import (
	"errors"
	"fmt"
	"time"

	"github.com/leasehold-go/leasehold/dsync/driver"
	"github.com/leasehold-go/leasehold/internal/storecmd"
)

// sweepCases test Sweep.
func sweepCases() []conformanceCase {
	return []conformanceCase{
		{name: "Sweep/DeletesIdleKeys_B22", alone: true, test: testSweepIdleKeys},
		{name: "Sweep/LeavesKeysInUse_B22", alone: true, test: testSweepKeysInUse},
		{name: "Sweep/LeavesKeysThatCountTerms", alone: true, test: testSweepTerms},
		{name: "Sweep/LeavesSealedKeys", alone: true, test: testSweepSealed},
		{name: "Sweep/DeletesForgottenKeys", alone: true, test: testSweepForgotten},
		{name: "Sweep/ObservedKeysStayObserved", alone: true, test: testSweepObserved},
		{name: "Sweep/DeletesOldExpiredSessions", alone: true, test: testSweepSessions},
		{name: "Sweep/LeavesWhatIsYoungerThanRetention", alone: true, test: testSweepRetention},
		{name: "Sweep/TokensGrowOn_B08", alone: true, test: testSweepTokens},
		{name: "Sweep/RoomStaysBehindOneThatYields", alone: true, test: testSweepRoom},
		{name: "Sweep/PassesEveryRecordAndReports", alone: true, test: testSweepRounds},
		{name: "Sweep/OfAnEarlierTurnChangesNothing", alone: true, test: testSweepStale},
		{name: "Sweep/OneOfManyTakesTheTurn", alone: true, test: testSweepTogether},
		{name: "Members/WithoutIDsAreAtMostAThousand", alone: true, test: testMembersMost},
	}
}

// sweepState reads how far sweeping has come. It sends a Sweep for a turn that never existed, which changes
// nothing.
func (e *env) sweepState() driver.SweepState {
	e.Helper()
	st, err := e.store.Sweep(e.ctx, "nobody", driver.SweepState{Turn: -1}, 0)
	if err != nil {
		e.Fatalf("Sweep of turn -1: %v", err)
	}
	return st
}

// sweepSlice sweeps the next slice.
func (e *env) sweepSlice(last driver.SweepState, retention time.Duration) driver.SweepState {
	e.Helper()
	by := newID()
	st, err := e.store.Sweep(e.ctx, by, last, retention)
	if err != nil {
		e.Fatalf("Sweep of turn %d after %q: %v", last.Turn, last.After, err)
	}
	if st.Turn != last.Turn+1 || st.By != by {
		e.Fatalf("Sweep of turn %d by %s: turn %d by %q, want the next by itself", last.Turn, by, st.Turn, st.By)
	}
	return st
}

// sweepRest sweeps the rest of the current round, or a whole round if none has begun.
func (e *env) sweepRest(retention time.Duration) driver.SweepState {
	e.Helper()
	st := e.sweepState()
	for n := 0; ; n++ {
		after := st.After
		st = e.sweepSlice(st, retention)
		if st.After == "" {
			return st
		}
		if st.After == after || n > 100_000 {
			e.Fatalf("slice %d of a round goes from %q to %q: sweeping makes no progress", n, after, st.After)
		}
	}
}

// sweep sweeps the whole store once.
func (e *env) sweep(retention time.Duration) {
	e.Helper()
	if e.sweepState().After != "" {
		e.sweepRest(retention)
	}
	e.sweepRest(retention)
}

// used returns a free key, which has had a holder and a waiter, and the key's last token.
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
		for _, c := range []driver.Claim{held, holder, leased, kept} {
			e.wantHolders(e.load(c.Key), c)
		}
		e.wantQueue(e.load(waiter.Key), waiter)
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
	c := e.claim(key, session) // the key keeps its term when it is used as another kind
	e.hold(c)
	e.release(c)
	e.until(e.now().Add(short / 2))
	e.sweep(short / 8)
	e.wantTerm(e.acquire(e.candidate(key, session)), 3)
}

func testSweepForgotten(e *env) {
	once, election, session := newID(), newID(), e.session()
	c := e.once(once, session)
	e.hold(c)
	e.seal(c, nil, true)
	c = e.candidate(election, session)
	e.hold(c)
	e.release(c)
	for _, key := range []string{once, election} {
		e.forget(key, e.load(key).Token, true)
	}
	e.until(e.now().Add(short))
	e.sweep(short / 4)
	for _, key := range []string{once, election} {
		if s := e.load(key); s.Kind != "" || s.Token != 0 {
			e.Errorf("Sweep left the record of a forgotten key: %+v", s)
		}
	}
}

// testSweepSessions uses Members to find out which sessions Sweep has deleted.
func testSweepSessions(e *env) {
	living := e.session()
	expired, unregistered, tombstone := newID(), e.session(), newID()
	lapsed, at := e.sessionTTL(short / 4)
	if _, err := e.store.Expire(e.ctx, expired, false); err != nil {
		e.Fatalf("Expire: %v", err)
	}
	e.expire(unregistered)
	e.expire(tombstone)
	e.until(at.Add(short))
	e.until(e.now().Add(short))
	e.sweep(short / 4)

	gone := []string{expired, unregistered, tombstone, lapsed}
	for start := time.Now(); ; time.Sleep(20 * time.Millisecond) {
		m, _, err := storecmd.Members(e.ctx, e.store, append(gone, living)...)
		if err != nil {
			e.Fatalf("Members: %v", err)
		}
		if len(m) == 1 && m[0].ID == living && !m[0].Expired {
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
		e.Error("Heartbeat of a lapsed session that Sweep deleted returned no error")
	}
}

func testSweepRetention(e *env) {
	session, expired := e.session(), e.session()
	key, token := e.used(session)
	e.expire(expired)
	e.until(e.now().Add(short))
	e.sweep(time.Hour)
	if s := e.load(key); s.Token != token {
		e.Errorf("Sweep with an hour's retention: last token of a young key is %d, want %d", s.Token, token)
	}
	e.wantExpired(expired)
}

// testSweepTokens runs several rounds. In each round it holds a key twice, releases both claims, and then sweeps
// without retention.
func testSweepTokens(e *env) {
	key, session := newID(), e.session()
	var last int64
	for i := range 12 {
		a, b := e.weighted(key, session, 1, 2), e.weighted(key, session, 1, 2)
		first, second := e.hold(a).Token, e.hold(b).Token
		if first < last+driver.TokenStep || second < first+driver.TokenStep {
			e.Fatalf("round %d: tokens %d and %d after %d, want each at least %d more", i, first, second, last, driver.TokenStep)
		}
		last = second
		e.release(a)
		e.release(b)
		if i%3 == 2 {
			e.until(e.now().Add(10 * time.Millisecond)) // otherwise the tokens would run ahead of the clock
		}
		e.sweep(0)
	}
}

// many makes more idle keys than fit into two slices, and returns their claims.
func (e *env) many(session string) (claims []driver.Claim) {
	e.Helper()
	for len(claims) < 2400 {
		var more []driver.Claim
		for range 120 {
			more = append(more, e.claim(newID(), session))
		}
		e.each(more, func(c driver.Claim) error {
			if _, _, err := storecmd.Acquire(e.ctx, e.store, c, true, nil, e.far); err != nil {
				return err
			}
			_, _, err := storecmd.Release(e.ctx, e.store, c, driver.Release{})
			return err
		})
		claims = append(claims, more...)
		if e.sweepState().After != "" {
			e.sweepRest(time.Hour)
		}
		if st := e.sweepSlice(e.sweepState(), time.Hour); st.After != "" && e.sweepSlice(st, time.Hour).After != "" {
			return claims
		}
	}
	e.Fatalf("two slices of Sweep have more records than the %d keys; a slice may have at most 1,000", len(claims))
	return nil
}

// each calls do for many claims, a few at a time.
func (e *env) each(claims []driver.Claim, do func(driver.Claim) error) {
	e.Helper()
	const workers = 12
	errs := make([]error, workers)
	together(workers, func(i int) {
		for j := i; j < len(claims) && errs[i] == nil; j += workers {
			errs[i] = do(claims[j])
		}
	})
	if err := errors.Join(errs...); err != nil {
		e.Fatalf("one of %d keys: %v", len(claims), err)
	}
}

// testSweepRounds checks what Sweep does and reports in two rounds, each of several slices. The first round deletes
// nothing; the second deletes the records that the case has created.
func testSweepRounds(e *env) {
	claims := e.many(e.session())
	made := int64(len(claims))
	e.until(e.now().Add(short))
	for _, round := range []struct {
		retention time.Duration
		deleted   int64 // at least
	}{{time.Hour, 0}, {short / 4, made}} {
		if e.sweepState().After != "" {
			e.sweepRest(time.Hour)
		}
		var seen, deleted int64
		last := e.sweepState()
		for first := true; first || last.After != ""; first = false {
			before := e.now()
			st := e.sweepSlice(last, round.retention)
			seen, deleted = seen+st.Seen, deleted+st.Deleted
			if st.At.Before(before) || st.At.After(e.now()) || !st.Now.Equal(st.At) {
				e.Errorf("a slice was swept at %v and its state read at %v; want the same time, from %v on", st.At, st.Now, before)
			}
			if st.After != "" && (st.Round != seen || st.LastRound != last.LastRound) {
				e.Errorf("within a round: %d seen in it and %d in the last, want %d and still %d", st.Round, st.LastRound, seen, last.LastRound)
			}
			if st.After == "" && (st.Round != 0 || st.LastRound != seen) {
				e.Errorf("after a round: %d seen in the next round and %d in this one, want 0 and %d", st.Round, st.LastRound, seen)
			}
			if st.Seen > 1000 || st.Deleted > st.Seen {
				e.Errorf("%d deleted of %d seen in one slice; want no more than were seen, and at most 1,000", st.Deleted, st.Seen)
			}
			last = st
		}
		if now := e.sweepState(); now.Turn != last.Turn || now.By != last.By || !now.At.Equal(last.At) || now.LastRound != last.LastRound || now.Now.Before(last.Now) {
			e.Errorf("read later: %+v, want %+v", now, last)
		}
		if deleted < round.deleted || (round.deleted == 0 && deleted > 0) || seen < made {
			e.Errorf("with retention %v a round saw %d and deleted %d records; want at least %d, and %d", round.retention, seen, deleted, made, round.deleted)
		}
		made = 0
	}
	e.each(claims, func(c driver.Claim) error {
		s, err := e.store.Load(e.ctx, c.Key, 1000)
		if err == nil && s.Token != 0 {
			err = fmt.Errorf("Sweep did not delete the record of an idle key: %+v", s)
		}
		return err
	})
}

// testSweepStale sweeps with an outdated state, like a process that was frozen or whose request arrives late.
func testSweepStale(e *env) {
	stale := e.sweepState()
	e.sweepRest(time.Hour)
	key, token := e.used(e.session())
	e.until(e.now().Add(short))
	now := e.sweepState()
	for _, turn := range []int64{stale.Turn, now.Turn - 1, now.Turn + 1} {
		last := now
		last.Turn = turn
		st, err := e.store.Sweep(e.ctx, "late", last, short/4)
		if err != nil {
			e.Fatalf("Sweep of turn %d: %v", turn, err)
		}
		if st.Turn != now.Turn || st.By != now.By || st.After != now.After || !st.At.Equal(now.At) || st.Seen != now.Seen || st.LastRound != now.LastRound {
			e.Errorf("Sweep of turn %d returned %+v, want the current state: %+v", turn, st, now)
		}
	}
	if s := e.load(key); s.Token != token {
		e.Errorf("a Sweep of the wrong turn deleted a key: %+v", s)
	}
	e.sweepSlice(now, time.Hour)
}

// testSweepTogether sweeps many times concurrently with the same state.
func testSweepTogether(e *env) {
	const n = 20
	for range 5 {
		last := e.sweepState()
		states, errs := make([]driver.SweepState, n), make([]error, n)
		together(n, func(i int) {
			states[i], errs[i] = e.store.Sweep(e.ctx, fmt.Sprint("sweeper ", i), last, time.Hour)
		})
		if err := errors.Join(errs...); err != nil {
			e.Fatalf("%d concurrent Sweeps: %v", n, err)
		}
		now := e.sweepState()
		if now.Turn != last.Turn+1 {
			e.Errorf("after %d Sweeps of turn %d the turn is %d, want the next", n, last.Turn, now.Turn)
		}
		for i, st := range states {
			if st.Turn != now.Turn || st.By != now.By || st.After != now.After {
				e.Errorf("sweeper %d was given turn %d by %q, after %q; want %d by %q, after %q", i, st.Turn, st.By, st.After, now.Turn, now.By, now.After)
			}
		}
	}
}

// forget sends a Forget, which must not fail.
func (e *env) forget(key string, token int64, want bool) {
	e.Helper()
	before := e.seen
	forgot, notices, err := storecmd.Forget(e.ctx, e.store, key, token)
	if err != nil || forgot != want {
		e.Fatalf("Forget(%d) = %t, %v; want %t", token, forgot, err, want)
	}
	e.noticed(driver.Claim{Key: key}, before, notices)
}

// once returns a new claim of KindOnce.
func (e *env) once(key, session string) driver.Claim {
	c := e.claim(key, session)
	c.Kind = driver.KindOnce
	return c
}
