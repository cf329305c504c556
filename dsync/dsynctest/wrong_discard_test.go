package dsynctest_test

import (
	"context"

	"github.com/leasehold-go/leasehold/dsync/driver"
	"github.com/leasehold-go/leasehold/dsync/dsynctest"
)

// wrongDiscards are defects of Discard.
func wrongDiscards() []plant {
	// discard changes the claims of each Discard.
	discard := func(change func(m *dsynctest.Memory, claims []driver.Claim) []driver.Claim) func(*dsynctest.Memory, *wrong) {
		return func(m *dsynctest.Memory, w *wrong) {
			w.discard = func(ctx context.Context, claims []driver.Claim) ([]driver.Notice, error) {
				return m.Discard(ctx, change(m, claims))
			}
		}
	}
	return []plant{
		{"Discard is for the first claim only", "Discard/LetsTheNextIn", discard(func(_ *dsynctest.Memory, claims []driver.Claim) []driver.Claim {
			return claims[:1]
		})},
	}
}
