package otel_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"

	"github.com/leasehold-go/leasehold/dsync"
	"github.com/leasehold-go/leasehold/dsync/admin"
	"github.com/leasehold-go/leasehold/dsync/driver"
	dsyncotel "github.com/leasehold-go/leasehold/otel"
)

const (
	ttl   = 10 * time.Second
	lease = ttl - ttl/1000 - ttl/20 - ttl/10 // by the local clock: the TTL minus the drift, the margin and the grace
)

var background = context.Background()

// recorded is a Telemetry together with its recordings.
type recorded struct {
	*dsyncotel.Telemetry
	t      testing.TB
	reader *metric.ManualReader
	spans  *tracetest.SpanRecorder
}

func record(t testing.TB, opt dsyncotel.Options) *recorded {
	t.Helper()
	r := &recorded{t: t, reader: metric.NewManualReader(), spans: tracetest.NewSpanRecorder()}
	opt.MeterProvider = metric.NewMeterProvider(metric.WithReader(r.reader))
	opt.TracerProvider = sdktrace.NewTracerProvider(sdktrace.WithSpanProcessor(r.spans))
	var err error
	if r.Telemetry, err = dsyncotel.New(&opt); err != nil {
		t.Fatal(err)
	}
	return r
}

// session returns a session whose hooks are recorded, and which is closed at the end of the test.
func (r *recorded) session(store driver.Store) *dsync.Session {
	return newSession(r.t, store, &dsync.Options{TTL: ttl, Hooks: r.Hooks()})
}

func newSession(t testing.TB, store driver.Store, opt *dsync.Options) *dsync.Session {
	t.Helper()
	s, err := dsync.New(store, opt)
	noErr(t, err)
	t.Cleanup(func() { s.Close(background) })
	return s
}

// metrics returns the recorded metrics.
func (r *recorded) metrics() []metricdata.Metrics {
	r.t.Helper()
	var all metricdata.ResourceMetrics
	if err := r.reader.Collect(background, &all); err != nil {
		r.t.Error(err)
	}
	if len(all.ScopeMetrics) == 0 {
		return nil
	}
	return all.ScopeMetrics[0].Metrics
}

// read returns the recorded metrics whose names begin with prefix, with one line for each time
// series. The line has the value or, for a histogram, the count and the sum.
func (r *recorded) read(prefix string) string {
	r.t.Helper()
	synctest.Wait() // for the hooks
	var lines []string
	for _, m := range r.metrics() {
		if strings.HasPrefix(m.Name, prefix) {
			lines = append(lines, series(r.t, m)...)
		}
	}
	slices.Sort(lines)
	return strings.Join(lines, "\n")
}

func (r *recorded) want(prefix string, want ...string) {
	r.t.Helper()
	slices.Sort(want)
	if got, want := r.read(prefix), strings.Join(want, "\n"); got != want {
		r.t.Errorf("%s:\n%s\nwant:\n%s", prefix, got, want)
	}
}

func series(t testing.TB, m metricdata.Metrics) (lines []string) {
	t.Helper()
	line := func(set attribute.Set, value string) {
		lines = append(lines, fmt.Sprintf("%s{%s} %s", m.Name, set.Encoded(attribute.DefaultEncoder()), value))
	}
	switch data := m.Data.(type) {
	case metricdata.Histogram[float64]:
		for _, p := range data.DataPoints {
			line(p.Attributes, fmt.Sprintf("%d in %.3gs", p.Count, p.Sum))
		}
	case metricdata.Sum[int64]:
		for _, p := range data.DataPoints {
			line(p.Attributes, fmt.Sprint(p.Value))
		}
	case metricdata.Gauge[float64]:
		for _, p := range data.DataPoints {
			line(p.Attributes, fmt.Sprintf("%.4g", p.Value))
		}
	case metricdata.Gauge[int64]:
		for _, p := range data.DataPoints {
			line(p.Attributes, fmt.Sprint(p.Value))
		}
	default:
		t.Fatalf("%s is a %T", m.Name, data)
	}
	return lines
}

// floatGauge returns the value of a gauge with one time series.
func floatGauge(t testing.TB, m metricdata.Metrics) float64 {
	t.Helper()
	data, ok := m.Data.(metricdata.Gauge[float64])
	if !ok || len(data.DataPoints) != 1 {
		t.Fatalf("%s is %+v, want a gauge with one time series", m.Name, m.Data)
	}
	return data.DataPoints[0].Value
}

// seconds formats d like the sum in a histogram's line from read.
func seconds(d time.Duration) string { return fmt.Sprintf("%.3gs", d.Seconds()) }

// broken acquires k, and then breaks it.
func broken(s *dsync.Session) {
	mu := s.Mutex("k")
	mu.Lock()
	var wg sync.WaitGroup
	wg.Go(func() { admin.New(s).Break(background, "k") })
	<-mu.Lost()
	mu.Unlock()
	wg.Wait()
}

// turn locks and unlocks m.
func turn(m *dsync.Mutex) {
	m.Lock()
	defer m.Unlock()
}

// noErr ends the test if err is not nil.
func noErr(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
