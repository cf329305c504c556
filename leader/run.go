package leader

import "context"

// Run campaigns, calls f with the context of the term, and resigns when f has returned. If the term
// ended before f returned, Run campaigns again. Run is made for errgroup.Group.Go.
//
// Run returns f's result, nil or an error, if f returns during its term. If ctx has ended, Run waits for f to return
// and returns ctx's error. Run also returns those errors of Campaign that cannot be fixed by waiting. If f returns
// after the end of its term and ctx has not ended, f's result goes to Hooks.ReturnedLate. Run never campaigns, returns
// or resigns while f runs.
//
// An outage of the database often makes f's own work fail before the leadership is lost. If such a
// failure should not end Run, f must wait for its context to end before returning, as in the Example.
func (e *Election) Run(ctx context.Context, f func(context.Context) error) error {
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
		if f := e.opt.Hooks.ReturnedLate; f != nil {
			e.hooks.Add(func() { f(t.Term, err) })
		}
	}
}

// work calls f, and resigns when f has returned, panicked or exited its goroutine. The result over reports whether the
// term ended before f returned.
func (e *Election) work(t *term, f func(context.Context) error) (over bool, err error) {
	defer e.done(t)
	err = f(t.ctx)
	return t.over(), err
}

// done ends and releases a term whose work is done.
func (e *Election) done(t *term) {
	t.cancel(ErrResigned)
	wait, cancel := context.WithTimeout(context.Background(), e.s.TTL()/3)
	defer cancel()
	_ = t.hold.Release(wait) // on a timeout the release goes on in the background
}
