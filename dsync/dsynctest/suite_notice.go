package dsynctest

import (
	"errors"
	"slices"
	"time"

	"github.com/leasehold-go/leasehold/dsync/driver"
	"github.com/leasehold-go/leasehold/internal/storecmd"
)

// noticeCases test the notices of grants that commands return. Besides, env.noticed checks the returned notices in
// every case of the suite.
func noticeCases() []conformanceCase {
	return []conformanceCase{
		{name: "Notice/NoneWhereNobodyCanListen", test: testNoticeUnsupported},
	}
}

// granted returns the notice that c was granted.
func granted(c driver.Claim, crowded bool) driver.Notice {
	return driver.Notice{Type: driver.NoticeGrant, Session: c.Session, Key: c.Key, Claim: c.ID, Crowded: crowded}
}

// wakes returns the notice that tells c's session to request c again.
func wakes(c driver.Claim) driver.Notice {
	return driver.Notice{Type: driver.NoticeWake, Session: c.Session, Key: c.Key, Claim: c.ID}
}

// yields returns the notice that tells the holder c that others wait.
func yields(c driver.Claim) driver.Notice {
	return driver.Notice{Type: driver.NoticeYield, Session: c.Session, Key: c.Key, Claim: c.ID}
}

// revocation returns the notice that tells a session about its new revocation r.
func revocation(session string, r driver.Revocation) driver.Notice {
	return driver.Notice{Type: driver.NoticeRevoke, Session: session, Key: r.Key, Claim: r.Claim}
}

// change returns the notice that tells observers that a key may have changed.
func change(key string) driver.Notice {
	return driver.Notice{Type: driver.NoticeChange, Key: key}
}

// noticed records the notices that a command about c has returned, and checks that they are true. before is a time
// of the store's clock before the command.
func (e *env) noticed(c driver.Claim, before time.Time, notices []driver.Notice) {
	e.Helper()
	e.notices, e.before = notices, before
	if len(notices) == 0 {
		return
	}
	s := e.load(c.Key)
	for _, n := range notices {
		n.Address = 0
		truth := driver.Notice{Type: n.Type, Key: c.Key}
		known := false
		i := slices.IndexFunc(s.Holders, func(h driver.Holder) bool { return h.Claim == n.Claim })
		j := slices.IndexFunc(s.WaitersAhead, func(w driver.Waiter) bool { return w.Claim == n.Claim })
		switch {
		case n.Type == driver.NoticeGrant && i >= 0 && n.Claim != c.ID:
			h := s.Holders[i]
			known = true
			truth.Session, truth.Claim, truth.Token, truth.Crowded = h.Session, h.Claim, h.Token, s.Waiting > 0
			if s.Term > 0 {
				truth.Term = s.Term - int64(len(s.Holders)-1-i)
			}
		case n.Type == driver.NoticeYield && i >= 0:
			h := s.Holders[i]
			known = h.Yield && s.Waiting > 0
			truth.Session, truth.Claim = h.Session, h.Claim
		case n.Type == driver.NoticeWake && j >= 0:
			known = true
			truth.Session, truth.Claim = s.WaitersAhead[j].Session, s.WaitersAhead[j].Claim
		case n.Type == driver.NoticeWake && s.Sealed > 0:
			known = n.Session != "" && n.Claim != ""
			truth.Session, truth.Claim = n.Session, n.Claim
		case n.Type == driver.NoticeChange:
			known = e.observed[c.Key]
		}
		if !known || n != truth {
			e.Errorf("untrue notice %+v; the key's state is %+v", n, s)
		}
	}
}

// wantNotices checks which notices the last command has returned; env.noticed has already checked their tokens and
// terms. wantNotices tolerates any NoticeChange. It also tolerates the notice of another grant that is no older than
// the last state seen before the command.
func (e *env) wantNotices(want ...driver.Notice) {
	e.Helper()
	var got []driver.Notice
	for _, n := range e.notices {
		n.Token, n.Term, n.Address = 0, 0, 0
		got = append(got, n)
	}
	for _, n := range want {
		if !slices.Contains(got, n) {
			e.Fatalf("no notice %+v; got %+v", n, got)
		}
	}
	for _, n := range got {
		if slices.Contains(want, n) || n.Type == driver.NoticeChange ||
			n.Type == driver.NoticeGrant && !e.tokens[n.Key].byClaim[n.Claim].Since.Before(e.before) {
			continue
		}
		e.Fatalf("notice %+v, which is not due; want %+v", n, want)
	}
}

// testNoticeUnsupported tests stores whose Listen returns ErrUnsupported.
func testNoticeUnsupported(e *env) {
	key, session := newID(), e.session()
	if l := e.listen(session, key, newID()); l != nil {
		return
	}
	clear(e.observed)
	holder, first, second, third := e.yielding(key, session, 1, 1), e.claim(key, session), e.claim(key, session), e.claim(key, session)
	e.hold(holder)
	for _, step := range []struct {
		what string
		do   func()
	}{
		{"Acquire", func() { e.queue(first) }},
		{"Publish", func() { e.publish(holder, []byte("value")) }},
		{"Revoke", func() { e.revoke(session, driver.Revocation{Key: key, Claim: holder.ID}) }},
		{"Acquire of the second in the queue", func() { e.queue(second) }},
		{"Acquire of the third", func() { e.queue(third) }},
		{"Release", func() { e.release(holder) }},
		{"Resize", func() { e.resize(key, 1, 2) }},
		{"Release with Keep", func() { e.releaseKeep(second, long, true) }},
		{"Release with Seal", func() { e.seal(first, nil, true) }},
	} {
		step.do()
		if len(e.notices) > 0 {
			e.Errorf("%s returns notices %+v, but nobody can listen", step.what, e.notices)
		}
	}
	if err := e.store.Notify(e.ctx, nil); err != nil && !errors.Is(err, errors.ErrUnsupported) {
		e.Errorf("Notify of nothing: %v", err)
	}
}

// testSealRace seals a key while others acquire it. Each of these claims must either join the queue or get the result
// in the reply. In the end, the queue is empty.
func testSealRace(e *env) {
	for range 3 {
		key, session := newID(), e.session()
		holder := e.claim(key, session)
		token := e.hold(holder).Token
		claims, states := make([]driver.Claim, 15), make([]driver.State, 15)
		for i := range claims {
			claims[i] = e.claim(key, session)
		}
		errs := make([]error, len(claims)+1)
		together(len(errs), func(i int) {
			if i == len(claims) {
				_, _, errs[i] = storecmd.Release(e.ctx, e.store, holder, driver.Release{Seal: 1, Result: []byte("result")})
				return
			}
			states[i], _, errs[i] = storecmd.Acquire(e.ctx, e.store, claims[i], true, nil, e.far)
		})
		if err := errors.Join(errs...); err != nil {
			e.Fatalf("Acquire while the key is sealed: %v", err)
		}
		for i, s := range states {
			if _, ok := s.Holder(claims[i].ID); ok || s.Sealed > 0 == (s.Position > 0) {
				e.Errorf("granted %t, sealed up to %d, position %d; want it waiting or sealed", ok, s.Sealed, s.Position)
			}
		}
		e.wantSealed(e.load(key), token, []byte("result"))
		e.wantFree(key)
	}
}
