package dsync

import "context"

// A holdContext is a context that ends with a hold. Its Err compares the clock,
// so that the first look after a freeze says that the hold is lost.
type holdContext struct {
	context.Context
	h      *hold
	cancel context.CancelCauseFunc
}

// context returns a context that ends with ctx and with the hold; its cause is
// then the loss. cancel ends it, and frees what it uses.
func (h *hold) context(ctx context.Context) (_ context.Context, cancel context.CancelCauseFunc) {
	c, cancel := context.WithCancelCause(ctx)
	unhook := context.AfterFunc(h.ctx, func() { cancel(context.Cause(h.ctx)) })
	context.AfterFunc(c, func() { unhook() })
	return &holdContext{c, h, cancel}, cancel
}

func (c *holdContext) Err() error {
	if err := c.Context.Err(); err != nil {
		return err
	}
	if !c.h.live() {
		c.cancel(context.Cause(c.h.ctx))
	}
	return c.Context.Err()
}
