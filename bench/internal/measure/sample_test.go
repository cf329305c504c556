package measure_test

import (
	"testing"

	"github.com/leasehold-go/leasehold/bench/internal/measure"
)

func TestSample(t *testing.T) {
	for _, tt := range []struct {
		sample      measure.Sample
		median, max int
	}{
		{nil, 0, 0},
		{measure.Sample{7}, 7, 7},
		{measure.Sample{9, 1}, 5, 9},
		{measure.Sample{9, 1, 2}, 2, 9},
		{measure.Sample{100, 1, 4, 2}, 3, 100},
	} {
		if got := int(tt.sample.Median()); got != tt.median {
			t.Errorf("%v: median %d, want %d", tt.sample, got, tt.median)
		}
		if got := int(tt.sample.Max()); got != tt.max {
			t.Errorf("%v: max %d, want %d", tt.sample, got, tt.max)
		}
		if got := int(tt.sample.Percentile(99)); got != tt.max {
			t.Errorf("%v: percentile 99 is %d, want %d", tt.sample, got, tt.max)
		}
	}
}
