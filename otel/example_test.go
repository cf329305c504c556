package otel_test

import (
	"context"
	"fmt"
	"log"

	"go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"

	"github.com/leasehold-go/leasehold/dsync"
	"github.com/leasehold-go/leasehold/dsync/dsynctest"
	dsyncotel "github.com/leasehold-go/leasehold/otel"
)

// The metrics of a session. A program reads them with an exporter, as of Prometheus
// or OTLP, in place of the ManualReader.
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

	// A program's own hooks go beside them. They are called a moment after the event.
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
