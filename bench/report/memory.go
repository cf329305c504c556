package main

import (
	"context"
	"fmt"

	"github.com/leasehold-go/leasehold/bench/internal/measure"
)

// memory measures the memory of held locks and of waiting goroutines in this process.
func (r *report) memory(context.Context) ([]row, error) {
	n := r.effort.inMemory
	held, err := measure.HeldMemory(n)
	if err != nil {
		return nil, err
	}
	same, err := measure.WaiterMemory(n, measure.OneKey)
	if err != nil {
		return nil, err
	}
	own, err := measure.WaiterMemory(n, measure.OwnKeys)
	if err != nil {
		return nil, err
	}
	const unit = "bytes of the client, stacks included"
	bytes := func(name string, b float64) row {
		return row{name: fmt.Sprintf(name, n), unit: unit}.put(one, fmt.Sprintf("%.0f", b), fmt.Sprintf("%.0f B", b))
	}
	return []row{
		bytes("Memory of a held lock, of %d (store in memory)", held),
		bytes("Memory of a waiting goroutine, of %d for one key", same),
		bytes("Memory of a waiting goroutine, of %d for keys of their own", own),
	}, nil
}
