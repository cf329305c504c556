package measure_test

import (
	"context"

	"github.com/leasehold-go/leasehold/bench/internal/measure"
)

// broken is a System whose locks exclude nobody.
type broken struct{}

var _ measure.System = broken{}

func (broken) Open(context.Context) (measure.Process, error)          { return broken{}, nil }
func (broken) Locker(context.Context, string) (measure.Locker, error) { return broken{}, nil }
func (broken) Close() error                                           { return nil }
func (broken) Lock(context.Context) error                             { return nil }
func (broken) Unlock(context.Context) error                           { return nil }
