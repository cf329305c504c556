package otel

import (
	"context"
	"errors"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/trace"

	"github.com/leasehold-go/leasehold/leader"
)

// LeaderHooks returns hooks for leader.Options.Hooks. They record the terms of this process, and then call the
// program's own hooks, if own is not nil. Several elections may share them. Failed commands are recorded by the
// session's hooks: see [Telemetry.Hooks].
func (t *Telemetry) LeaderHooks(own *leader.Hooks) *leader.Hooks {
	var h leader.Hooks
	if own != nil {
		h = *own
	}
	elected, lost := h.Elected, h.Lost
	h.Elected = func(ctx context.Context, term leader.Term) {
		t.elected(ctx, term)
		if elected != nil {
			elected(ctx, term)
		}
	}
	h.Lost = func(term leader.Term, cause error) {
		t.deposed(term, cause)
		if lost != nil {
			lost(term, cause)
		}
	}
	return &h
}

func (t *Telemetry) elected(ctx context.Context, term leader.Term) {
	if t.tracer != nil {
		ctx, _ = t.tracer.Start(ctx, "lead", trace.WithAttributes(append([]attribute.KeyValue{
			keyAttr.String(term.Election), termAttr.Int64(term.Number), tokenAttr.Int64(term.Token),
		}, t.opt.Attributes...)...))
	}
	ctx = spanOnly(ctx)
	t.spans.begin(term, ctx)
	with := t.with(t.key(term.Election)...)
	t.leading.Add(ctx, 1, with)
	t.terms.Add(ctx, 1, with)
}

func (t *Telemetry) deposed(term leader.Term, cause error) {
	if !errors.Is(cause, leader.ErrLost) {
		cause = nil // the process resigned, or the context of its campaign ended
	}
	ctx, lasted := t.spans.end(term, cause)
	attrs := t.key(term.Election)
	t.leading.Add(ctx, -1, t.with(attrs...))
	if cause != nil {
		attrs = append(attrs, ended(cause))
	}
	t.term.Record(ctx, lasted.Seconds(), t.with(attrs...))
}
