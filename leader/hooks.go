package leader

import (
	"context"
	"slices"

	"github.com/leasehold-go/leasehold/dsync/driver"
	"github.com/leasehold-go/leasehold/internal/engine"
)

// Hooks are functions that an [Election] calls when something happens, in the style of
// net/http/httptrace.ClientTrace. Any of them may be nil. Set them in [Options], or add them with
// [Election.AddHooks].
//
// Hooks are called one at a time, in the order of the events, on a goroutine of their own. A
// hook that blocks or panics delays later hooks, but no heartbeat, and costs no leadership. A
// hook may call anything: Campaign, Resign, Pause, or Close of the session. Elected, Lost and
// NewLeader are never dropped. If Refreshed reports queue up behind a slow hook, only the latest is
// kept.
//
// NewLeader, Refreshed, Joined, Left and StoreError are called on every process that campaigns or
// observes, from its first call of Campaign, TryCampaign, Run or Observe until its session ends.
// For the first four the process reads the election after every change, also when a candidate joins
// or leaves; if more than 8 changes come at once, it reads ten times a second. With more than some
// hundred candidates, set these four hooks in a few processes only. The other hooks cost nothing.
type Hooks struct {
	// Elected is called when a term of this process begins. ctx is the context that
	// [Election.Campaign] returns: it has the values of Campaign's ctx, such as a tracer's span,
	// and may have ended by now.
	Elected func(ctx context.Context, t Term)

	// Lost is called when a term of this process has ended, once for each Elected, however the
	// term ended. cause is the cause of the term's context.
	Lost func(t Term, cause error)

	// NewLeader is called when the leader has changed, or leads in another term. before or now
	// is the zero Leader if nobody led, or nobody leads.
	NewLeader func(before, now Leader)

	// Refreshed is called each time the election was read: after changes, and every
	// dsync.Options.PollInterval.
	Refreshed func(Status)

	// StoreError is called when a command of the session failed. The work that it was for goes
	// on. op is the name of the driver.Store method.
	StoreError func(op string, err error)

	// Joined and Left are called when a member has joined the election, or has left it or died.
	// Changes among processes that only observe are noticed when the election is next read,
	// within dsync.Options.PollInterval. If either hook is set, each reading costs as much as
	// [Election.Members].
	Joined, Left func(Member)

	// ReturnedLate is called when a function of Run returned after its term had ended, in which
	// case Run does not return its error.
	ReturnedLate func(t Term, err error)
}

// A Status is the state of an election as this process last read it.
type Status struct {
	Leader   Leader
	IsLeader bool  // this process leads
	Err      error // the store's error, if reading failed; then Leader is the last known leader
}

// AddHooks has h called beside the hooks of [Options], until stop is called. It may be called at any time,
// and as often as you like. If this process leads, h.Elected is called now, so that each call of Lost follows
// one of Elected; and the first call of NewLeader says who leads. What happened before is not reported.
// A call that is due when stop is called may still be made. Nil adds none.
func (e *Election) AddHooks(h *Hooks) (stop func()) {
	if h == nil {
		return func() {}
	}
	ctx, cancel := context.WithCancel(e.heard)
	l := &hookSet{Hooks: *h, e: e, ctx: ctx}
	e.mu.Lock()
	e.all = append(e.all, l)
	attached := e.attached
	if t := e.term; !t.over() {
		t.elected(l)
	}
	e.mu.Unlock()
	if attached {
		l.attach()
	}
	return func() {
		cancel()
		e.mu.Lock()
		defer e.mu.Unlock()
		same := func(o *hookSet) bool { return o == l }
		e.all = slices.DeleteFunc(e.all, same)
		if e.term != nil {
			e.term.heard = slices.DeleteFunc(e.term.heard, same)
		}
	}
}

// A hookSet is the hooks of one caller, and what was last reported to them.
type hookSet struct {
	Hooks
	e   *Election
	ctx context.Context // when it ends, the session stops calling them

	leader  Leader
	members map[string]Member // by session; nil before the first reading
}

// attachHooks makes the session call the hooks, and observe the election if there are hooks that
// need it, from the first call until the session or e.heard ends. New does not do so: elections
// that are made and never used would stay with the session.
func (e *Election) attachHooks() {
	e.mu.Lock()
	before, all := e.attached, slices.Clone(e.all)
	e.attached = true
	e.mu.Unlock()
	if before {
		return
	}
	for _, l := range all {
		l.attach()
	}
}

func (l *hookSet) attach() {
	if f := l.StoreError; f != nil {
		stop := l.e.s.AddHooks(&engine.Hooks{StoreError: f})
		context.AfterFunc(l.ctx, stop)
	}
	if l.NewLeader != nil || l.Refreshed != nil || l.Joined != nil || l.Left != nil {
		l.e.s.Observe(l.ctx, l.e.name, l.read, func() {})
	}
}

// read reports one reading of the election. Only the session's goroutine that observes it for l calls read.
func (l *hookSet) read(st driver.State, err error) {
	e, ctx := l.e, context.Background()
	var now Leader
	if err == nil {
		now, err = e.leader(ctx, st)
	}
	if err == nil {
		before := l.leader
		if f := l.NewLeader; f != nil && before.Token != now.Token {
			e.hooks.Add(func() { f(before, now) })
		}
		l.leader = now
		if l.Joined != nil || l.Left != nil {
			err = l.reportMembers(ctx, st)
		}
	}
	if f := l.Refreshed; f != nil {
		s := Status{Leader: l.leader, IsLeader: e.IsLeader(), Err: err}
		e.hooks.AddLatest(l, func() { f(s) })
	}
}

// reportMembers reports who has joined and who has left since the last reading.
func (l *hookSet) reportMembers(ctx context.Context, st driver.State) error {
	all, err := l.e.members(ctx, st)
	if err != nil {
		return err
	}
	now := make(map[string]Member, len(all))
	for _, m := range all {
		now[m.Session] = m
		if _, known := l.members[m.Session]; !known && l.Joined != nil {
			l.e.hooks.Add(func() { l.Joined(m) })
		}
	}
	for id, m := range l.members {
		if _, still := now[id]; !still && l.Left != nil {
			l.e.hooks.Add(func() { l.Left(m) })
		}
	}
	l.members = now
	return nil
}

// elected reports to l that the term has begun. The election's mutex must be held.
func (t *term) elected(l *hookSet) {
	t.heard = append(t.heard, l)
	if f := l.Elected; f != nil {
		l.e.hooks.Add(func() { f(t.ctx, t.Term) })
	}
}

// ended reports the term's end to all that have heard of its beginning.
func (e *Election) ended(t *term, cause error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	for _, l := range t.heard {
		if f := l.Lost; f != nil {
			e.hooks.Add(func() { f(t.Term, cause) })
		}
	}
}

func (e *Election) returnedLate(t *term, err error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	for _, l := range e.all {
		if f := l.ReturnedLate; f != nil {
			e.hooks.Add(func() { f(t.Term, err) })
		}
	}
}
