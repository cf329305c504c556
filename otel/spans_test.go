package otel_test

import (
	"context"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"

	"github.com/leasehold-go/leasehold/dsync"
	"github.com/leasehold-go/leasehold/dsync/dsynctest"
	"github.com/leasehold-go/leasehold/leader"
	dsyncotel "github.com/leasehold-go/leasehold/otel"
)

// ended returns the only ended span with this name and attribute.
func (r *recorded) ended(name string, attr attribute.KeyValue) sdktrace.ReadOnlySpan {
	r.t.Helper()
	synctest.Wait() // for the hooks
	var found []sdktrace.ReadOnlySpan
	for _, s := range r.spans.Ended() {
		set := attribute.NewSet(s.Attributes()...)
		if v, ok := set.Value(attr.Key); s.Name() == name && ok && v == attr.Value {
			found = append(found, s)
		}
	}
	if len(found) != 1 {
		r.t.Fatalf("%d spans %q with %v have ended, want 1", len(found), name, attr)
	}
	return found[0]
}

func wantLasted(t *testing.T, s sdktrace.ReadOnlySpan, want time.Duration) {
	t.Helper()
	if got := s.EndTime().Sub(s.StartTime()); got != want {
		t.Errorf("%q lasted %v, want %v", s.Name(), got, want)
	}
}

// A hold's span begins with the call. The wait is a span within it.
func TestSpansOfHolds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := record(t, dsyncotel.Options{Attributes: []attribute.KeyValue{attribute.String("shard", "a")}})
		s := r.session(dsynctest.NewMemory())
		first, second := s.Mutex("k"), s.Mutex("k")
		first.Lock()
		token := first.Token()
		var wg sync.WaitGroup
		wg.Go(func() {
			second.Lock()
			time.Sleep(2 * time.Second)
			second.Unlock()
		})
		synctest.Wait()
		time.Sleep(time.Second)
		first.Unlock()
		synctest.Wait()
		wantLasted(t, r.ended("lock mutex", attribute.Int64("leasehold.fencing_token", token)), time.Second)
		if open := len(r.spans.Started()) - len(r.spans.Ended()); open != 1 {
			t.Errorf("%d spans are open, want only that of the second hold", open)
		}
		wg.Wait()
		later := r.spans.Ended()[len(r.spans.Ended())-1].Attributes()
		set := attribute.NewSet(later...)
		if got := set.Encoded(attribute.DefaultEncoder()); set.Len() != 5 {
			t.Errorf("a span has the attributes %s, want 5", got)
		}
		after, _ := set.Value("leasehold.fencing_token")
		lock := r.ended("lock mutex", attribute.Int64("leasehold.fencing_token", after.AsInt64()))
		wait := r.ended("acquire mutex", attribute.Int64("leasehold.fencing_token", after.AsInt64()))
		wantLasted(t, lock, 3*time.Second)
		wantLasted(t, wait, time.Second)
		if wait.Parent().SpanID() != lock.SpanContext().SpanID() || lock.Parent().IsValid() {
			t.Error("the wait's span is not a child of the hold's span, or the hold's span is not the root")
		}
		if lock.Status().Code != codes.Unset {
			t.Errorf("the status of a hold that was released is %v", lock.Status())
		}
	})
}

func TestSpansOfLosses(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := record(t, dsyncotel.Options{})
		broken(r.session(dsynctest.NewMemory()))
		span := r.ended("lock mutex", attribute.String("error.type", "revoked"))
		if span.Status().Code != codes.Error || span.Status().Description == "" {
			t.Errorf("the status of a hold that was lost is %v", span.Status())
		}
	})
}

func TestSpansOfTerms(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := record(t, dsyncotel.Options{})
		e, err := leader.New(r.session(dsynctest.NewMemory()), "e", &leader.Options{Hooks: r.LeaderHooks(nil)})
		noErr(t, err)
		ctx, err := e.Campaign(background)
		noErr(t, err)
		term, _ := leader.TermFrom(ctx)
		time.Sleep(time.Second)
		e.Resign(background)
		span := r.ended("lead", attribute.Int64("leasehold.leader.term.number", term.Number))
		wantLasted(t, span, time.Second)
		if span.Status().Code != codes.Unset {
			t.Errorf("the status of a term that was resigned is %v", span.Status())
		}
		r.ended("lead", attribute.String("leasehold.key", "e"))
	})
}

// Without options and without global providers nothing is recorded, and nothing fails.
func TestWithoutProviders(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		telemetry, err := dsyncotel.New(nil) // with the global providers, which record nothing
		noErr(t, err)
		s := newSession(t, dsynctest.NewMemory(), &dsync.Options{Hooks: telemetry.Hooks()})
		noErr(t, s.Mutex("k").Do(background, func(context.Context) error { return nil }))
		noErr(t, telemetry.Close())
	})
}
