package dsynctest_test

import (
	"context"
	"errors"

	"github.com/leasehold-go/leasehold/dsync/driver"
	"github.com/leasehold-go/leasehold/dsync/dsynctest"
	"github.com/leasehold-go/leasehold/internal/storecmd"
)

// A releaseFunc executes a Release.
type releaseFunc = func(ctx context.Context, c driver.Claim, o driver.Release) (bool, []driver.Notice, error)

// toSuccessors lets another function execute each Release with a Successor. do returns that function.
func toSuccessors(do func(m *dsynctest.Memory) releaseFunc) func(*dsynctest.Memory, *wrong) {
	return func(m *dsynctest.Memory, w *wrong) {
		special := do(m)
		w.release = func(ctx context.Context, c driver.Claim, o driver.Release) (bool, []driver.Notice, error) {
			if o.Successor == "" {
				return storecmd.Release(ctx, m, c, o)
			}
			return special(ctx, c, o)
		}
	}
}

// wrongSuccessors are defects of Release with a successor.
func wrongSuccessors() []plant {
	ignored := func(m *dsynctest.Memory) releaseFunc {
		return func(ctx context.Context, c driver.Claim, o driver.Release) (bool, []driver.Notice, error) {
			o.Successor = ""
			return storecmd.Release(ctx, m, c, o)
		}
	}
	instead := func(m *dsynctest.Memory) releaseFunc {
		return func(ctx context.Context, c driver.Claim, o driver.Release) (bool, []driver.Notice, error) {
			found, n, err := storecmd.Release(ctx, m, c, o)
			if errors.Is(err, driver.ErrNotWaiting) {
				return storecmd.Release(ctx, m, c, driver.Release{})
			}
			return found, n, err
		}
	}
	return []plant{
		{"the successor is ignored", "Successor/GrantedInTheSameCommand", toSuccessors(ignored)},
		{"without the successor somebody else is granted", "Successor/NotWaiting", toSuccessors(instead)},
		{"a late Release grants the successor what others hold", "Late/EveryRequestTwiceAfterEveryLaterOne_B31", toSuccessors(func(m *dsynctest.Memory) releaseFunc {
			return func(ctx context.Context, c driver.Claim, o driver.Release) (bool, []driver.Notice, error) {
				found, n, err := storecmd.Release(ctx, m, c, o)
				if s, _ := m.Load(ctx, c.Key, 1000); err == nil && !found && len(s.Holders) > 0 {
					c.ID = s.Holders[0].Claim
					return storecmd.Release(ctx, m, c, driver.Release{})
				}
				return found, n, err
			}
		})},
	}
}
