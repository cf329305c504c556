package program

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"github.com/leasehold-go/leasehold/dsync/driver"
	"github.com/leasehold-go/leasehold/dsync/dsynctest"
)

// A server is the store of a World in memory. In a program with Final it says State.Final as package mongo does.
type server struct {
	*dsynctest.Memory
	says bool // says State.Final

	mu       sync.Mutex
	final    map[request]bool // requests whose replies were final
	unsure   map[string]bool  // claims with a request whose reply was not final; other claims need no Discard
	needless []string         // claims that were discarded without need

	former atomic.Pointer[former] // nil: there was no fail-over
}

func newServer(p Program) *server {
	return &server{Memory: dsynctest.NewMemory(), says: p.Final, final: make(map[request]bool), unsure: make(map[string]bool)}
}

// A request identifies a request to acquire a key and its copies.
type request struct {
	claim    string
	notAfter time.Time
	repeated bool
}

// Edit implements [driver.Store]. A copy of a request whose reply was final never makes its claim join again, because
// package mongo sent a command that can't: a short one or a poll.
func (s *server) Edit(ctx context.Context, e driver.Edit) (driver.Edited, error) {
	j := e.Acquire
	if j == nil || !s.says {
		return s.Memory.Edit(ctx, e)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	before, err := s.Load(ctx, e.Key(), driver.MaxQueue)
	if err != nil {
		return driver.Edited{}, err
	}
	r := request{j.Claim.ID, j.NotAfter, j.Repeated}
	if s.final[r] && !has(before, r.claim) {
		return driver.Edited{State: before}, nil
	}
	done, err := s.Memory.Edit(ctx, e)
	if done.State.Final = err == nil && final(before, e, done); done.State.Final {
		s.final[r] = true
	} else {
		s.unsure[r.claim] = true
	}
	return done, err
}

// Discard implements [driver.Store]. It notes claims that needed no Discard.
func (s *server) Discard(ctx context.Context, claims []driver.Claim) ([]driver.Notice, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, c := range claims {
		if s.says && !s.unsure[c.ID] {
			s.needless = append(s.needless, c.ID)
		}
	}
	return s.Memory.Discard(ctx, claims)
}

// has reports whether a claim holds the key or waits for it. The state must list all waiters.
func has(st driver.State, claim string) bool {
	for _, w := range st.WaitersAhead {
		if w.Claim == claim {
			return true
		}
	}
	_, held := st.Holder(claim)
	return held
}

// final reports whether the reply to an Acquire is final: package mongo has executed it by a short command or a poll,
// or the claim's tick is over. Package mongo says so less often, because it does not try a short command that would
// probably fail.
func final(before driver.State, e driver.Edit, done driver.Edited) bool {
	j, c, after := e.Acquire, e.Acquire.Claim, done.State
	simple := func(c driver.Claim) bool { return c.Weight == 1 && c.Limit == 1 && c.Lease == 0 && !c.Yield }
	short := j.Wait && simple(c) && c.Kind != driver.KindElection && c.Tick == 0
	_, held := after.Holder(c.ID)
	switch {
	case after.Over(c.Tick):
		return true
	case !held && after.Position == 0:
		return false
	case e.Release != nil: // a hand-over
		old := e.Release.Claim
		return short && simple(old) && old.Kind == c.Kind && before.Limit == 1 && !c.First && len(j.Expired) == 0 &&
			len(before.Holders) == 1 && before.Holders[0].Claim == old.ID && before.Token == old.Token
	case j.Wait && j.Repeated && (c.Tick == 0 || c.Kind == driver.KindElection) && has(before, c.ID): // a poll
		return true
	}
	return short && held && !j.Repeated && len(before.Holders)+before.Waiting == 0 && before.Sealed == 0 &&
		len(done.Notices) == 0 && (before.Kind == "" || before.Kind == c.Kind && before.Limit == 1)
}

// failOver elects another primary, which has no early release that a majority did not have.
func (s *server) failOver() {
	m := s.FailOver()
	s.former.Store(&former{m, m.Counts().Writes})
}

// A former primary was deposed and still answers. It answers what needs no majority: readings, commands that change
// nothing, and early releases. Once it has written something, it answers only early releases.
type former struct {
	*dsynctest.Memory
	writes int // when it was deposed
}

// answers returns true for the methods that a former primary may answer.
func answers(m dsynctest.Method) bool {
	switch m {
	case dsynctest.MethodAcquire, dsynctest.MethodRelease, dsynctest.MethodLoad, dsynctest.MethodQueue, dsynctest.MethodKeys,
		dsynctest.MethodOwn, dsynctest.MethodMembers, dsynctest.MethodLiveness, dsynctest.MethodObservers:
		return true
	}
	return false
}

func (f *former) Edit(ctx context.Context, e driver.Edit) (driver.Edited, error) {
	done, err := f.Memory.Edit(ctx, e)
	if done.Applied != (driver.OpTime{}) {
		return done, err
	}
	return reply(ctx, f, done, err)
}

func (f *former) Load(ctx context.Context, key string, waiters int) (driver.State, error) {
	st, err := f.Memory.Load(ctx, key, waiters)
	return reply(ctx, f, st, err)
}

func (f *former) Keys(ctx context.Context, q driver.KeyQuery) ([]driver.State, error) {
	all, err := f.Memory.Keys(ctx, q)
	return reply(ctx, f, all, err)
}

func (f *former) Sessions(ctx context.Context, q driver.SessionQuery) ([]driver.Member, time.Time, error) {
	all, now, err := f.Memory.Sessions(ctx, q)
	all, err = reply(ctx, f, all, err)
	return all, now, err
}

// reply returns the outcome of a command, or waits until ctx ends if the former primary can't reply.
func reply[T any](ctx context.Context, f *former, v T, err error) (T, error) {
	if f.Counts().Writes > f.writes {
		<-ctx.Done()
		var none T
		return none, ctx.Err()
	}
	return v, err
}

// A route leads the requests of a link to the server or, while former is set, to a former primary. The link must then
// lose what the former primary does not answer.
type route struct {
	*server
	former atomic.Pointer[former]
}

// end returns where the route leads.
func (r *route) end() driver.Store {
	if f := r.former.Load(); f != nil {
		return f
	}
	return r.server
}

func (r *route) Edit(ctx context.Context, e driver.Edit) (driver.Edited, error) {
	return r.end().Edit(ctx, e)
}

func (r *route) Load(ctx context.Context, key string, waiters int) (driver.State, error) {
	return r.end().Load(ctx, key, waiters)
}

func (r *route) Keys(ctx context.Context, q driver.KeyQuery) ([]driver.State, error) {
	return r.end().Keys(ctx, q)
}

func (r *route) Sessions(ctx context.Context, q driver.SessionQuery) ([]driver.Member, time.Time, error) {
	return r.end().Sessions(ctx, q)
}
