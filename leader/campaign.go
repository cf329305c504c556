package leader

import (
	"context"
	"errors"
	"fmt"

	"github.com/leasehold-go/leasehold/dsync"
)

// Campaign waits until this process is elected, and returns a context that is
// cancelled when its leadership ends, for whatever reason: when it is lost
// ([ErrLost]), on [Election.Resign] or [Election.Pause] ([ErrResigned]), or when
// ctx ends. context.Cause says which. ctx bounds the wait, and is the parent of
// the term, like that of os/signal.NotifyContext. The context carries the term:
// [TermFrom].
//
// When the term has ended the leadership is kept from others until Resign, or for
// the session's grace: nobody else leads while the work winds down. Call Resign
// when it is done: until then, or until this process is elected again, the session
// is not [dsync.Session.Healthy] once the grace is over. A Campaign of the process that
// leads waits, like a second Lock, until it can lead another term.
//
// On error the context is not nil but has ended. The error is ctx's, with the
// store's last error added if there was one; dsync.ErrClosed; dsync.ErrMismatch
// if the name is in use as something else; or dsync.ErrRefused. Other errors of
// the store are waited out, and losses before the election, too.
func (e *Election) Campaign(ctx context.Context) (context.Context, error) {
	t, err := e.campaign(ctx, how{})
	if err != nil {
		return ended(ctx, err), err
	}
	return t.ctx, nil
}

// TryCampaign is Campaign without the wait: if somebody leads, or stands in line to,
// the error is a *dsync.HeldError, which is dsync.ErrHeld; its Here is true, and the
// text says so, if it is this process that leads, or campaigns. The error is
// [ErrPaused] if the election is paused here; errors of the store are returned at once.
func (e *Election) TryCampaign(ctx context.Context) (context.Context, error) {
	t, err := e.campaign(ctx, how{try: true})
	if err != nil {
		return ended(ctx, err), err
	}
	return t.ctx, nil
}

// ended returns a context that has ended with the cause err.
func ended(ctx context.Context, err error) context.Context {
	c, cancel := context.WithCancelCause(ctx)
	cancel(err)
	return c
}

// how is how a process campaigns.
type how struct {
	try bool // without a wait
	run bool // for a function of Run
}

func (e *Election) campaign(ctx context.Context, how how) (*term, error) {
	defer e.enter()()
	e.look()
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
			if e.opt.Value != nil {
				// A value that is not published costs no leadership; the hook hears of it.
				_ = hold.Publish(ctx, e.opt.Value)
			}
			return t, nil
		}
		// Paused in the meantime.
		_ = hold.Release(ctx)
	}
}

// hold waits while the election is paused, then for the hold; with try it waits
// for neither. The error is ErrPaused itself if it was paused meanwhile.
func (e *Election) hold(ctx context.Context, try bool) (*dsync.Hold, error) {
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
	get := e.s.Hold
	if try {
		get = e.s.TryHold
	}
	hold, err := get(wait, e.name, dsync.KindElection)
	if err != nil && context.Cause(wait) == ErrPaused {
		return nil, ErrPaused
	}
	return hold, err
}

// begin begins a term, unless the election is paused.
func (e *Election) begin(ctx context.Context, hold *dsync.Hold, run bool) *term {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.paused != nil {
		return nil
	}
	if before := e.term; before != nil && !before.run {
		// Who campaigned again is done with the term before, which was passed on; its
		// caller need not have resigned.
		_ = before.hold.Release(ended(ctx, nil))
	}
	t := &term{
		Term: Term{
			Election: e.name, Number: hold.Term(), Token: hold.Token(),
			Session: hold.Session(), Name: e.s.Name(),
		},
		hold: hold,
		run:  run,
	}
	t.ctx, t.cancel = hold.Context(context.WithValue(ctx, termKey{}, t.Term))
	e.term = t
	if f := e.opt.Hooks.Elected; f != nil {
		e.hooks.Add(func() { f(t.Term) })
	}
	// However the term ends, this is called once. A hold that is still ours is
	// kept for the grace, or until its holder says that it is done.
	context.AfterFunc(t.ctx, func() {
		cause := context.Cause(t.ctx)
		hold.Drain(cause)
		if f := e.opt.Hooks.Lost; f != nil {
			e.hooks.Add(func() { f(t.Term, cause) })
		}
	})
	return t
}
