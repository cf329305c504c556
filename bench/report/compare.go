package main

import (
	"context"
	"fmt"
	"time"

	"github.com/leasehold-go/leasehold/bench/internal/measure"
)

// A contender is one column's part of a comparison. The figure is op's time divided by unit's time. For other systems,
// unit is nil, and their times are divided by the time of column one's unit. If early is not nil, it measures the
// commands of op without the library.
type contender struct {
	column          column
	op, unit, early measure.Op
}

// units holds the samples of the units, by column.
type units map[column]measure.Sample

// of returns the sample of c's unit, or of column one's unit if c has none.
func (u units) of(c column) measure.Sample {
	if s, ok := u[c]; ok {
		return s
	}
	return u[one]
}

// A statistic is one number computed from a sample.
type statistic func(measure.Sample) time.Duration

func median(s measure.Sample) time.Duration { return s.Median() }
func p99(s measure.Sample) time.Duration    { return s.Percentile(99) }

// compare runs the contenders' ops in turn and stores the samples of their units in u. It returns the
// given row with the ratios of the medians.
func (r *report) compare(ctx context.Context, line row, n int, u units, cs ...contender) (row, error) {
	took, _, err := interleave(ctx, n, u, cs...)
	return line.compared(median, took, u), err
}

// interleave runs the contenders' ops in turn and stores the samples of their units in u. It returns
// the samples of op and of early, by column.
func interleave(ctx context.Context, n int, u units, cs ...contender) (took, early map[column]measure.Sample, err error) {
	took, early = make(map[column]measure.Sample), make(map[column]measure.Sample)
	var ops []measure.Op
	var notes []func(measure.Sample)
	add := func(op measure.Op, to map[column]measure.Sample, c column) {
		if op != nil {
			ops, notes = append(ops, op), append(notes, func(s measure.Sample) { to[c] = s })
		}
	}
	for _, c := range cs {
		add(c.op, took, c.column)
		add(c.unit, u, c.column)
		add(c.early, early, c.column)
	}
	samples, err := measure.Interleave(ctx, n, ops...)
	if err != nil {
		return nil, nil, err
	}
	for i, s := range samples {
		notes[i](s)
	}
	return took, early, nil
}

// compared returns the row with a figure for each sample in took: the statistic of the sample,
// divided by the same statistic of its unit.
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
