package dsync

import "context"

// A holdContext is a context that ends with a hold. Its Err compares the clock,
// so that the first look after a freeze says that the hold is lost.
type holdContext struct {
	context.Context
	h      *hold
	over   context.Context // ends with the hold
	cancel context.CancelCauseFunc
}

// context returns a context that ends with ctx and with the hold; its cause is
// then the loss. cancel ends it, and frees what it uses.
func (h *hold) context(ctx context.Context) (_ context.Context, cancel context.CancelCauseFunc) {
	h.s.mu.Lock()
	over := h.scope()
	h.s.mu.Unlock()
	c, cancel := context.WithCancelCause(ctx)
	unhook := context.AfterFunc(over, func() { cancel(context.Cause(over)) })
	context.AfterFunc(c, func() { unhook() })
	return &holdContext{c, h, over, cancel}, cancel
}

func (c *holdContext) Err() error {
	if err := c.Context.Err(); err != nil {
		return err
	}
	if !c.h.live() {
		c.cancel(context.Cause(c.over))
	}
	return c.Context.Err()
}

// contextOf is what the Context methods of all that can be locked return, for the
// hold of which their Lost tells; nil: there is none.
func contextOf(ctx context.Context, h *hold) (context.Context, context.CancelFunc) {
	if h == nil {
		c, cancel := context.WithCancelCause(ctx)
		cancel(ErrLost)
		return c, func() {}
	}
	c, cancel := h.context(ctx)
	return c, func() { cancel(context.Canceled) }
}
