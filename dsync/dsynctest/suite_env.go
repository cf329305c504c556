package dsynctest

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/leasehold-go/leasehold/dsync/driver"
	"github.com/leasehold-go/leasehold/internal/storecmd"
)

const (
	// long is a TTL that does not run out while a case runs, even if the server is slow.
	long = 10 * time.Minute

	// short is a TTL or a lease whose end a case waits for.
	short = 800 * time.Millisecond

	// patience is how long a case waits for something that should happen at once.
	patience = 30 * time.Second
)

// An env is the environment of a conformance case. Its methods end the case if a command returns an unexpected
// error, and check the invariants of every State. Only the goroutine of the case may call them; other goroutines
// must call the store directly.
type env struct {
	testing.TB
	ctx    context.Context
	cancel context.CancelFunc
	store  driver.Store
	far    time.Time // a notAfter that does not pass while the case runs

	wg     *sync.WaitGroup          // waits for goroutines that run until ctx ends
	clock  string                   // a key that is never used, for reading the clock
	claims map[string]int           // by session
	tokens map[string]*grantsOfAKey // by key

	published map[string]int64 // number of values published, by claim
	extends   int64            // number of the last Extend

	notices  []driver.Notice // returned by the last command
	left     bool            // Edited.Found of the last edit with Acquire
	seen     time.Time       // the store's clock in the last state
	before   time.Time       // the value of seen before the last command
	alone    map[string]bool // by claim: whether it was granted at once, with nobody waiting
	observed map[string]bool // keys that a listener of the case observes
}

// grantsOfAKey are the grants of a key that the case has seen.
type grantsOfAKey struct {
	last    int64
	shrunk  bool // set after a Resize: holders may weigh more than the limit, but nothing is granted until they fit
	byClaim map[string]driver.Holder
}

func newEnv(t testing.TB, store driver.Store) *env {
	ctx, cancel := context.WithTimeout(t.Context(), 2*patience)
	e := &env{
		TB:     t,
		ctx:    ctx,
		cancel: cancel,
		store:  store,
		wg:     new(sync.WaitGroup),
		clock:  newID(),
		claims: make(map[string]int),
		tokens: make(map[string]*grantsOfAKey),

		published: make(map[string]int64),
		extends:   1 << 60, // a store must not take numbers for doubles
		alone:     make(map[string]bool),
		observed:  make(map[string]bool),
	}
	e.far = e.now().Add(time.Hour)
	return e
}

// close ends the goroutines that the case has started.
func (e *env) close() {
	e.cancel()
	e.wg.Wait()
}

// newID returns a unique name.
func newID() string { return rand.Text() }

// session registers a session that does not lapse while the case runs.
func (e *env) session() string {
	e.Helper()
	id, _ := e.sessionTTL(long)
	return id
}

// sessionTTL registers a session, and returns its id and the time of its first heartbeat.
func (e *env) sessionTTL(ttl time.Duration) (id string, at time.Time) {
	e.Helper()
	id = newID()
	at, err := e.store.Register(e.ctx, driver.Member{ID: id, TTL: ttl})
	if err != nil {
		e.Fatalf("Register of a new session: %v", err)
	}
	return id, at
}

// expire expires a session.
func (e *env) expire(session string) {
	e.Helper()
	if left, err := e.store.Expire(e.ctx, session, true); left != 0 || err != nil {
		e.Fatalf("Expire by the owner = %v, %v; want 0, no error", left, err)
	}
}

// claim returns a new exclusive claim.
func (e *env) claim(key, session string) driver.Claim {
	return e.weighted(key, session, 1, 1)
}

// weighted returns a new claim with the given weight and limit.
func (e *env) weighted(key, session string, weight, limit int64) driver.Claim {
	e.claims[session]++
	return driver.Claim{
		Key:     key,
		ID:      fmt.Sprintf("%s.%d", session, e.claims[session]),
		Session: session,
		Kind:    driver.KindMutex,
		Weight:  weight,
		Limit:   limit,
	}
}

// leased returns a new exclusive claim with a fixed lease.
func (e *env) leased(key, session string, lease time.Duration) driver.Claim {
	c := e.claim(key, session)
	c.Lease = lease
	return c
}

// acquireAs sends an Acquire, which must not fail.
func (e *env) acquireAs(c driver.Claim, wait bool, notAfter time.Time, expired ...string) driver.State {
	e.Helper()
	return e.join(driver.Edit{Acquire: &driver.Acquire{Claim: c, Wait: wait, Expired: expired, NotAfter: notAfter}})
}

// join sends an edit with an Acquire, which must not fail.
func (e *env) join(edit driver.Edit) driver.State {
	e.Helper()
	before, c := e.seen, edit.Acquire.Claim
	done, err := e.store.Edit(e.ctx, edit)
	if err != nil {
		e.Fatalf("Acquire of %s, wait %t, expired %q: %v", c.ID, edit.Acquire.Wait, edit.Acquire.Expired, err)
	}
	s := done.State
	if _, asked := e.alone[c.ID]; !asked {
		_, held := s.Holder(c.ID)
		e.alone[c.ID] = held && s.Waiting == 0
	}
	e.check(c.Key, s, 8)
	e.left = done.Found
	e.noticed(c, before, done.Notices)
	return s
}

// acquire calls acquireAs with wait.
func (e *env) acquire(c driver.Claim, expired ...string) driver.State {
	e.Helper()
	return e.acquireAs(c, true, e.far, expired...)
}

// try calls acquireAs without wait.
func (e *env) try(c driver.Claim, expired ...string) driver.State {
	e.Helper()
	return e.acquireAs(c, false, e.far, expired...)
}

// hold acquires a claim that must be granted at once. If the claim has a lease, hold also extends it, which gives
// the hold an end.
func (e *env) hold(c driver.Claim, expired ...string) driver.Holder {
	e.Helper()
	s := e.acquire(c, expired...)
	h, ok := s.Holder(c.ID)
	if !ok {
		e.Fatalf("Acquire(%s, expired %q) was not granted: %+v", c.ID, expired, s)
	}
	if c.Lease > 0 && h.Until.IsZero() {
		return e.extend(c)
	}
	return h
}

// extend extends a claim that must hold its key.
func (e *env) extend(c driver.Claim) driver.Holder {
	e.Helper()
	h, err := e.extendAs(c)
	if err != nil {
		e.Fatalf("Extend(%s): %v", c.ID, err)
	}
	return h
}

// extendAs sends an Extend of c, with the token of c's hold if there is one.
func (e *env) extendAs(c driver.Claim) (driver.Holder, error) {
	e.Helper()
	if h, ok := e.load(c.Key).Holder(c.ID); ok {
		c.Token = h.Token
	}
	e.extends++
	return storecmd.Extend(e.ctx, e.store, c, e.extends)
}

// queue acquires a claim that must join the end of the queue.
func (e *env) queue(c driver.Claim) {
	e.Helper()
	s := e.acquire(c)
	if _, ok := s.Holder(c.ID); ok || s.Position == 0 || s.Position != s.Waiting {
		e.Fatalf("Acquire(%s): granted %t, position %d of %d, want it at the end of the queue", c.ID, ok, s.Position, s.Waiting)
	}
}

// release releases a claim that must hold its key or wait for it.
func (e *env) release(c driver.Claim) {
	e.Helper()
	e.releaseKeep(c, 0, true)
}

// releaseKeep sends a Release with Keep, which must not fail.
func (e *env) releaseKeep(c driver.Claim, keep time.Duration, wantFound bool) {
	e.Helper()
	if h, ok := e.load(c.Key).Holder(c.ID); ok {
		c.Token, c.NoneWaiting = h.Token, e.alone[c.ID]
	}
	e.releaseAs(c, driver.Release{Keep: keep}, wantFound)
}

// releaseAs sends a Release of c, with the other fields of o. The Release must not fail.
func (e *env) releaseAs(c driver.Claim, o driver.Release, wantFound bool) {
	e.Helper()
	before := e.seen
	found, notices, err := storecmd.Release(e.ctx, e.store, c, o)
	if err != nil || found != wantFound {
		e.Fatalf("Release(%s, keep %v, seal %d, successor %q) = %t, %v; want %t, no error", c.ID, o.Keep, o.Seal, o.Successor, found, err, wantFound)
	}
	e.noticed(c, before, notices)
}

// load calls Load, which must not fail.
func (e *env) load(key string) driver.State {
	e.Helper()
	s, err := e.store.Load(e.ctx, key, 1000)
	if err != nil {
		e.Fatalf("Load: %v", err)
	}
	e.check(key, s, 1000)
	return s
}

// now reads the store's clock.
func (e *env) now() time.Time {
	e.Helper()
	return e.load(e.clock).Now
}

// until waits until the store's clock has reached t.
func (e *env) until(t time.Time) {
	e.Helper()
	for {
		now := e.now()
		if !now.Before(t) {
			return
		}
		if t.Sub(now) > patience {
			e.Fatalf("the store's clock says %v, which is more than %v before %v", now, patience, t)
		}
		time.Sleep(t.Sub(now))
	}
}

// member reads a session until ok returns true, because a reading may be stale.
func (e *env) member(id, want string, ok func(driver.Member) bool) driver.Member {
	e.Helper()
	for start := time.Now(); ; time.Sleep(20 * time.Millisecond) {
		m, _, err := storecmd.Members(e.ctx, e.store, id)
		if err != nil {
			e.Fatalf("Members: %v", err)
		}
		if len(m) == 1 && m[0].ID == id && ok(m[0]) {
			return m[0]
		}
		if time.Since(start) > patience {
			e.Fatalf("Members(%s) = %+v; want one that %s", id, m, want)
		}
	}
}

// wantExpired checks that a session has expired and that nothing revives it. Commands that could themselves expire
// the session come last.
func (e *env) wantExpired(session string) {
	e.Helper()
	if _, err := e.store.Heartbeat(e.ctx, session, nil); !errors.Is(err, driver.ErrSessionExpired) {
		e.Errorf("Heartbeat of an expired session: error %v, want ErrSessionExpired", err)
	}
	for range 2 {
		if _, err := e.store.Register(e.ctx, driver.Member{ID: session, TTL: long}); !errors.Is(err, driver.ErrSessionExists) {
			e.Errorf("Register of an expired session: error %v, want ErrSessionExists", err)
		}
	}
	if err := storecmd.Unregister(e.ctx, e.store, session); err != nil {
		e.Errorf("Unregister of an expired session: %v", err)
	}
	if left, err := e.store.Expire(e.ctx, session, false); left != 0 || err != nil {
		e.Errorf("Expire of an expired session = %v, %v; want 0, no error", left, err)
	}
	e.member(session, "has expired", func(m driver.Member) bool { return m.Expired })
}

// wantHolders checks the holders, in the order of their grants.
func (e *env) wantHolders(s driver.State, want ...driver.Claim) {
	e.Helper()
	var got []string
	for _, h := range s.Holders {
		got = append(got, h.Claim)
	}
	if !slices.Equal(got, claimIDs(want)) {
		e.Fatalf("holders %q, want %q", got, claimIDs(want))
	}
}

// wantQueue checks the queue in a state from Load, or in the reply to a claim that does not wait. Such a reply shows at
// most 8 waiters.
func (e *env) wantQueue(s driver.State, want ...driver.Claim) {
	e.Helper()
	if got := ahead(s); s.Waiting != len(want) || s.Position != 0 || !slices.Equal(got, claimIDs(want)) {
		e.Fatalf("%d waiting, position %d, queue %q; want %d, 0, %q", s.Waiting, s.Position, got, len(want), claimIDs(want))
	}
}

// wantFree checks that nobody holds or waits for a key.
func (e *env) wantFree(key string) {
	e.Helper()
	s := e.load(key)
	e.wantHolders(s)
	e.wantQueue(s)
}

func ahead(s driver.State) []string {
	var ids []string
	for _, w := range s.WaitersAhead {
		ids = append(ids, w.Claim)
	}
	return ids
}

func claimIDs(claims []driver.Claim) []string {
	var ids []string
	for _, c := range claims {
		ids = append(ids, c.ID)
	}
	return ids
}

// check checks the invariants of a key's state. The state may show at most the given number of waiters. States must be
// checked in the order in which commands returned them.
func (e *env) check(key string, s driver.State, most int) {
	e.Helper()
	if s.Key != key {
		e.Errorf("state of key %q has Key %q", key, s.Key)
	}
	if s.Now.IsZero() {
		e.Errorf("state has no Now: %+v", s)
	}
	e.seen = s.Now
	if len(s.WaitersAhead) > most || len(s.WaitersAhead) > s.Waiting || s.Position > s.Waiting {
		e.Errorf("%d claims ahead of position %d of %d; want at most %d, and no more than there are", len(s.WaitersAhead), s.Position, s.Waiting, most)
	}
	g := e.tokens[key]
	if g == nil {
		g = &grantsOfAKey{byClaim: make(map[string]driver.Holder)}
		e.tokens[key] = g
	}
	var sum, last int64
	granted := false
	for _, h := range s.Holders {
		sum += h.Weight
		if h.Token <= last {
			e.Errorf("holders are not in the order of their grants: %+v", s.Holders)
		}
		last = h.Token
		before, known := g.byClaim[h.Claim]
		switch {
		case known && (h.Token != before.Token || !h.Since.Equal(before.Since)):
			e.Errorf("claim %s was granted with token %d at %v, now it reads %d, %v", h.Claim, before.Token, before.Since, h.Token, h.Since)
		case !known && h.Token < g.last+driver.TokenStep && g.last > 0:
			e.Errorf("claim %s was granted with token %d after token %d; want at least %d more", h.Claim, h.Token, g.last, driver.TokenStep)
		}
		granted = granted || !known
		g.byClaim[h.Claim] = h
		g.last = max(g.last, h.Token)
	}
	if len(s.Holders) > 0 && (sum > s.Limit && (granted || !g.shrunk) || last > s.Token) {
		e.Errorf("holders weigh %d of %d, last token %d of %d: %+v", sum, s.Limit, last, s.Token, s.Holders)
	}
}
