package main

import (
	"context"
	"fmt"
	"strconv"

	"github.com/leasehold-go/leasehold/bench/internal/measure"
	"github.com/leasehold-go/leasehold/dsync"
)

// sweep measures the deletion of a key that was used once, relative to its Lock and Unlock.
func (r *report) sweep(ctx context.Context) ([]row, error) {
	line := row{name: "Sweep, per deleted key", unit: "Lock and Unlock of a new key"}
	if !r.lab.here[one] {
		return []row{line}, nil
	}
	t, err := r.lab.target(one)
	if err != nil {
		return nil, err
	}
	defer t.Close(context.WithoutCancel(ctx))
	swept, err := measure.Sweep(ctx, t.Counted(), r.effort.keys)
	if err != nil {
		return nil, err
	}
	s, err := t.Session(ctx, dsync.Options{Retention: -1})
	if err != nil {
		return nil, err
	}
	defer s.Close(context.WithoutCancel(ctx))
	var used measure.Sample
	for i := range r.effort.turns {
		took, err := measure.LockUnlock(measure.LockerOf(s.Mutex("new " + strconv.Itoa(i))))(ctx)
		if err != nil {
			return nil, err
		}
		used = append(used, took)
	}
	each := swept.Total().Seconds() / float64(swept.Deleted)
	return []row{
		line.put(one, quotient(each, used.Median().Seconds()), fmt.Sprintf("%.3f ms / %.2f ms; %.1f %% of the time at 100 new keys/s; %.3f commands; a slice %.1f ms, at most %.1f ms",
			1e3*each, 1e3*used.Median().Seconds(), 100*100*each, float64(swept.Commands)/float64(swept.Deleted),
			1e3*swept.Slices.Median().Seconds(), 1e3*swept.Slices.Max().Seconds())),
	}, nil
}
