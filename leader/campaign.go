package leader

import (
	"context"
	"errors"
	"fmt"

	"github.com/leasehold-go/leasehold/dsync/driver"
	"github.com/leasehold-go/leasehold/internal/engine"

	"github.com/leasehold-go/leasehold/dsync"
)

// Campaign waits until this process is elected, and returns a context for its term. The context is cancelled when the
// leadership is lost ([ErrLost]), when this process resigns ([ErrResigned]), or when ctx ends. context.Cause returns
// the reason. ctx bounds the wait and is the parent of the returned context, as in os/signal.NotifyContext.
// [TermFrom] returns the context's term.
//
// Call Resign when the work is done, even if the term has already ended. Nobody else is elected until you call it,
// or until the session's grace is over. Once the grace is over, [dsync.Session.Healthy] reports an error until
// Resign is called or this process is elected again. If this process already leads, Campaign waits for another term,
// like a second Lock.
//
// On an error, the returned context is not nil but has already ended. The error is ctx's error, with
// the store's last error added if there was one; dsync.ErrClosed; dsync.ErrMismatch if the name is in
// use as another kind of key; or dsync.ErrRefused. Campaign keeps trying after other errors of the
// store, and after a loss of the session.
func (e *Election) Campaign(ctx context.Context) (context.Context, error) {
	t, err := e.campaign(ctx, how{})
	if err != nil {
		return engine.EndedContext(ctx, err), err
	}
	return t.ctx, nil
}

// CampaignChan is [Election.Campaign] for a select statement. It campaigns in the background, and the
// channel receives the context of the term. If the campaign fails, the channel is closed without a
// value, so a receiver gets nil.
//
// This process leads as soon as it is elected, even if nobody has received the context yet. So the context may already
// have ended when it is received. If nobody receives the context before ctx ends, the leadership is released.
func (e *Election) CampaignChan(ctx context.Context) <-chan context.Context {
	ch := make(chan context.Context)
	go func() {
		defer close(ch)
		t, err := e.campaign(ctx, how{})
		if err != nil {
			return
		}
		select {
		case ch <- t.ctx:
		case <-ctx.Done():
			e.done(t)
		}
	}()
	return ch
}

// TryCampaign is Campaign without waiting. If a process leads or waits to lead, the error is a
// *dsync.HeldError, which matches dsync.ErrHeld. Its field Here is true if this process itself leads or
// waits. The error is [ErrPaused] if the election is paused. Errors of the store are returned at once.
func (e *Election) TryCampaign(ctx context.Context) (context.Context, error) {
	t, err := e.campaign(ctx, how{try: true})
	if err != nil {
		return engine.EndedContext(ctx, err), err
	}
	return t.ctx, nil
}

// The type how has the options of a campaign.
type how struct {
	try bool // do not wait
	run bool // the term is for Run's function
}

func (e *Election) campaign(ctx context.Context, how how) (*term, error) {
	e.attachHooks()
	for {
		hold, err := e.hold(ctx, how.try)
		if err == ErrPaused && !how.try {
			continue
		}
		switch {
		case errors.Is(err, dsync.ErrHeld) && e.IsLeader():
			return nil, fmt.Errorf("leader: campaign for %q: this process leads already: %w", e.name, err)
		case err != nil:
			return nil, fmt.Errorf("leader: campaign for %q: %w", e.name, err)
		}
		if t := e.begin(ctx, hold, how.run); t != nil {
			return t, nil
		}
		// The election was paused after this process was elected.
		_ = hold.Release(ctx)
	}
}

// hold waits while the election is paused, and then for the hold. If try is true, it does not wait. The error is
// ErrPaused, not wrapped, in two cases: the election is paused during the wait for the hold, or try is true and the
// election is paused already.
func (e *Election) hold(ctx context.Context, try bool) (*engine.Hold, error) {
	e.mu.Lock()
	for e.paused != nil {
		paused := e.paused
		e.mu.Unlock()
		if try {
			return nil, ErrPaused
		}
		select {
		case <-paused:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
		e.mu.Lock()
	}
	wait, cancel := context.WithCancelCause(ctx)
	e.waits[&cancel] = true
	e.mu.Unlock()
	defer func() {
		e.mu.Lock()
		delete(e.waits, &cancel)
		e.mu.Unlock()
		cancel(nil)
	}()
	want := e.want
	want.Try = try
	if e.elects() {
		want.Value = string(e.opt.Value)
	}
	hold, err := e.s.Hold(wait, want)
	if err != nil && context.Cause(wait) == ErrPaused {
		return nil, ErrPaused
	}
	return hold, err
}

// elects reports whether the write that elects this process also publishes its value.
func (e *Election) elects() bool {
	n := len(e.opt.Value)
	return n > 0 && n <= driver.MaxClaimValue
}

// begin starts a term. It returns nil if the election is paused.
func (e *Election) begin(ctx context.Context, hold *engine.Hold, run bool) *term {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.paused != nil {
		return nil
	}
	if before := e.term; before != nil && !before.run {
		// A caller that campaigns again is done with its last term, even if it has not called
		// Resign.
		_ = before.hold.Release(engine.EndedContext(ctx, nil))
	}
	t := &term{
		Term: Term{
			Election: e.name, Number: hold.Term(), Token: hold.Token(),
			Session: hold.Session(), Name: e.s.Name(),
		},
		hold: hold,
		run:  run,
	}
	t.ctx, t.cancel = hold.Context(context.WithValue(ctx, termKey{}, t.Term), nil)
	if e.opt.Value != nil && !e.elects() {
		// The work does not wait until the value is published, because the process leads even if
		// publishing fails.
		hold.PublishLater(e.opt.Value)
	}
	e.yieldLater(t)
	e.term = t // from here on, Publish can replace the value
	if f := e.opt.Hooks.Elected; f != nil {
		e.hooks.Add(func() { f(t.ctx, t.Term) })
	}
	// The function runs once, however the term ends. If the hold is not lost, WindDown keeps it until its holder
	// releases it or the grace is over.
	context.AfterFunc(t.ctx, func() {
		cause := context.Cause(t.ctx)
		hold.WindDown(cause)
		if f := e.opt.Hooks.Lost; f != nil {
			e.hooks.Add(func() { f(t.Term, cause) })
		}
	})
	return t
}

// A Term describes one period of a process's leadership. [TermFrom] returns it.
type Term struct {
	Election string
	Number   int64  // grows by one with each term, whichever process leads
	Token    int64  // the fencing token: greater than the token of any earlier term
	Session  string // the id of the leader's session
	Name     string // the leader's dsync.Options.Name
}

// String describes the term for people, such as `term 7 of election "jobs/mails", token 4711`.
func (t Term) String() string {
	return fmt.Sprintf("term %d of election %q, token %d", t.Number, t.Election, t.Token)
}

type termKey struct{}

// TermFrom returns the term whose context ctx is, or was made from, and reports whether there is one.
func TermFrom(ctx context.Context) (Term, bool) {
	t, ok := ctx.Value(termKey{}).(Term)
	return t, ok
}

// A term is a term of this process.
type term struct {
	Term
	hold   *engine.Hold
	ctx    context.Context // ends with the term
	cancel context.CancelCauseFunc
	run    bool // the term belongs to Run, which releases it when its function has returned
}

// contains reports whether ctx is the term's context or was made from it.
func (t *term) contains(ctx context.Context) bool {
	inside, ok := TermFrom(ctx)
	return ok && inside == t.Term
}

// over reports whether the term has ended. It checks the clock. A nil term has ended.
func (t *term) over() bool { return t == nil || t.ctx.Err() != nil }
