package dsynctest_test

import (
	"context"

	"github.com/leasehold-go/leasehold/dsync/driver"
	"github.com/leasehold-go/leasehold/dsync/dsynctest"
)

// wrongEdits are defects of Edit itself.
func wrongEdits() []plant {
	return []plant{
		{"a Release beside other parts is ignored", "Edit/RefusesPartsThatCannotBeCombined", func(m *dsynctest.Memory, w *wrong) {
			w.edit = func(ctx context.Context, e driver.Edit) (driver.Edited, error) {
				if e.Check() != nil && e.Acquire != nil {
					e = driver.Edit{Acquire: e.Acquire}
				}
				return m.Edit(ctx, e)
			}
		}},
	}
}
