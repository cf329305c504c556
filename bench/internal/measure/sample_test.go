package measure_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

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

func TestInterleave(t *testing.T) {
	var order strings.Builder
	op := func(name string, d time.Duration) measure.Op {
		return func(context.Context) (time.Duration, error) {
			order.WriteString(name)
			return d, nil
		}
	}
	samples, err := measure.Interleave(t.Context(), 2, op("a", 1), op("b", 5))
	if err != nil {
		t.Fatal(err)
	}
	for round := range slices.Chunk([]byte(order.String()), 2) {
		if s := string(round); s != "ab" && s != "ba" {
			t.Errorf("a round ran %s, want each op once", s)
		}
	}
	if len(samples) != 2 || len(samples[0]) != 2 || samples[0].Median() != 1 || samples[1].Median() != 5 {
		t.Errorf("got %v, want [1 1] and [5 5]", samples)
	}
}

func TestTwice(t *testing.T) {
	n := time.Duration(0)
	op := measure.Twice(func(context.Context) (time.Duration, error) {
		n++
		return n, nil
	})
	if took, err := op(t.Context()); took != 1+2 || err != nil {
		t.Errorf("took %d, %v, want 3", took, err)
	}
	want := errors.New("broken")
	op = measure.Twice(func(context.Context) (time.Duration, error) { return 0, want })
	if _, err := op(t.Context()); !errors.Is(err, want) {
		t.Errorf("got %v, want %v", err, want)
	}
}

func TestInterleaveFails(t *testing.T) {
	want := errors.New("broken")
	op := func(context.Context) (time.Duration, error) { return 0, want }
	if _, err := measure.Interleave(t.Context(), 2, op); !errors.Is(err, want) {
		t.Errorf("got %v, want %v", err, want)
	}
}
