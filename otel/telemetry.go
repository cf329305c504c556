package otel

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/leasehold-go/leasehold/dsync"
	"github.com/leasehold-go/leasehold/dsync/admin"
	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"
	"go.opentelemetry.io/otel/trace"
)

const scope = "github.com/leasehold-go/leasehold/otel"

// A Telemetry records the hooks of one [dsync.Session] and of the elections on it. Make one with
// [New] for each session; it must not be copied. All methods may be called concurrently.
type Telemetry struct {
	opt    Options
	meter  metric.Meter
	tracer trace.Tracer // nil: no spans
	*instruments
	registered metric.Registration
	spans      spans

	mu        sync.Mutex
	leaseEnds time.Time // when the session's lease ends; zero: not known
}

// New returns a Telemetry, or an error of one of the providers.
func New(opt *Options) (*Telemetry, error) {
	t := &Telemetry{spans: spans{open: make(map[any]open)}}
	if opt != nil {
		t.opt = *opt
	}
	t.opt.Attributes = slices.Clone(t.opt.Attributes)
	if t.opt.MeterProvider == nil {
		t.opt.MeterProvider = otel.GetMeterProvider()
	}
	t.meter = t.opt.MeterProvider.Meter(scope)
	if t.opt.TracerProvider != nil {
		t.tracer = t.opt.TracerProvider.Tracer(scope)
	}
	var err error
	if t.instruments, err = newInstruments(t.meter); err != nil {
		return nil, fmt.Errorf("otel: %w", err)
	}
	t.registered, err = t.meter.RegisterCallback(t.observeLease, t.remaining)
	if err != nil {
		return nil, fmt.Errorf("otel: %w", err)
	}
	return t, nil
}

// Close stops recording leasehold.lease.remaining. Call it when the session has been closed. Further
// calls do nothing.
func (t *Telemetry) Close() error { return t.registered.Unregister() }

func (t *Telemetry) observeLease(_ context.Context, o metric.Observer) error {
	t.mu.Lock()
	ends := t.leaseEnds
	t.mu.Unlock()
	if !ends.IsZero() {
		o.ObserveFloat64(t.remaining, max(0, time.Until(ends).Seconds()), t.with())
	}
	return nil
}

// ObserveQueues records, for each key, the number of waiters in all processes as leasehold.queue.length.
// Each time metrics are collected, s reads each key from the store. The attribute leasehold.key is the
// key itself, so use ObserveQueues for a few important keys only. Recording ends when stop is called or
// s is closed.
func (t *Telemetry) ObserveQueues(s *dsync.Session, keys ...string) (stop func() error, err error) {
	for _, key := range keys {
		if err := dsync.CheckKey(key); err != nil {
			return nil, fmt.Errorf("otel: observe a queue: %w", err)
		}
	}
	keys = slices.Clone(keys)
	r, err := t.meter.RegisterCallback(func(ctx context.Context, o metric.Observer) error {
		var errs []error
		for _, key := range keys {
			st, err := admin.New(s).Status(ctx, key)
			switch {
			case errors.Is(err, dsync.ErrClosed):
				return nil
			case err != nil:
				errs = append(errs, fmt.Errorf("otel: queue of %q: %w", key, err))
			default:
				o.ObserveInt64(t.queue, int64(st.Waiting), t.with(keyAttr.String(key)))
			}
		}
		return errors.Join(errs...)
	}, t.queue)
	if err != nil {
		return nil, fmt.Errorf("otel: observe queues: %w", err)
	}
	return r.Unregister, nil
}

// ObserveSession records whether s gets notices, as leasehold.listener.ready, and how many records the
// store has, as leasehold.store.size. Until stop is called, it records what the session already knows,
// without sending a command.
func (t *Telemetry) ObserveSession(s *dsync.Session) (stop func() error, err error) {
	r, err := t.meter.RegisterCallback(func(_ context.Context, o metric.Observer) error {
		st := admin.New(s).Stats()
		ready := int64(0)
		if st.Listening {
			ready = 1
		}
		o.ObserveInt64(t.listening, ready, t.with(polling(st.Polling)...))
		if st.Records > 0 {
			o.ObserveInt64(t.records, st.Records, t.with())
		}
		return nil
	}, t.listening, t.records)
	if err != nil {
		return nil, fmt.Errorf("otel: observe a session: %w", err)
	}
	return r.Unregister, nil
}

// RecordClockSpread records as leasehold.clock.spread how far apart the servers' clocks are. Package
// clockcheck measures the spread:
//
//	reports, err := clockcheck.Monitor(ctx, client, time.Hour, &clockcheck.Options{Servers: clientOptions})
//	for r := range reports {
//		if len(r.Result.Servers) > 1 {
//			telemetry.RecordClockSpread(ctx, r.Result.Spread)
//		}
//	}
func (t *Telemetry) RecordClockSpread(ctx context.Context, spread time.Duration) {
	t.spread.Record(ctx, spread.Seconds(), t.with())
}

// with returns attrs together with Options.Attributes.
func (t *Telemetry) with(attrs ...attribute.KeyValue) metric.MeasurementOption {
	return metric.WithAttributeSet(attribute.NewSet(slices.Concat(attrs, t.opt.Attributes)...))
}

// key returns the attribute leasehold.key for a key, or nothing if it is left out.
func (t *Telemetry) key(key string) []attribute.KeyValue {
	if t.opt.Key == nil {
		return nil
	}
	if v := t.opt.Key(key); v != "" {
		return []attribute.KeyValue{keyAttr.String(v)}
	}
	return nil
}

// Options are the settings of a [Telemetry]. The zero value of each field is its
// default; a nil *Options is all defaults.
type Options struct {
	// MeterProvider makes the instruments. Default: the global one.
	MeterProvider metric.MeterProvider

	// TracerProvider makes the spans. Default nil: no spans.
	TracerProvider trace.TracerProvider

	// Key returns the value of the attribute leasehold.key for a key or an election's name. If it
	// returns "", the attribute is left out. Each value makes its own time series, so if there are many
	// keys, Key should shorten them, for example to a prefix. It may be called concurrently. Default
	// nil: the attribute is left out.
	Key func(key string) string

	// Attributes are added to every measurement and span, for example to distinguish several
	// sessions of one process. Default: none.
	Attributes []attribute.KeyValue
}
