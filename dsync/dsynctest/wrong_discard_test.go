package dsynctest_test

import (
	"context"

	"github.com/leasehold-go/leasehold/dsync/driver"
	"github.com/leasehold-go/leasehold/dsync/dsynctest"
	"github.com/leasehold-go/leasehold/internal/storecmd"
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
		{"Discard removes what was kept", "Discard/LeavesWhatWasKept", func(m *dsynctest.Memory, w *wrong) {
			w.discard = func(ctx context.Context, claims []driver.Claim) (notices []driver.Notice, err error) {
				for _, c := range claims {
					storecmd.Release(ctx, m, c, driver.Release{})
				}
				return nil, nil
			}
		}},
		{"Discard leaves the queue alone", "Discard/FromTheQueue", discard(func(m *dsynctest.Memory, claims []driver.Claim) []driver.Claim {
			var held []driver.Claim
			for _, c := range claims {
				if st, _ := m.Load(context.Background(), c.Key, 1000); holds(st, c) {
					held = append(held, c)
				}
			}
			return held
		})},
		{"Discard frees the key whoever holds it", "Discard/OfWhatIsGoneChangesNothing", discard(func(m *dsynctest.Memory, claims []driver.Claim) []driver.Claim {
			for i, c := range claims {
				if st, _ := m.Load(context.Background(), c.Key, 1000); len(st.Holders) > 0 {
					claims[i].ID = st.Holders[0].Claim
				}
			}
			return claims
		})},
	}
}
