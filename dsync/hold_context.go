package dsync

import "context"

// A scopedContext is a context that ends with one or more holds. Its Err compares the
// clock, so that the first look after a freeze says that they are lost.
type scopedContext struct {
	context.Context
	over   context.Context // ends with what it is scoped to
	live   func() bool     // compares the clock; once it has returned false over has ended
	cancel context.CancelCauseFunc
}

// scoped returns a context that ends with ctx and with over; its cause is then that of
// over. cancel ends it, and frees what it uses.
func scoped(ctx, over context.Context, live func() bool) (_ context.Context, cancel context.CancelCauseFunc) {
	c, cancel := context.WithCancelCause(ctx)
	unhook := context.AfterFunc(over, func() { cancel(context.Cause(over)) })
	context.AfterFunc(c, func() { unhook() })
	return &scopedContext{c, over, live, cancel}, cancel
}

func (c *scopedContext) Err() error {
	if err := c.Context.Err(); err != nil {
		return err
	}
	if !c.live() {
		c.cancel(context.Cause(c.over))
	}
	return c.Context.Err()
}

// context returns a context that ends with ctx and with the hold.
func (h *hold) context(ctx context.Context) (_ context.Context, cancel context.CancelCauseFunc) {
	return scoped(ctx, h.over(), h.live)
}

// over returns the context that ends with the hold.
func (h *hold) over() context.Context {
	h.s.mu.Lock()
	defer h.s.mu.Unlock()
	return h.scope()
}

// endedContext returns a context made from ctx that has ended, as that of what is not held
// has.
func endedContext(ctx context.Context) context.Context {
	c, cancel := context.WithCancelCause(ctx)
	cancel(ErrLost)
	return c
}
