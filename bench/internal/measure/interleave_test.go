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
			t.Errorf("a round of %s, want each once", s)
		}
	}
	if len(samples) != 2 || len(samples[0]) != 2 || samples[0].Median() != 1 || samples[1].Median() != 5 {
		t.Errorf("got %v, want twice 1, and twice 5", samples)
	}
}

func TestInterleaveFails(t *testing.T) {
	want := errors.New("broken")
	op := func(context.Context) (time.Duration, error) { return 0, want }
	if _, err := measure.Interleave(t.Context(), 2, op); !errors.Is(err, want) {
		t.Errorf("got %v, want %v", err, want)
	}
}
