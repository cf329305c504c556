package main

import (
	"context"
	"fmt"
	"time"

	"github.com/leasehold-go/leasehold/bench/internal/measure"
)

// A contender is one column's part of a comparison: what is measured, and the unit,
// which is nil for peers: theirs is that of one member.
type contender struct {
	column   column
	op, unit measure.Op
}

// units are the samples of the units, by column.
type units map[column]measure.Sample

// of is the sample of c's unit, or of one member's.
func (u units) of(c column) measure.Sample {
	if s, ok := u[c]; ok {
		return s
	}
	return u[one]
}

// A statistic is one figure of a sample.
type statistic func(measure.Sample) time.Duration

func median(s measure.Sample) time.Duration { return s.Median() }
func p99(s measure.Sample) time.Duration    { return s.Percentile(99) }

// compare interleaves all ops, notes the units' samples, and returns the row with the
// ratios of the medians.
func (r *report) compare(ctx context.Context, line row, n int, u units, cs ...contender) (row, error) {
	samples, err := interleave(ctx, n, u, cs...)
	if err != nil {
		return line, err
	}
	return line.compared(median, byColumn(cs, samples), u), nil
}

// interleave runs all ops in turn, notes the units' samples, and returns the contenders', in their order.
func interleave(ctx context.Context, n int, u units, cs ...contender) ([]measure.Sample, error) {
	var ops []measure.Op
	for _, c := range cs {
		ops = append(ops, c.op)
		if c.unit != nil {
			ops = append(ops, c.unit)
		}
	}
	samples, err := measure.Interleave(ctx, n, ops...)
	if err != nil {
		return nil, err
	}
	var took []measure.Sample
	for _, c := range cs {
		took, samples = append(took, samples[0]), samples[1:]
		if c.unit != nil {
			u[c.column], samples = samples[0], samples[1:]
		}
	}
	return took, nil
}

// byColumn returns the contenders' samples by their columns.
func byColumn(cs []contender, samples []measure.Sample) map[column]measure.Sample {
	took := make(map[column]measure.Sample)
	for i, s := range samples {
		took[cs[i].column] = s
	}
	return took
}

// compared returns the row with a statistic of the samples, by the same of their units.
func (r row) compared(stat statistic, took map[column]measure.Sample, u units) row {
	for c, s := range took {
		r = r.put(c, ratio(stat(s), stat(u.of(c))), milliseconds(stat(s))+by(stat, u[c]))
	}
	return r
}

func by(stat statistic, unit measure.Sample) string {
	if unit == nil {
		return ""
	}
	return " / " + milliseconds(stat(unit))
}

func ratio(a, b time.Duration) string {
	if b == 0 {
		return "no unit"
	}
	return fmt.Sprintf("%.2f", a.Seconds()/b.Seconds())
}

func milliseconds(d time.Duration) string {
	return fmt.Sprintf("%.3g ms", float64(d)/float64(time.Millisecond))
}
