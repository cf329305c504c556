package otel

import (
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"
	"go.opentelemetry.io/otel/trace"
)

// Options are the settings of a [Telemetry]. The zero value of each field is its
// default; a nil *Options is all defaults.
type Options struct {
	// MeterProvider makes the instruments. Default: the global one.
	MeterProvider metric.MeterProvider

	// TracerProvider makes the spans. Nil: there are none.
	TracerProvider trace.TracerProvider

	// Key returns what the attribute leasehold.key of a metric is for a key or an
	// election's name; with "" it is left out. Each value it returns makes time series
	// of its own, so where keys are many it cuts them down: to a prefix, say. It may be
	// called concurrently. Nil: the attribute is left out.
	Key func(key string) string

	// Attributes are added to every measurement and span: what tells the sessions of
	// one process apart, if there are several. None by default.
	Attributes []attribute.KeyValue
}
