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
		{"the first in the queue can't be the successor", "Successor/FirstInTheQueue", toSuccessors(func(m *dsynctest.Memory) releaseFunc {
			return func(ctx context.Context, c driver.Claim, o driver.Release) (bool, []driver.Notice, error) {
				if s, _ := m.Load(ctx, c.Key, 1000); s.Waiting > 0 && s.WaitersAhead[0].Claim == o.Successor {
					return true, nil, driver.ErrNotWaiting
				}
				return storecmd.Release(ctx, m, c, o)
			}
		})},
		{"without the successor somebody else is granted", "Successor/NotWaiting", toSuccessors(instead)},
		{"a waiter makes way for its successor", "Successor/OnlyFromAHolder", toSuccessors(func(m *dsynctest.Memory) releaseFunc {
			return func(ctx context.Context, c driver.Claim, o driver.Release) (bool, []driver.Notice, error) {
				found, n, err := storecmd.Release(ctx, m, c, o)
				if err == nil && !found {
					return storecmd.Release(ctx, m, c, driver.Release{})
				}
				return found, n, err
			}
		})},
		{"a repeated Release transfers again", "Successor/RepeatedOrLatePrefersNobody", toSuccessors(func(m *dsynctest.Memory) releaseFunc {
			return func(ctx context.Context, c driver.Claim, o driver.Release) (bool, []driver.Notice, error) {
				if s, _ := m.Load(ctx, c.Key, 1000); len(s.Holders) > 0 {
					c.ID = s.Holders[0].Claim
				}
				found, n, err := storecmd.Release(ctx, m, c, o)
				if errors.Is(err, driver.ErrNotWaiting) {
					return false, nil, nil
				}
				return found, n, err
			}
		})},
		{"the successor is granted beyond the limit", "Successor/FitsOrWaitsAtTheHead", toSuccessors(func(m *dsynctest.Memory) releaseFunc {
			return func(ctx context.Context, c driver.Claim, o driver.Release) (bool, []driver.Notice, error) {
				s, _ := m.Load(ctx, c.Key, 1000)
				found, n, err := storecmd.Release(ctx, m, c, o)
				for _, h := range s.Holders {
					if err == nil {
						storecmd.Release(ctx, m, driver.Claim{Key: c.Key, ID: h.Claim}, driver.Release{})
					}
				}
				return found, n, err
			}
		})},
		{"the successor is granted what is kept", "Successor/NotWithKeep", toSuccessors(func(m *dsynctest.Memory) releaseFunc {
			return func(ctx context.Context, c driver.Claim, o driver.Release) (bool, []driver.Notice, error) {
				o.Keep = 0
				return storecmd.Release(ctx, m, c, o)
			}
		})},
		{"the successor is not notified", "Notice/ReleaseGrantsTheSuccessor", toSuccessors(func(m *dsynctest.Memory) releaseFunc {
			return func(ctx context.Context, c driver.Claim, o driver.Release) (bool, []driver.Notice, error) {
				found, _, err := storecmd.Release(ctx, m, c, o)
				return found, nil, err
			}
		})},
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
