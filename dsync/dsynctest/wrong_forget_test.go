package dsynctest_test

import (
	"context"

	"github.com/leasehold-go/leasehold/dsync/driver"
	"github.com/leasehold-go/leasehold/dsync/dsynctest"
)

// forgets replaces the store's Forget with f, which also gets the key's state before the Forget.
func forgets(f func(ctx context.Context, m *dsynctest.Memory, e driver.Edit, s driver.State) (driver.Edited, error)) func(*dsynctest.Memory, *wrong) {
	return func(m *dsynctest.Memory, w *wrong) {
		w.edit = func(ctx context.Context, e driver.Edit) (driver.Edited, error) {
			if e.Forget == nil {
				return m.Edit(ctx, e)
			}
			s, err := m.Load(ctx, e.Forget.Key, 1000)
			if err != nil {
				return driver.Edited{}, err
			}
			return f(ctx, m, e, s)
		}
	}
}

// wrongForgets are defects of Forget.
func wrongForgets() []plant {
	type edited = driver.Edited
	return []plant{
		{"what Forget has left is kept", "Sweep/DeletesForgottenKeys", forgets(func(context.Context, *dsynctest.Memory, driver.Edit, driver.State) (edited, error) {
			return edited{Found: true}, nil
		})},
	}
}
