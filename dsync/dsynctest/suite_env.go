package dsynctest

import (
	"context"
	"crypto/rand"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/leasehold-go/leasehold/dsync"
)

const (
	// long is a TTL that does not end while a case runs, however slow a server.
	long = 10 * time.Minute

	// short is a TTL or lease whose end a case waits for.
	short = 800 * time.Millisecond

	// patience is how long a case waits for what should come at once.
	patience = 30 * time.Second
)

// An env is what a conformance case works with. Its methods end the case when a
// command returns an unexpected error, and check whatever State passes through
// them for what is always true. They are for one goroutine; what runs
// concurrently calls the store.
type env struct {
	testing.TB
	ctx    context.Context
	cancel context.CancelFunc
	store  dsync.Store
	far    time.Time // a notAfter that does not come while the case runs

	wg     *sync.WaitGroup          // what runs until ctx ends
	clock  string                   // a key that is never used
	claims map[string]int           // by session
	tokens map[string]*grantsOfAKey // by key

	published map[string]int64 // how many values, by claim
}

// grantsOfAKey are the grants of a key that were seen so far.
type grantsOfAKey struct {
	last    int64
	shrunk  bool // holders may weigh more than the limit, but nobody is granted meanwhile
	byClaim map[string]dsync.Holder
}

func newEnv(t testing.TB, store dsync.Store) *env {
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
	}
	e.far = e.now().Add(time.Hour)
	return e
}

// close ends what the case has started.
func (e *env) close() {
	e.cancel()
	e.wg.Wait()
}

// newID returns a name that nobody has used before.
func newID() string { return rand.Text() }

// session registers a session that does not lapse while the case runs.
func (e *env) session() string {
	e.Helper()
	id, _ := e.sessionTTL(long)
	return id
}

// sessionTTL registers a session and returns the time of its first heartbeat.
func (e *env) sessionTTL(ttl time.Duration) (id string, at time.Time) {
	e.Helper()
	id = newID()
	at, err := e.store.Register(e.ctx, dsync.Member{ID: id, TTL: ttl})
	if err != nil {
		e.Fatalf("Register of a new session: %v", err)
	}
	return id, at
}

// kill makes a session dead.
func (e *env) kill(session string) {
	e.Helper()
	if err := e.store.Unregister(e.ctx, session); err != nil {
		e.Fatalf("Unregister: %v", err)
	}
}

// claim returns a new exclusive claim.
func (e *env) claim(key, session string) dsync.Claim {
	return e.weighted(key, session, 1, 1)
}

// weighted returns a new claim of weight of limit.
func (e *env) weighted(key, session string, weight, limit int64) dsync.Claim {
	e.claims[session]++
	return dsync.Claim{
		Key:     key,
		ID:      fmt.Sprintf("%s.%d", session, e.claims[session]),
		Session: session,
		Kind:    dsync.KindMutex,
		Weight:  weight,
		Limit:   limit,
	}
}

// leased returns a new exclusive claim of a fixed lease.
func (e *env) leased(key, session string, lease time.Duration) dsync.Claim {
	c := e.claim(key, session)
	c.Lease = lease
	return c
}

// ask is Acquire without an error.
func (e *env) ask(c dsync.Claim, wait bool, notAfter time.Time, dead ...string) dsync.State {
	e.Helper()
	s, err := e.store.Acquire(e.ctx, c, wait, dead, notAfter)
	if err != nil {
		e.Fatalf("Acquire(%s, wait %t, dead %q): %v", c.ID, wait, dead, err)
	}
	e.check(c.Key, s, 8)
	return s
}

// acquire is an Acquire that waits.
func (e *env) acquire(c dsync.Claim, dead ...string) dsync.State {
	e.Helper()
	return e.ask(c, true, e.far, dead...)
}

// try is an Acquire that does not wait.
func (e *env) try(c dsync.Claim, dead ...string) dsync.State {
	e.Helper()
	return e.ask(c, false, e.far, dead...)
}

// hold is an acquire that must be granted.
func (e *env) hold(c dsync.Claim, dead ...string) dsync.Holder {
	e.Helper()
	s := e.acquire(c, dead...)
	h, ok := s.Holder(c.ID)
	if !ok {
		e.Fatalf("Acquire(%s, dead %q) was not granted: %+v", c.ID, dead, s)
	}
	return h
}

// queue is an acquire that must join the line at its end.
func (e *env) queue(c dsync.Claim) {
	e.Helper()
	s := e.acquire(c)
	if _, ok := s.Holder(c.ID); ok || s.Place == 0 || s.Place != s.Waiting {
		e.Fatalf("Acquire(%s): granted %t, place %d of %d, want it at the end of the line", c.ID, ok, s.Place, s.Waiting)
	}
}

// release is a Release that must find the claim.
func (e *env) release(c dsync.Claim) {
	e.Helper()
	e.releaseKeep(c, 0, true)
}

// releaseKeep is a Release without an error, by one who knows the token.
func (e *env) releaseKeep(c dsync.Claim, keep time.Duration, wantFound bool) {
	e.Helper()
	if h, ok := e.load(c.Key).Holder(c.ID); ok {
		c.Token = h.Token
	}
	found, err := e.store.Release(e.ctx, c, dsync.Outcome{Keep: keep})
	if err != nil || found != wantFound {
		e.Fatalf("Release(%s, keep %v) = %t, %v; want %t, no error", c.ID, keep, found, err, wantFound)
	}
}

// load is Load without an error.
func (e *env) load(key string) dsync.State {
	e.Helper()
	s, err := e.store.Load(e.ctx, key)
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

// member reads one session until ok says that the reading, which may be stale,
// is what is wanted.
func (e *env) member(id, want string, ok func(dsync.Member) bool) dsync.Member {
	e.Helper()
	for start := time.Now(); ; time.Sleep(20 * time.Millisecond) {
		m, _, err := e.store.Members(e.ctx, id)
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
