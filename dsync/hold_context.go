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
// then the loss. stop releases what it uses.
func (h *hold) context(ctx context.Context) (_ context.Context, stop func()) {
	c, cancel := context.WithCancelCause(ctx)
	unhook := context.AfterFunc(h.ctx, func() { cancel(context.Cause(h.ctx)) })
	return &holdContext{c, h, cancel}, func() {
		unhook()
		cancel(context.Canceled)
	}
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
