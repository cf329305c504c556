package leader

import (
	"context"

	"github.com/leasehold-go/leasehold/dsync/driver"
)

// Hooks are functions that an [Election] calls when something happens, in the style of
// net/http/httptrace.ClientTrace. Any of them may be nil. Failed commands are reported to the
// session's hook dsync.Hooks.StoreError.
//
// Hooks are called one at a time, in the order of the events, on a goroutine of their own. A hook that blocks or panics
// delays later hooks, but it delays no heartbeat and does not end the leadership. A hook may call anything: Campaign,
// Resign, Pause, or Close of the session. No call is dropped, with one exception: if a call of Refreshed still waits
// behind a slow hook, the next call of Refreshed replaces it.
//
// NewLeader and Refreshed are called on every process that campaigns or observes, from when it first does so until its
// session ends. If either is set, the process reads the election after every change, even if only a candidate joins or
// leaves. If more than 8 changes come at once, the process reads at most ten times a second. If there are more than a
// few hundred candidates, set these two hooks in only a few processes. The other hooks cause no reads.
type Hooks struct {
	// Elected is called when a term of this process begins. ctx is the context that
	// [Election.Campaign] returns. It has the values of Campaign's ctx, such as a tracer's span,
	// and may already have ended.
	Elected func(ctx context.Context, t Term)

	// Lost is called once for each Elected, however the term ended. Its argument cause is the cause of the term's
	// context.
	Lost func(t Term, cause error)

	// NewLeader is called when another process leads, when nobody leads any more, and when the same leader begins
	// another term. Its arguments are the leader before and the leader now; a zero Leader means that nobody led, or
	// leads.
	NewLeader func(before, now Leader)

	// Refreshed is called with each reading of the election, after changes and otherwise every
	// dsync.Options.PollInterval.
	Refreshed func(Reading)

	// ReturnedLate is called if Run's function returns after the end of its term, unless Run's ctx has ended, too. Its
	// argument err is the function's result.
	ReturnedLate func(t Term, err error)
}

// A Reading is the state of an election as this process last read it.
type Reading struct {
	Leader   Leader
	IsLeader bool  // this process leads
	Err      error // the store's error if reading failed; Leader is then the last known leader
}

// If the hooks need it, the first call of attachHooks makes the session observe the election, until the session or
// e.heard ends. New does not call attachHooks, because the session would then refer to elections that are never used.
func (e *Election) attachHooks() {
	if e.opt.Hooks.NewLeader == nil && e.opt.Hooks.Refreshed == nil {
		return
	}
	e.hook.Do(func() { e.s.Observe(e.heard, e.name, e.read, func() {}) })
}

// read reports one reading of the election to the hooks. Only the session's observing goroutine calls it.
func (e *Election) read(st driver.State, err error) {
	var now Leader
	if err == nil {
		now, err = e.leader(context.Background(), st)
	}
	if err == nil {
		before := e.seen
		if f := e.opt.Hooks.NewLeader; f != nil && before.Token != now.Token {
			e.hooks.Add(func() { f(before, now) })
		}
		e.seen = now
	}
	if f := e.opt.Hooks.Refreshed; f != nil {
		r := Reading{Leader: e.seen, IsLeader: e.IsLeader(), Err: err}
		e.hooks.AddLatest(e, func() { f(r) })
	}
}
