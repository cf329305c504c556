package otel

import (
	"context"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/trace"

	"github.com/leasehold-go/leasehold/dsync"
	"github.com/leasehold-go/leasehold/dsync/driver"
)

// A hold identifies a hold of a key by its token, because no token of a key is granted twice.
type hold struct {
	key   string
	token int64
}

// Hooks returns hooks for dsync.Options.Hooks. If the session already has hooks, add these with session.AddHooks
// before the first lock. Otherwise the end of a hold could be counted without its beginning.
func (t *Telemetry) Hooks() *dsync.Hooks {
	ctx := context.Background()
	return &dsync.Hooks{
		Granted:  t.granted,
		Released: func(r dsync.HoldInfo) { t.held(hold{r.Key, r.Token}, r.Kind, r.Held, nil) },
		Lost: func(l dsync.HoldInfo) {
			if l.ByHolder {
				l.Cause = nil
			}
			t.held(hold{l.Key, l.Token}, l.Kind, l.Held, l.Cause)
		},
		SessionStarted: func(string) { t.sessions.Add(ctx, 1, t.with()) },
		SessionLost: func(_ string, cause error) {
			t.leaseLeft(0)
			t.sessionLosses.Add(ctx, 1, t.with(ended(cause)))
		},
		Heartbeat: func(took, left time.Duration, err error) {
			t.leaseLeft(left)
			t.heartbeat.Record(ctx, took.Seconds(), t.with(failed(err)...))
		},
		StoreError: func(op string, err error) {
			t.storeErrors.Add(ctx, 1, t.with(append(failed(err), operationAttr.String(op))...))
		},
		ClockJump: func(d time.Duration) {
			direction := "ahead"
			if d < 0 {
				direction = "back"
			}
			t.jumps.Add(ctx, 1, t.with(directionAttr.String(direction)))
		},
		Deadlock: func(_, _ []string) { t.deadlocks.Add(ctx, 1, t.with()) },
	}
}

// leaseLeft records the time left of the session's lease.
func (t *Telemetry) leaseLeft(left time.Duration) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.leaseEnds = time.Now().Add(left)
}

// granted counts a hold that begins.
func (t *Telemetry) granted(g dsync.HoldInfo) {
	source := sourceAttr.String("store")
	if g.Local {
		source = sourceAttr.String("local")
	}
	ctx := t.trace(g, source)
	attrs := append(t.key(g.Key), kindAttr.String(string(g.Kind)))
	t.holds.Add(ctx, 1, t.with(attrs...))
	with := t.with(append(attrs, source)...)
	t.acquire.Record(ctx, g.Wait.Seconds(), with)
	t.grants.Add(ctx, 1, with)
}

// trace starts the span of a hold, if spans are recorded. Its parent is the span of the call that acquired the hold.
// The returned context carries the new span or, if there is none, the call's span.
func (t *Telemetry) trace(g dsync.HoldInfo, source attribute.KeyValue) context.Context {
	if t.tracer == nil {
		return spanOnly(g.Context)
	}
	now, kind := time.Now(), string(g.Kind)
	requested := trace.WithTimestamp(now.Add(-g.Wait))
	attrs := trace.WithAttributes(append([]attribute.KeyValue{
		keyAttr.String(g.Key), kindAttr.String(kind), tokenAttr.Int64(g.Token), source,
	}, t.opt.Attributes...)...)
	ctx, _ := t.tracer.Start(g.Context, "lock "+kind, requested, attrs)
	_, wait := t.tracer.Start(ctx, "acquire "+kind, requested, attrs)
	wait.End(trace.WithTimestamp(now))
	ctx = spanOnly(ctx)
	t.spans.begin(hold{g.Key, g.Token}, ctx)
	return ctx
}

// held counts a hold that has ended. The parameter loss is why it was lost, or nil if the holder ended it.
func (t *Telemetry) held(h hold, kind driver.Kind, lasted time.Duration, loss error) {
	ctx, _ := t.spans.end(h, loss)
	attrs := append(t.key(h.key), kindAttr.String(string(kind)))
	t.holds.Add(ctx, -1, t.with(attrs...))
	if loss != nil {
		attrs = append(attrs, ended(loss))
		t.losses.Add(ctx, 1, t.with(attrs...))
	}
	t.hold.Record(ctx, lasted.Seconds(), t.with(attrs...))
}
