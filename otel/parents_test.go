package otel_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"go.opentelemetry.io/otel/sdk/metric"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	"go.opentelemetry.io/otel/trace"

	"github.com/leasehold-go/leasehold/dsync"
	"github.com/leasehold-go/leasehold/dsync/dsynctest"
	"github.com/leasehold-go/leasehold/leader"
	dsyncotel "github.com/leasehold-go/leasehold/otel"
)

// The parent of a hold's span is the span in the context of the call that acquired the hold, even
// if another process held the lock before. If the call takes no context (Lock), the hold's span is
// a root.
func TestSpansHaveTheCallerAsParent(t *testing.T) {
	succeeds := func(t *testing.T, err error) {
		if err != nil {
			t.Error(err)
		}
	}
	for _, tt := range []struct {
		name string
		kind string
		root bool
		// use acquires and releases a lock of s; other is the session of another process.
		use func(t *testing.T, ctx context.Context, s, other *dsync.Session)
	}{
		{"Lock", "mutex", true, func(t *testing.T, _ context.Context, s, _ *dsync.Session) {
			turn(s.Mutex("k"))
		}},
		{"LockContext", "mutex", false, func(t *testing.T, ctx context.Context, s, _ *dsync.Session) {
			mu := s.Mutex("k")
			succeeds(t, mu.LockContext(ctx))
			mu.Unlock()
		}},
		{"LockContext after another process", "mutex", false, func(t *testing.T, ctx context.Context, s, other *dsync.Session) {
			before, mu := other.Mutex("k"), s.Mutex("k")
			before.Lock()
			time.AfterFunc(time.Second, before.Unlock)
			succeeds(t, mu.LockContext(ctx))
			mu.Unlock()
		}},
		{"TryHold", "mutex", false, func(t *testing.T, ctx context.Context, s, _ *dsync.Session) {
			h, err := s.Mutex("k").TryHold(ctx)
			succeeds(t, err)
			h.Release(background)
		}},
		{"Do", "mutex", false, func(t *testing.T, ctx context.Context, s, _ *dsync.Session) {
			succeeds(t, s.Mutex("k").Do(ctx, func(context.Context) error { return nil }))
		}},
		{"HoldChan", "mutex", false, func(t *testing.T, ctx context.Context, s, _ *dsync.Session) {
			if h := <-s.Mutex("k").HoldChan(ctx); h != nil {
				h.Release(background)
			}
		}},
		{"RHold", "rwmutex", false, func(t *testing.T, ctx context.Context, s, _ *dsync.Session) {
			h, err := s.RWMutex("k").RHold(ctx)
			succeeds(t, err)
			h.Release(background)
		}},
		{"Semaphore", "semaphore", false, func(t *testing.T, ctx context.Context, s, _ *dsync.Session) {
			sem := s.Semaphore("k", 2)
			succeeds(t, sem.Acquire(ctx, 1))
			sem.Release(1)
		}},
		{"Lease", "mutex", false, func(t *testing.T, ctx context.Context, s, _ *dsync.Session) {
			lease, err := s.Mutex("k").Lease(ctx, time.Minute)
			succeeds(t, err)
			succeeds(t, lease.Release(background))
		}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				spans, caller, tracers := export(t)
				ctx, span := caller.Start(background, "caller")
				store := dsynctest.NewMemory()
				other := newSession(t, store, nil)
				s := newSession(t, store, &dsync.Options{Hooks: telemetry(t, tracers).Hooks()})
				tt.use(t, ctx, s, other)
				span.End()
				synctest.Wait() // for the hooks
				hold, wait := spans.one("lock "+tt.kind), spans.one("acquire "+tt.kind)
				if wait.Parent.SpanID() != hold.SpanContext.SpanID() {
					t.Error("the span of the wait is not a child of the hold's span")
				}
				wantParent(t, hold, span, tt.root)
			})
		})
	}
}

// If a hold is handed off within the process, its span belongs to the call that gets the hold. It
// does not belong to the call that first requested the hold from the store.
func TestSpansOfHandOffsHaveTheirOwnParents(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		spans, caller, tracers := export(t)
		s := newSession(t, dsynctest.NewMemory(), &dsync.Options{Hooks: telemetry(t, tracers).Hooks(), HandOffTime: time.Hour})
		first, second := s.Mutex("k"), s.Mutex("k")
		first.Lock()
		ctx, span := caller.Start(background, "caller")
		done := make(chan struct{})
		go func() {
			defer close(done)
			if err := second.LockContext(ctx); err != nil {
				t.Error(err)
			}
		}()
		synctest.Wait()
		first.Unlock()
		<-done
		span.End()
		synctest.Wait()
		second.Unlock()
		synctest.Wait()
		var roots, children int
		for _, s := range spans.all("lock mutex") {
			switch s.Parent.SpanID() {
			case span.SpanContext().SpanID():
				children++
			case trace.SpanID{}:
				roots++
			}
		}
		if roots != 1 || children != 1 {
			t.Errorf("%d holds are roots and %d children of the caller, want 1 and 1", roots, children)
		}
	})
}

// The spans of a campaign's hold and term are children of the caller's span, even if the context
// has ended when the hooks are called.
func TestSpansOfCampaignsHaveTheCallerAsParent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		spans, caller, tracers := export(t)
		tele := telemetry(t, tracers)
		s := newSession(t, dsynctest.NewMemory(), &dsync.Options{Hooks: tele.Hooks()})
		e, err := leader.New(s, "e", &leader.Options{Hooks: tele.LeaderHooks(nil)})
		noErr(t, err)
		ctx, cancel := context.WithCancel(background)
		ctx, span := caller.Start(ctx, "caller")
		if _, err := e.Campaign(ctx); err != nil {
			t.Fatal(err)
		}
		cancel()
		synctest.Wait()
		e.Resign(background)
		span.End()
		synctest.Wait()
		wantParent(t, spans.one("lock election"), span, false)
		wantParent(t, spans.one("lead"), span, false)
	})
}

// Measurements are made in a context that carries the span, so that their exemplars refer to it.
// From the caller's context, this context takes nothing but the span, and it does not end when the
// caller's context ends.
func TestMeasurementsKeepOnlyTheSpan(t *testing.T) {
	type valueKey struct{}
	for name, traced := range map[string]bool{"the caller's span": false, "the hold's span": true} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				_, caller, tracers := export(t)
				opt := dsyncotel.Options{}
				if traced {
					opt.TracerProvider = tracers
				}
				ctx, span := caller.Start(background, "caller")
				measured := 0
				opt.MeterProvider = metric.NewMeterProvider(metric.WithReader(metric.NewManualReader()),
					metric.WithExemplarFilter(func(ctx context.Context) bool {
						got := trace.SpanContextFromContext(ctx)
						if !got.IsValid() {
							return false // of a heartbeat, for example
						}
						measured++
						if got.TraceID() != span.SpanContext().TraceID() || traced == (got.SpanID() == span.SpanContext().SpanID()) {
							t.Errorf("a measurement was made in span %v", got)
						}
						if ctx.Value(valueKey{}) != nil || ctx.Err() != nil {
							t.Error("a measurement was made in the caller's context")
						}
						return false
					}))
				tele, err := dsyncotel.New(&opt)
				noErr(t, err)
				s := newSession(t, dsynctest.NewMemory(), &dsync.Options{Hooks: tele.Hooks()})
				mu := s.Mutex("k")
				ctx, cancel := context.WithCancel(context.WithValue(ctx, valueKey{}, "of the request"))
				noErr(t, mu.LockContext(ctx))
				cancel()
				mu.Unlock()
				synctest.Wait()
				if measured < 3 {
					t.Errorf("%d measurements were made in a span, want at least the 3 of the grant", measured)
				}
			})
		})
	}
}

// exported holds the spans that an in-memory exporter has received.
type exported struct {
	t *testing.T
	*tracetest.InMemoryExporter
}

// export returns the exported spans, and a tracer and its provider that export to them.
func export(t *testing.T) (exported, trace.Tracer, trace.TracerProvider) {
	exporter := tracetest.NewInMemoryExporter()
	provider := sdktrace.NewTracerProvider(sdktrace.WithSyncer(exporter))
	return exported{t, exporter}, provider.Tracer("caller"), provider
}

func (e exported) all(name string) (found []tracetest.SpanStub) {
	for _, s := range e.GetSpans() {
		if s.Name == name {
			found = append(found, s)
		}
	}
	return found
}

// one returns the only span with that name.
func (e exported) one(name string) tracetest.SpanStub {
	e.t.Helper()
	found := e.all(name)
	if len(found) != 1 {
		e.t.Fatalf("%d spans %q were exported, want 1", len(found), name)
	}
	return found[0]
}

// telemetry returns a Telemetry that records spans but no metrics.
func telemetry(t *testing.T, tracers trace.TracerProvider) *dsyncotel.Telemetry {
	tele, err := dsyncotel.New(&dsyncotel.Options{TracerProvider: tracers})
	noErr(t, err)
	return tele
}

func wantParent(t *testing.T, s tracetest.SpanStub, caller trace.Span, root bool) {
	t.Helper()
	want := caller.SpanContext()
	switch {
	case root && s.Parent.IsValid():
		t.Errorf("span %q has a parent, want a root", s.Name)
	case !root && (s.Parent.SpanID() != want.SpanID() || s.SpanContext.TraceID() != want.TraceID()):
		t.Errorf("span %q is not a child of the caller's span", s.Name)
	}
}
