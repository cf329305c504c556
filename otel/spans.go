package otel

import (
	"context"
	"sync"
	"time"

	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/trace"
)

// spans has the open spans of holds and terms. The keys of its map are of type hold or leader.Term.
type spans struct {
	mu   sync.Mutex
	open map[any]open
}

type open struct {
	ctx   context.Context // carries the span
	began time.Time
}

// spanOnly returns a context that carries the span of ctx and nothing else from ctx. If ctx itself
// were kept, all its values would stay in memory until the hold ends, and the end would be recorded
// in a context that may already be done.
func spanOnly(ctx context.Context) context.Context {
	return trace.ContextWithSpan(context.Background(), trace.SpanFromContext(ctx))
}

func (s *spans) begin(what any, ctx context.Context) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.open[what] = open{ctx, time.Now()}
}

// end ends the span of a hold or a term. The parameter loss is why the hold or term was lost, or
// nil if its holder ended it. The returned context is for measurements; it carries the span, if
// there is one.
func (s *spans) end(what any, loss error) (ctx context.Context, lasted time.Duration) {
	s.mu.Lock()
	o, ok := s.open[what]
	delete(s.open, what)
	s.mu.Unlock()
	if !ok {
		return context.Background(), 0
	}
	span := trace.SpanFromContext(o.ctx)
	if loss != nil {
		span.SetAttributes(ended(loss))
		span.SetStatus(codes.Error, loss.Error())
	}
	span.End()
	return o.ctx, time.Since(o.began)
}
