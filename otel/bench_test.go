package otel_test

import (
	"testing"
	"time"

	"go.opentelemetry.io/otel/sdk/metric"

	"github.com/leasehold-go/leasehold/dsync"
	"github.com/leasehold-go/leasehold/dsync/driver"
	dsyncotel "github.com/leasehold-go/leasehold/otel"
)

// BenchmarkHold measures the time to record one hold, from its grant to its end, on the goroutine that
// calls the hooks.
func BenchmarkHold(b *testing.B) {
	telemetry, err := dsyncotel.New(&dsyncotel.Options{
		MeterProvider: metric.NewMeterProvider(metric.WithReader(metric.NewManualReader())),
	})
	noErr(b, err)
	hooks := telemetry.Hooks()
	b.ReportAllocs()
	token := int64(0)
	for b.Loop() {
		token++
		hooks.Granted(dsync.HoldInfo{Key: "k", Kind: driver.KindMutex, Token: token, Local: true})
		hooks.Released(dsync.HoldInfo{Key: "k", Kind: driver.KindMutex, Token: token, Held: time.Millisecond})
	}
}
