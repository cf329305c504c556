package dsynctest_test

import (
	"context"
	"errors"

	"github.com/leasehold-go/leasehold/dsync/driver"
	"github.com/leasehold-go/leasehold/dsync/dsynctest"
)

// A releaseFunc is a method Release.
type releaseFunc = func(ctx context.Context, c driver.Claim, o driver.ReleaseOptions) (bool, []driver.Notice, error)

// toSuccessors plants a Release that does something else if a successor is named.
func toSuccessors(do func(m *dsynctest.Memory) releaseFunc) func(*dsynctest.Memory, *wrong) {
	return func(m *dsynctest.Memory, w *wrong) {
		special := do(m)
		w.release = func(ctx context.Context, c driver.Claim, o driver.ReleaseOptions) (bool, []driver.Notice, error) {
			if o.Successor == "" {
				return m.Release(ctx, c, o)
			}
			return special(ctx, c, o)
		}
	}
}

// wrongSuccessors are defects of Release with a successor.
func wrongSuccessors() []plant {
	ignored := func(m *dsynctest.Memory) releaseFunc {
		return func(ctx context.Context, c driver.Claim, o driver.ReleaseOptions) (bool, []driver.Notice, error) {
			o.Successor = ""
			return m.Release(ctx, c, o)
		}
	}
	instead := func(m *dsynctest.Memory) releaseFunc {
		return func(ctx context.Context, c driver.Claim, o driver.ReleaseOptions) (bool, []driver.Notice, error) {
			found, n, err := m.Release(ctx, c, o)
			if errors.Is(err, driver.ErrNotWaiting) {
				return m.Release(ctx, c, driver.ReleaseOptions{})
			}
			return found, n, err
		}
	}
	return []plant{
		{"the successor is ignored", "Successor/GrantedInTheSameCommand", toSuccessors(ignored)},
		{"the waiters ahead of the successor lose their places", "Successor/GrantedInTheSameCommand", toSuccessors(func(m *dsynctest.Memory) releaseFunc {
			return func(ctx context.Context, c driver.Claim, o driver.ReleaseOptions) (bool, []driver.Notice, error) {
				s, _ := m.Load(ctx, c.Key)
				for _, w := range s.WaitersAhead {
					if w.Claim == o.Successor {
						break
					}
					m.Release(ctx, driver.Claim{Key: c.Key, ID: w.Claim}, driver.ReleaseOptions{})
				}
				return m.Release(ctx, c, o)
			}
		})},
		{"the first in the queue can't be the successor", "Successor/FirstInTheQueue", toSuccessors(func(m *dsynctest.Memory) releaseFunc {
			return func(ctx context.Context, c driver.Claim, o driver.ReleaseOptions) (bool, []driver.Notice, error) {
				if s, _ := m.Load(ctx, c.Key); s.Waiting > 0 && s.WaitersAhead[0].Claim == o.Successor {
					return true, nil, driver.ErrNotWaiting
				}
				return m.Release(ctx, c, o)
			}
		})},
		{"without the successor somebody else is granted", "Successor/NotWaiting", toSuccessors(instead)},
		{"a missing successor is no error", "Successor/NotWaiting", toSuccessors(func(m *dsynctest.Memory) releaseFunc {
			return func(ctx context.Context, c driver.Claim, o driver.ReleaseOptions) (bool, []driver.Notice, error) {
				found, n, err := m.Release(ctx, c, o)
				if errors.Is(err, driver.ErrNotWaiting) {
					return true, n, nil
				}
				return found, n, err
			}
		})},
		{"a waiter makes way for its successor", "Successor/OnlyFromAHolder", toSuccessors(func(m *dsynctest.Memory) releaseFunc {
			return func(ctx context.Context, c driver.Claim, o driver.ReleaseOptions) (bool, []driver.Notice, error) {
				found, n, err := m.Release(ctx, c, o)
				if err == nil && !found {
					return m.Release(ctx, c, driver.ReleaseOptions{})
				}
				return found, n, err
			}
		})},
		{"a repeated Release transfers again", "Successor/RepeatedOrLatePrefersNobody", toSuccessors(func(m *dsynctest.Memory) releaseFunc {
			return func(ctx context.Context, c driver.Claim, o driver.ReleaseOptions) (bool, []driver.Notice, error) {
				if s, _ := m.Load(ctx, c.Key); len(s.Holders) > 0 {
					c.ID = s.Holders[0].Claim
				}
				found, n, err := m.Release(ctx, c, o)
				if errors.Is(err, driver.ErrNotWaiting) {
					return false, nil, nil
				}
				return found, n, err
			}
		})},
		{"the successor is granted beyond the limit", "Successor/FitsOrWaitsAtTheHead", toSuccessors(func(m *dsynctest.Memory) releaseFunc {
			return func(ctx context.Context, c driver.Claim, o driver.ReleaseOptions) (bool, []driver.Notice, error) {
				s, _ := m.Load(ctx, c.Key)
				found, n, err := m.Release(ctx, c, o)
				for _, h := range s.Holders {
					if err == nil {
						m.Release(ctx, driver.Claim{Key: c.Key, ID: h.Claim}, driver.ReleaseOptions{})
					}
				}
				return found, n, err
			}
		})},
		{"the successor is granted what is kept", "Successor/NotWithKeep", toSuccessors(func(m *dsynctest.Memory) releaseFunc {
			return func(ctx context.Context, c driver.Claim, o driver.ReleaseOptions) (bool, []driver.Notice, error) {
				o.Keep = 0
				return m.Release(ctx, c, o)
			}
		})},
		{"the successor is not notified", "Notice/ReleaseGrantsTheSuccessor", toSuccessors(func(m *dsynctest.Memory) releaseFunc {
			return func(ctx context.Context, c driver.Claim, o driver.ReleaseOptions) (bool, []driver.Notice, error) {
				found, _, err := m.Release(ctx, c, o)
				return found, nil, err
			}
		})},
		{"a late Release grants the successor what others hold", "Late/EveryRequestTwiceAfterEveryLaterOne_B31", toSuccessors(func(m *dsynctest.Memory) releaseFunc {
			return func(ctx context.Context, c driver.Claim, o driver.ReleaseOptions) (bool, []driver.Notice, error) {
				found, n, err := m.Release(ctx, c, o)
				if s, _ := m.Load(ctx, c.Key); err == nil && !found && len(s.Holders) > 0 {
					c.ID = s.Holders[0].Claim
					return m.Release(ctx, c, driver.ReleaseOptions{})
				}
				return found, n, err
			}
		})},
	}
}
