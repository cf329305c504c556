package dsynctest_test

import (
	"context"
	"time"

	"github.com/leasehold-go/leasehold/dsync/driver"
	"github.com/leasehold-go/leasehold/dsync/dsynctest"
	"github.com/leasehold-go/leasehold/internal/storecmd"
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
		{"Forget deletes the record", "Forget/SealGoesAndTokensGrowOn", forgets(func(ctx context.Context, m *dsynctest.Memory, e driver.Edit, _ driver.State) (edited, error) {
			done, err := m.Edit(ctx, e)
			turn, _ := m.Sweep(ctx, "wrong", driver.SweepState{Turn: -1}, 0)
			m.Sweep(ctx, "wrong", turn, -time.Hour)
			return done, err
		})},
		{"Forget keeps the terms", "Forget/TermsCountFromOne", forgets(func(ctx context.Context, m *dsynctest.Memory, e driver.Edit, s driver.State) (edited, error) {
			if s.Term > 0 {
				return edited{Found: true}, nil
			}
			return m.Edit(ctx, e)
		})},
		{"Forget keeps the former limits", "Forget/FormerLimitsAreUnknown", forgets(func(ctx context.Context, m *dsynctest.Memory, e driver.Edit, s driver.State) (edited, error) {
			if s.Kind == driver.KindMutex {
				return edited{Found: true}, nil
			}
			return m.Edit(ctx, e)
		})},
		{"Forget removes the holders", "Forget/KeyInUseStays", forgets(func(ctx context.Context, m *dsynctest.Memory, e driver.Edit, s driver.State) (edited, error) {
			for _, h := range s.Holders {
				storecmd.Release(ctx, m, driver.Claim{Key: s.Key, ID: h.Claim}, driver.Release{})
			}
			return m.Edit(ctx, e)
		})},
		{"Forget waits for the session of a holder whose end has come", "Forget/HolderWhoseEndHasComeIsNone", forgets(func(ctx context.Context, m *dsynctest.Memory, e driver.Edit, s driver.State) (edited, error) {
			if len(s.Holders) > 0 {
				return edited{}, nil
			}
			return m.Edit(ctx, e)
		})},
		{"Forget ignores the token", "Forget/OtherTokenForgetsNothing", forgets(func(ctx context.Context, m *dsynctest.Memory, e driver.Edit, s driver.State) (edited, error) {
			e.Forget.Token = s.Token
			return m.Edit(ctx, e)
		})},
		{"Forget notifies nobody", "Notice/ChangeByForget", forgets(func(ctx context.Context, m *dsynctest.Memory, e driver.Edit, _ driver.State) (edited, error) {
			done, err := m.Edit(ctx, e)
			done.Notices = nil
			return done, err
		})},
		{"what Forget has left is kept", "Sweep/DeletesForgottenKeys", forgets(func(context.Context, *dsynctest.Memory, driver.Edit, driver.State) (edited, error) {
			return edited{Found: true}, nil
		})},
	}
}
