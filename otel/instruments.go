package otel

import (
	"context"
	"errors"
	"fmt"

	"github.com/leasehold-go/leasehold/dsync"
	"github.com/leasehold-go/leasehold/dsync/driver"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"
)

// instruments has the metrics that the package's documentation lists.
type instruments struct {
	acquire       metric.Float64Histogram
	grants        metric.Int64Counter
	holds         metric.Int64UpDownCounter
	hold          metric.Float64Histogram
	losses        metric.Int64Counter
	heartbeat     metric.Float64Histogram
	remaining     metric.Float64ObservableGauge
	sessions      metric.Int64Counter
	sessionLosses metric.Int64Counter
	storeErrors   metric.Int64Counter
	jumps         metric.Int64Counter
	deadlocks     metric.Int64Counter
	queue         metric.Int64ObservableGauge
	listening     metric.Int64ObservableGauge
	records       metric.Int64ObservableGauge
	spread        metric.Float64Gauge
	leading       metric.Int64UpDownCounter
	terms         metric.Int64Counter
	term          metric.Float64Histogram
}

// quick and slow return bucket boundaries for short and for long durations, in seconds.
func quick() metric.HistogramOption {
	return metric.WithExplicitBucketBoundaries(.0005, .001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 30, 60, 300)
}

func slow() metric.HistogramOption {
	return metric.WithExplicitBucketBoundaries(.001, .01, .1, 1, 5, 15, 60, 300, 900, 3600, 4*3600, 24*3600)
}

func newInstruments(m metric.Meter) (*instruments, error) {
	var errs []error
	seconds := metric.WithUnit("s")
	histogram := func(name, text string, buckets metric.HistogramOption) metric.Float64Histogram {
		i, err := m.Float64Histogram(name, seconds, metric.WithDescription(text), buckets)
		errs = append(errs, err)
		return i
	}
	counter := func(name, unit, text string) metric.Int64Counter {
		i, err := m.Int64Counter(name, metric.WithUnit(unit), metric.WithDescription(text))
		errs = append(errs, err)
		return i
	}
	upDown := func(name, unit, text string) metric.Int64UpDownCounter {
		i, err := m.Int64UpDownCounter(name, metric.WithUnit(unit), metric.WithDescription(text))
		errs = append(errs, err)
		return i
	}
	i := &instruments{
		acquire:       histogram("leasehold.acquire.duration", "Time from the call to the grant of a hold.", quick()),
		grants:        counter("leasehold.grants", "{grant}", "Holds that began, granted by the store or handed off within the process."),
		holds:         upDown("leasehold.hold.active", "{hold}", "Holds of this process."),
		hold:          histogram("leasehold.hold.duration", "Time from the grant of a hold to its end.", slow()),
		losses:        counter("leasehold.hold.losses", "{hold}", "Holds that ended before their holder ended them."),
		heartbeat:     histogram("leasehold.heartbeat.duration", "Time that heartbeats took.", quick()),
		sessions:      counter("leasehold.session.starts", "{session}", "Identities that this process had in the store."),
		sessionLosses: counter("leasehold.session.losses", "{session}", "Identities in the store that were lost, with all their holds except leases."),
		storeErrors:   counter("leasehold.store.errors", "{error}", "Commands that failed."),
		jumps:         counter("leasehold.clock.jumps", "{jump}", "Jumps of the store's clock by more than the margin."),
		deadlocks:     counter("leasehold.deadlocks", "{deadlock}", "Possible deadlocks that this process is in."),
		leading:       upDown("leasehold.leader.leading", "{election}", "Elections that this process leads."),
		terms:         counter("leasehold.leader.terms", "{term}", "Terms of this process."),
		term:          histogram("leasehold.leader.term.duration", "Time from the election of this process to the end of its term.", slow()),
	}
	var err error
	i.remaining, err = m.Float64ObservableGauge("leasehold.lease.remaining", seconds,
		metric.WithDescription("Time left of the session's lease."))
	errs = append(errs, err)
	i.queue, err = m.Int64ObservableGauge("leasehold.queue.length", metric.WithUnit("{claim}"),
		metric.WithDescription("Claims that wait in the queue for a key, of all processes."))
	errs = append(errs, err)
	i.listening, err = m.Int64ObservableGauge("leasehold.listener.ready", metric.WithUnit("{listener}"),
		metric.WithDescription("Whether the session gets notices."))
	errs = append(errs, err)
	i.records, err = m.Int64ObservableGauge("leasehold.store.size", metric.WithUnit("{record}"),
		metric.WithDescription("Records of keys and sessions in the store, by the last round of sweeping."))
	errs = append(errs, err)
	i.spread, err = m.Float64Gauge("leasehold.clock.spread", seconds,
		metric.WithDescription("Greatest difference between the clocks of two servers."))
	errs = append(errs, err)
	return i, errors.Join(errs...)
}

const (
	keyAttr       = attribute.Key("leasehold.key")
	kindAttr      = attribute.Key("leasehold.kind")
	sourceAttr    = attribute.Key("leasehold.grant.source")
	tokenAttr     = attribute.Key("leasehold.fencing_token")
	termAttr      = attribute.Key("leasehold.leader.term.number")
	operationAttr = attribute.Key("leasehold.store.operation")
	directionAttr = attribute.Key("leasehold.clock.direction")
	errorAttr     = attribute.Key("error.type")
)

// ended returns the error.type for a hold, a session or a term that was lost because of cause.
func ended(cause error) attribute.KeyValue {
	switch {
	case errors.Is(cause, dsync.ErrRevoked):
		return errorAttr.String("revoked")
	case errors.Is(cause, dsync.ErrStalled):
		return errorAttr.String("stalled")
	case errors.Is(cause, dsync.ErrRecordDeleted):
		return errorAttr.String("record_deleted")
	case errors.Is(cause, dsync.ErrClosed):
		return errorAttr.String("closed")
	case errors.Is(cause, driver.ErrSessionExpired):
		return errorAttr.String("session_expired")
	}
	return errorAttr.String("expired")
}

// polling returns the error.type that says why a session polls, or nothing if the session does not poll.
func polling(err error) []attribute.KeyValue {
	if errors.Is(err, errors.ErrUnsupported) {
		return []attribute.KeyValue{errorAttr.String("unsupported")}
	}
	return failed(err)
}

// failed returns the error.type of a command that failed, or nothing if it succeeded. It uses the
// type of the innermost error, because a wrapper's type does not describe the failure.
func failed(err error) []attribute.KeyValue {
	switch {
	case err == nil:
		return nil
	case errors.Is(err, context.DeadlineExceeded):
		return []attribute.KeyValue{errorAttr.String("timeout")}
	}
	for inner := errors.Unwrap(err); inner != nil; inner = errors.Unwrap(err) {
		err = inner
	}
	return []attribute.KeyValue{errorAttr.String(fmt.Sprintf("%T", err))}
}
