package leader

import (
	"context"
)

// Run campaigns, calls f with the context of the term, resigns when f has
// returned, and campaigns again if the term had ended before that. It is made for
// errgroup.Group.Go:
//
//	g.Go(func() error { return election.Run(ctx, work) })
//
// It returns nil when f returns nil while its term goes on, f's error when f fails
// while its term goes on, and ctx's error when ctx has ended and f returned. What
// f returns after the end of its term goes to Hooks.Returned. Errors of Campaign
// that waiting can't mend are returned. It never campaigns, returns or resigns
// while f runs.
//
// An outage of the database often fails f's own work before the leadership is
// lost. Where that should not end Run, f waits for its context to end: see the
// Example.
func (e *Election) Run(ctx context.Context, f func(context.Context) error) error {
	defer e.enter()()
	for {
		t, err := e.campaign(ctx, how{run: true})
		if ctx.Err() != nil {
			if err == nil {
				e.done(t)
			}
			return ctx.Err()
		}
		if err != nil {
			return err
		}
		over, err := e.work(t, f)
		switch {
		case ctx.Err() != nil:
			return ctx.Err()
		case !over:
			return err
		}
		if r := e.opt.Hooks.Returned; r != nil {
			e.hooks.Add(func() { r(t.Term, err) })
		}
	}
}

// work calls f, and resigns when it has returned, panicked or exited. over says
// whether the term had ended before.
func (e *Election) work(t *term, f func(context.Context) error) (over bool, err error) {
	defer e.done(t)
	err = f(t.ctx)
	return t.over(), err
}

// done gives up a term whose work is done.
func (e *Election) done(t *term) {
	t.cancel(ErrResigned)
	wait, cancel := context.WithTimeout(context.Background(), e.s.TTL()/3)
	defer cancel()
	_ = t.hold.Release(wait) // goes on in the background
}
