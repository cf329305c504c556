package otel_test

import (
	"context"
	"fmt"
	"log"
	"strings"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"

	"github.com/leasehold-go/leasehold/dsync"
	"github.com/leasehold-go/leasehold/dsync/dsynctest"
	"github.com/leasehold-go/leasehold/leader"
	dsyncotel "github.com/leasehold-go/leasehold/otel"
)

// A real program uses an exporter, such as the one for Prometheus or for OTLP, instead of the ManualReader.
func Example() {
	reader := metric.NewManualReader()
	telemetry, err := dsyncotel.New(&dsyncotel.Options{
		MeterProvider: metric.NewMeterProvider(metric.WithReader(reader)),
	})
	if err != nil {
		log.Fatal(err)
	}
	defer telemetry.Close()
	locks, err := dsync.New(dsynctest.NewMemory(), &dsync.Options{Hooks: telemetry.Hooks()})
	if err != nil {
		log.Fatal(err)
	}

	// The program can have hooks of its own, too. Hooks are called a moment after the event.
	recorded := make(chan struct{}, 3)
	locks.AddHooks(&dsync.Hooks{Released: func(dsync.HoldInfo) { recorded <- struct{}{} }})

	for range 3 {
		err := locks.Mutex("invoices").Do(context.Background(), func(context.Context) error { return nil })
		if err != nil {
			log.Fatal(err)
		}
		<-recorded
	}
	if err := locks.Close(context.Background()); err != nil {
		log.Fatal(err)
	}

	var all metricdata.ResourceMetrics
	if err := reader.Collect(context.Background(), &all); err != nil {
		log.Fatal(err)
	}
	for _, m := range all.ScopeMetrics[0].Metrics {
		if sum, ok := m.Data.(metricdata.Sum[int64]); ok && m.Name == "leasehold.grants" {
			fmt.Println(m.Name, sum.DataPoints[0].Value)
		}
	}
	// Output: leasehold.grants 3
}

// Besides metrics of its holds, a process can record spans of its terms, the state of its session, the queue
// of an important key, and how far apart the servers' clocks are.
func ExampleTelemetry() {
	ctx := context.Background()
	reader, spans := metric.NewManualReader(), tracetest.NewSpanRecorder() // a program has exporters
	telemetry, err := dsyncotel.New(&dsyncotel.Options{
		MeterProvider:  metric.NewMeterProvider(metric.WithReader(reader)),
		TracerProvider: sdktrace.NewTracerProvider(sdktrace.WithSpanProcessor(spans)),
		Key: func(key string) string { // one time series for "invoices/7" and "invoices/8"
			prefix, _, _ := strings.Cut(key, "/")
			return prefix
		},
		Attributes: []attribute.KeyValue{attribute.String("database", "eu-1")},
	})
	if err != nil {
		log.Fatal(err)
	}
	defer telemetry.Close()
	locks, err := dsync.New(dsynctest.NewMemory(), &dsync.Options{Hooks: telemetry.Hooks()})
	if err != nil {
		log.Fatal(err)
	}
	defer locks.Close(ctx)
	if _, err := telemetry.ObserveSession(locks); err != nil {
		log.Fatal(err)
	}
	if _, err := telemetry.ObserveQueues(locks, "nightly"); err != nil {
		log.Fatal(err)
	}
	telemetry.RecordClockSpread(ctx, 3*time.Millisecond) // as measured by package clockcheck

	over := make(chan struct{})
	hooks := &leader.Hooks{Lost: func(leader.Term, error) { close(over) }} // the program's own
	election, err := leader.New(locks, "reports", &leader.Options{Hooks: telemetry.LeaderHooks(hooks)})
	if err != nil {
		log.Fatal(err)
	}
	if err := election.Run(ctx, func(context.Context) error { return nil }); err != nil {
		log.Fatal(err)
	}
	<-over

	var all metricdata.ResourceMetrics
	if err := reader.Collect(ctx, &all); err != nil {
		log.Fatal(err)
	}
	recorded := make(map[string]bool)
	for _, m := range all.ScopeMetrics[0].Metrics {
		recorded[m.Name] = true
	}
	for _, name := range []string{"leasehold.leader.terms", "leasehold.listener.ready", "leasehold.queue.length", "leasehold.clock.spread"} {
		fmt.Println(name, recorded[name])
	}
	for _, s := range spans.Ended() {
		if s.Name() == "lead" {
			fmt.Println("a span of the term")
		}
	}
	// Output:
	// leasehold.leader.terms true
	// leasehold.listener.ready true
	// leasehold.queue.length true
	// leasehold.clock.spread true
	// a span of the term
}
