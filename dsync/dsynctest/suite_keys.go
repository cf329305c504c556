package dsynctest

import (
	"errors"
	"slices"
	"strings"
	"time"

	"github.com/leasehold-go/leasehold/dsync/driver"
	"github.com/leasehold-go/leasehold/internal/storecmd"
)

// keysCases test Keys.
func keysCases() []conformanceCase {
	return []conformanceCase{
		{name: "Keys/WithThatPrefix", test: testKeysPrefix},
		{name: "Keys/InTheOrderOfTheirBytes", test: testKeysOrder},
		{name: "Keys/AfterAndUpToN", test: testKeysPages},
		{name: "Keys/AsLoadHasThem", test: testKeysStates},
		{name: "Keys/WithoutPrefixAreAll", test: testKeysAll},
		{name: "Keys/AtMostAThousand", test: testKeysMost},
		{name: "Keys/ThoseThatAreNamed", test: testKeysNamed},
		{name: "Keys/WhatASessionHolds", test: testKeysOfSession},
	}
}

// keys calls Keys, which must not fail.
func (e *env) keys(prefix, after string, n int) []driver.State {
	e.Helper()
	states, err := e.store.Keys(e.ctx, driver.KeyQuery{Prefix: prefix, After: after, Limit: n})
	if err != nil {
		e.Fatalf("Keys(%q, %q, %d): %v", prefix, after, n, err)
	}
	if len(states) > min(n, 1000) {
		e.Fatalf("Keys(%q, %q, %d) has %d states", prefix, after, n, len(states))
	}
	for _, s := range states {
		if s.Key <= after || !strings.HasPrefix(s.Key, prefix) || s.Kind == "" {
			e.Fatalf("Keys(%q, %q, %d) has key %q of kind %q", prefix, after, n, s.Key, s.Kind)
		}
		e.check(s.Key, s, 8)
		after = s.Key
	}
	return states
}

// key returns the state of a key as Keys shows it.
func (e *env) key(key string) driver.State {
	e.Helper()
	states := e.keys(key, "", 1)
	if len(states) != 1 || states[0].Key != key {
		e.Fatalf("Keys(%q) has %d states, want one", key, len(states))
	}
	return states[0]
}

// wantKeys checks which keys Keys returns for a query with the given Prefix, After and Limit.
func (e *env) wantKeys(prefix, after string, n int, want ...string) {
	e.Helper()
	var got []string
	for _, s := range e.keys(prefix, after, n) {
		got = append(got, s.Key)
	}
	if !slices.Equal(got, want) {
		e.Fatalf("Keys(%q, %q, %d) = %q, want %q", prefix, after, n, got, want)
	}
}

// specials returns strings that a query language could misinterpret when a prefix ends with them.
func specials() []string {
	return []string{
		".", "*", "+", "?", "^", "$", "|", "(", ")", "[", "]", "{", "}", `\`, "%", "_", "'", `"`, "/", "$$NOW", " ", "\n", "\x01", "#",
		"é", "k", "K", "\uffff", "\U0010ffff", ".*", "[a-z]", `\E`, "k/", "s/",
	}
}

func testKeysPrefix(e *env) {
	session, base := e.session(), newID()
	e.wantKeys(base, "", 100)
	e.hold(e.claim(base+"yx", session)) // base+"." as a pattern would match this, too
	e.hold(e.claim("x"+base, session))
	all := []string{base + "yx"}
	for _, special := range specials() {
		all = append(all, base+special+"\u2603x")
		e.hold(e.claim(base+special+"\u2603x", session))
	}
	slices.Sort(all)
	e.wantKeys(base, "", 1000, all...)
	for _, special := range specials() {
		var want []string
		for _, other := range specials() {
			if key := base + other + "\u2603x"; strings.HasPrefix(key, base+special) {
				want = append(want, key)
			}
		}
		slices.Sort(want)
		e.wantKeys(base+special, "", 100, want...)
	}
	e.wantKeys(base+"yx", "", 100, base+"yx") // a whole key as the prefix
	e.wantKeys(base+"yxx", "", 100)
	e.wantKeys(session, "", 100) // sessions are not keys
	e.wantKeys("s/"+session, "", 100)
}

func testKeysOrder(e *env) {
	session, base := e.session(), newID()
	keys := []string{base}
	for _, s := range append(specials(), "", "a", "A", "Z", "z", "aa", "a a", "1", "10", "2", "e\u0301", "ß", "\x7f", "\ue000", "\U0001f512") {
		if !slices.Contains(keys, base+s) {
			keys = append(keys, base+s)
		}
	}
	for _, key := range keys {
		e.hold(e.claim(key, session))
	}
	slices.Sort(keys) // by bytes
	e.wantKeys(base, "", 1000, keys...)
	for i, key := range keys {
		e.wantKeys(base, key, 1000, keys[i+1:]...)
	}
}

func testKeysPages(e *env) {
	session, base := e.session(), newID()
	var keys []string
	for i := range 7 {
		keys = append(keys, base+string(rune('a'+2*i)))
		e.hold(e.claim(keys[i], session))
	}
	e.hold(e.claim("\x01"+base, session)) // this key has another prefix, and comes before all others
	e.wantKeys(base, "", 0)
	for n := 1; n <= 8; n++ {
		for i := range keys {
			e.wantKeys(base, keys[i], n, keys[i+1:min(i+1+n, len(keys))]...)
		}
		e.wantKeys(base, "", n, keys[:min(n, len(keys))]...)
	}
	e.wantKeys(base, base+"d", 2, keys[2:4]...) // the query's After need not be a key
	e.wantKeys(base, "\x01", 2, keys[:2]...)
	e.wantKeys(base, base, 2, keys[:2]...)
	e.wantKeys(base, base+"z", 2)
	e.wantKeys(base, "\U0010ffff", 2)
	e.wantKeys(base, "", 1_000_000, keys...)
}

func testKeysStates(e *env) {
	session, base := e.session(), newID()
	leader := e.candidate(base+"1", session)
	e.hold(leader)
	e.publish(leader, []byte("value"))
	shared, leased := e.weighted(base+"2", session, 2, 3), e.weighted(base+"2", e.session(), 1, 3)
	shared.Yield, leased.Lease = true, long
	e.hold(shared)
	e.hold(leased)
	var queue []driver.Claim
	for i := range 12 {
		c := e.weighted(base+"2", session, int64(i%3+1), 3)
		e.queue(c)
		queue = append(queue, c)
	}
	sealed := e.claim(base+"3", session)
	e.hold(sealed)
	e.seal(sealed, nil, true)

	before := e.now()
	states := e.keys(base, "", 10)
	after := e.now()
	if len(states) != 3 {
		e.Fatalf("Keys has %d states, want 3", len(states))
	}
	for _, got := range states {
		want := e.load(got.Key)
		if got.Now.Before(before) || got.Now.After(after) {
			e.Errorf("Now = %v, want from %v to %v", got.Now, before, after)
		}
		if got.Kind != want.Kind || got.Limit != want.Limit || got.Token != want.Token || got.Term != want.Term || got.Sealed != want.Sealed ||
			got.Waiting != want.Waiting || got.Position != 0 || !slices.Equal(got.WaitersAhead, want.WaitersAhead[:min(8, len(want.WaitersAhead))]) {
			e.Errorf("Keys returned %+v,\nLoad %+v", got, want)
		}
		e.wantValue(got, want.Value)
		same := func(a, b driver.Holder) bool {
			times := a.Since.Equal(b.Since) && a.Until.Equal(b.Until)
			a.Since, a.Until, b.Since, b.Until = before, before, before, before
			return times && a == b
		}
		if !slices.EqualFunc(got.Holders, want.Holders, same) {
			e.Errorf("Keys returned holders %+v,\nLoad %+v", got.Holders, want.Holders)
		}
	}
	if s := states[1]; s.Waiting != 12 || !slices.Equal(ahead(s), claimIDs(queue[:8])) {
		e.Errorf("%d waiting, the first %q; want 12, %q", s.Waiting, ahead(s), claimIDs(queue[:8]))
	}
}

// testKeysAll reads all existing keys, including those of other cases.
func testKeysAll(e *env) {
	session := e.session()
	mine := map[string]bool{newID(): true, "a" + newID(): true, "\U0010ffff" + newID(): true, "\x01" + newID(): true, "s/" + newID(): true, "k/" + newID(): true}
	for key := range mine {
		e.hold(e.claim(key, session))
	}
	for after := ""; ; {
		// Other cases change their keys concurrently, so little can be checked about those.
		states, err := e.store.Keys(e.ctx, driver.KeyQuery{After: after, Limit: 1000})
		if err != nil {
			e.Fatalf("Keys of no prefix: %v", err)
		}
		for _, s := range states {
			if s.Key <= after || s.Kind == "" || strings.Contains(s.Key, session) {
				e.Fatalf("Keys of no prefix has %+v after %q, with session %s", s, after, session)
			}
			delete(mine, s.Key)
			after = s.Key
		}
		if len(states) < 1000 {
			break
		}
	}
	if len(mine) > 0 {
		e.Errorf("Keys of no prefix lacks %v", mine)
	}
}

func testKeysMost(e *env) {
	const n, workers = 1010, 16
	session, base := e.session(), newID()
	var claims []driver.Claim
	for range n {
		claims = append(claims, e.claim(base+newID(), session))
	}
	errs := make([]error, workers)
	together(workers, func(w int) {
		for i := w; i < n && errs[w] == nil; i += workers {
			_, _, errs[w] = storecmd.Acquire(e.ctx, e.store, claims[i], true, nil, e.far)
		}
	})
	if err := errors.Join(errs...); err != nil {
		e.Fatalf("one of %d keys: %v", n, err)
	}
	for _, most := range []int{1000, n, 1_000_000} {
		first := e.keys(base, "", most)
		if len(first) != 1000 {
			e.Fatalf("Keys(%d) of %d has %d, want 1,000", most, n, len(first))
		}
		if rest := e.keys(base, first[999].Key, most); len(rest) != n-1000 {
			e.Fatalf("after the first 1,000 of %d keys, Keys has %d; want the rest", n, len(rest))
		}
	}
}

// named calls Keys with q, which must not fail.
func (e *env) named(q driver.KeyQuery) []driver.State {
	e.Helper()
	states, err := e.store.Keys(e.ctx, q)
	if err != nil {
		e.Fatalf("Keys(%+v): %v", q, err)
	}
	return states
}

func testKeysNamed(e *env) {
	session, base := e.session(), newID()
	var keys, want []string
	for _, special := range append(specials(), "a", "") {
		keys = append(keys, base+special+"x")
	}
	slices.Sort(keys)
	for i, key := range keys {
		if i%3 > 0 {
			e.hold(e.claim(key, session))
			want = append(want, key)
		}
	}
	slices.Reverse(keys)
	states := e.named(driver.KeyQuery{Keys: keys})
	var got []string
	for _, s := range states {
		got = append(got, s.Key)
		e.check(s.Key, s, 8)
		if len(s.Holders) != 1 || s.Holders[0].Session != session || s.Kind != driver.KindMutex || s.Token != s.Holders[0].Token {
			e.Errorf("Keys by name returned %+v, want a mutex held by the session", s)
		}
	}
	if !slices.Equal(got, want) {
		e.Errorf("Keys by name = %q, want those that have a record, %q", got, want)
	}
}

func testKeysOfSession(e *env) {
	session, base := e.session(), newID()
	shared, released, other, none := base+"1", base+"2", base+"3", base+"4"
	a, b, theirs, waits := e.weighted(shared, session, 1, 4), e.weighted(shared, session, 2, 4), e.weighted(shared, e.session(), 1, 4), e.weighted(shared, session, 1, 4)
	b.Lease = time.Minute
	first, second := e.hold(a), e.hold(b)
	e.hold(theirs)
	e.queue(waits)
	gone := e.claim(released, session)
	e.hold(gone)
	e.release(gone)
	e.hold(e.claim(other, e.session()))
	states := e.named(driver.KeyQuery{Keys: []string{shared, released, other, none}, Session: session})
	for _, s := range states {
		switch {
		case s.Key == none:
			e.Errorf("Keys has %+v, which has no record", s)
		case s.Key != shared && len(s.Holders) > 0:
			e.Errorf("Keys has %+v, which the session does not hold", s)
		case s.Key == shared:
			want := []driver.Holder{
				{Claim: a.ID, Session: session, Token: first.Token},
				{Claim: b.ID, Session: session, Token: second.Token, Until: second.Until},
			}
			if !slices.Equal(s.Holders, want) {
				e.Errorf("Keys of the session: holders %+v, want %+v", s.Holders, want)
			}
		}
	}
	if !slices.ContainsFunc(states, func(s driver.State) bool { return s.Key == shared }) {
		e.Errorf("Keys lacks what the session holds: %+v", states)
	}
}
