package dsynctest_test

import (
	"context"
	"errors"
	"time"

	"github.com/leasehold-go/leasehold/dsync/driver"
	"github.com/leasehold-go/leasehold/dsync/dsynctest"
	"github.com/leasehold-go/leasehold/internal/storecmd"
)

type resizing func(ctx context.Context, key string, kind driver.Kind, from, limit int64) ([]driver.Notice, error)

// wrongResizes are defects of Resize.
func wrongResizes() []plant {
	return []plant{
		{"Resize grants nothing", "Resize/GrowsAndGrants", func(m *dsynctest.Memory, w *wrong) {
			grow := make(map[string]func())
			w.resize = func(ctx context.Context, key string, kind driver.Kind, from, limit int64) ([]driver.Notice, error) {
				grow[key] = func() { storecmd.Resize(ctx, m, key, kind, from, limit) }
				return nil, nil
			}
			w.acquire = func(ctx context.Context, c driver.Claim, wait bool, expired []string, notAfter time.Time) (driver.State, []driver.Notice, error) {
				if f := grow[c.Key]; f != nil {
					f()
				}
				return storecmd.Acquire(ctx, m, c, wait, expired, notAfter)
			}
		}},
		{"Resize can't shrink", "Resize/ShrinksAndBlocksUntilTheyFit", resized(func(m *dsynctest.Memory) resizing {
			return func(ctx context.Context, key string, kind driver.Kind, from, limit int64) ([]driver.Notice, error) {
				if s, _ := m.Load(ctx, key, 1000); weight(s) > limit {
					return nil, driver.ErrRefused
				}
				return storecmd.Resize(ctx, m, key, kind, from, limit)
			}
		})},
		{"Resize drops holders that do not fit", "Resize/ShrinksAndBlocksUntilTheyFit", resized(func(m *dsynctest.Memory) resizing {
			return func(ctx context.Context, key string, kind driver.Kind, from, limit int64) ([]driver.Notice, error) {
				s, _ := m.Load(ctx, key, 1000)
				for sum := weight(s); sum > limit; s.Holders = s.Holders[1:] {
					sum -= s.Holders[0].Weight
					storecmd.Release(ctx, m, driver.Claim{Key: key, ID: s.Holders[0].Claim}, driver.Release{})
				}
				return storecmd.Resize(ctx, m, key, kind, from, limit)
			}
		})},
		{"holders count as one in a smaller key", "Resize/ShrinksAndBlocksUntilTheyFit", func(m *dsynctest.Memory, w *wrong) {
			w.release = func(ctx context.Context, c driver.Claim, o driver.Release) (bool, []driver.Notice, error) {
				found, n, err := storecmd.Release(ctx, m, c, o)
				if s, _ := m.Load(ctx, c.Key, 1000); int64(len(s.Holders)) <= s.Limit && s.Waiting > 0 {
					storecmd.Resize(ctx, m, c.Key, s.Kind, 0, 9)
					storecmd.Resize(ctx, m, c.Key, s.Kind, 0, s.Limit)
				}
				return found, n, err
			}
		}},
		{"holders above the limit can't repeat", "Resize/HolderMayRepeat", refusing(func(s driver.State, c driver.Claim) bool { return c.Weight > s.Limit })},
		{"Resize refuses silently", "Resize/WaitingWeightTooGreatIsRefused", resized(func(m *dsynctest.Memory) resizing {
			return func(ctx context.Context, key string, kind driver.Kind, from, limit int64) ([]driver.Notice, error) {
				if n, err := storecmd.Resize(ctx, m, key, kind, from, limit); !errors.Is(err, driver.ErrRefused) {
					return n, err
				}
				return nil, nil
			}
		})},
		{"Resize ignores the kind", "Resize/OtherKindIsMismatch", resized(func(m *dsynctest.Memory) resizing {
			return func(ctx context.Context, key string, kind driver.Kind, from, limit int64) ([]driver.Notice, error) {
				if s, _ := m.Load(ctx, key, 1000); s.Kind != "" {
					kind = s.Kind
				}
				return storecmd.Resize(ctx, m, key, kind, from, limit)
			}
		})},
		{"Acquire of a free key forgets its limits", "Resize/FormerLimitIsKept", func(m *dsynctest.Memory, w *wrong) {
			w.acquire = func(ctx context.Context, c driver.Claim, wait bool, expired []string, notAfter time.Time) (driver.State, []driver.Notice, error) {
				if s, _ := m.Load(ctx, c.Key, 1000); len(s.Holders)+s.Waiting == 0 && s.Limit == c.Limit {
					storecmd.Forget(ctx, m, c.Key, s.Token)
				}
				return storecmd.Acquire(ctx, m, c, wait, expired, notAfter)
			}
		}},
		{"Resize repeated drops the queue", "Resize/RepeatedChangesNothing", resized(func(m *dsynctest.Memory) resizing {
			return func(ctx context.Context, key string, kind driver.Kind, from, limit int64) ([]driver.Notice, error) {
				if s, _ := m.Load(ctx, key, 1000); s.Limit == limit {
					for _, w := range s.WaitersAhead {
						storecmd.Release(ctx, m, driver.Claim{Key: key, ID: w.Claim}, driver.Release{})
					}
				}
				return storecmd.Resize(ctx, m, key, kind, from, limit)
			}
		})},
		{"Resize adds", "Late/EveryRequestTwiceAfterEveryLaterOne_B31", resized(func(m *dsynctest.Memory) resizing {
			return func(ctx context.Context, key string, kind driver.Kind, from, limit int64) ([]driver.Notice, error) {
				s, _ := m.Load(ctx, key, 1000)
				return storecmd.Resize(ctx, m, key, kind, from, max(s.Limit, from)+limit-from)
			}
		})},
		{"Resize returns no changes", "Notice/GrantByResize", omitting(func(by command, n driver.Notice) bool {
			return by.method == dsynctest.MethodResize && n.Type == driver.NoticeChange
		})},
		{"Resize returns no grants", "Notice/GrantByResize", omitting(func(by command, n driver.Notice) bool {
			return by.method == dsynctest.MethodResize && n.Type == driver.NoticeGrant
		})},
		{"limits that change are at times unknown", "Race/ResizeAndAcquire", func(m *dsynctest.Memory, w *wrong) {
			w.acquire = func(ctx context.Context, c driver.Claim, wait bool, expired []string, notAfter time.Time) (driver.State, []driver.Notice, error) {
				before, _ := m.Load(ctx, c.Key, 1000)
				time.Sleep(time.Millisecond)
				if now, _ := m.Load(ctx, c.Key, 1000); now.Limit != before.Limit {
					return driver.State{}, nil, driver.ErrMismatch
				}
				return storecmd.Acquire(ctx, m, c, wait, expired, notAfter)
			}
		}},
	}
}

// wrongLimits are defects of a key's former limits.
func wrongLimits() []plant {
	return []plant{
		{"former limits count no more", "Resize/FormerLimitCountsAsThePresent", refusing(func(s driver.State, c driver.Claim) bool { return c.Limit != s.Limit })},
		{"a free key takes former limits over", "Resize/FormerLimitCountsOnAFreeKey", func(m *dsynctest.Memory, w *wrong) {
			w.acquire = func(ctx context.Context, c driver.Claim, wait bool, expired []string, notAfter time.Time) (driver.State, []driver.Notice, error) {
				if s, _ := m.Load(ctx, c.Key, 1000); len(s.Holders) == 0 && s.Limit != c.Limit {
					storecmd.Resize(ctx, m, c.Key, c.Kind, 0, c.Limit)
				}
				return storecmd.Acquire(ctx, m, c, wait, expired, notAfter)
			}
		}},
		{"Resize ignores from", "Resize/FromCountsToo", resized(func(m *dsynctest.Memory) resizing {
			return func(ctx context.Context, key string, kind driver.Kind, _, limit int64) ([]driver.Notice, error) {
				return storecmd.Resize(ctx, m, key, kind, 0, limit)
			}
		})},
		{"every limit counts as the present", "Resize/UnknownLimitIsMismatch", anyKind},
		{"a key keeps its limit forever", "Resize/UnknownLimitTakesAFreeKeyOver", asked(func(s driver.State, c *driver.Claim, _ bool, _ *time.Time) {
			if s.Limit > 0 && len(s.Holders) == 0 {
				c.Limit = s.Limit
			}
		})},
		{"another kind has the same limit", "Resize/OtherKindHadNoFormerLimits", asked(func(s driver.State, c *driver.Claim, _ bool, _ *time.Time) {
			if s.Kind != "" && s.Kind != c.Kind {
				c.Limit = s.Limit
			}
		})},
		{"weights are cut to the limit", "Resize/WeightAboveThePresentLimitIsMismatch", asked(func(s driver.State, c *driver.Claim, _ bool, _ *time.Time) {
			if s.Limit > 0 {
				c.Weight = min(c.Weight, s.Limit)
			}
		})},
		{"resizing back forgets former limits", "Resize/AndBack", refusing(func(s driver.State, c driver.Claim) bool { return c.Limit > s.Limit })},
		{"four former limits are known", "Resize/EightFormerLimitsAreKnown", refusing(func(s driver.State, c driver.Claim) bool { return c.Limit < s.Limit-4 })},
	}
}

func resized(f func(*dsynctest.Memory) resizing) func(*dsynctest.Memory, *wrong) {
	return func(m *dsynctest.Memory, w *wrong) { w.resize = f(m) }
}

// refusing makes Acquire of a held key return a *MismatchError for the claims that the function where selects.
func refusing(where func(driver.State, driver.Claim) bool) func(*dsynctest.Memory, *wrong) {
	return func(m *dsynctest.Memory, w *wrong) {
		w.acquire = func(ctx context.Context, c driver.Claim, wait bool, expired []string, notAfter time.Time) (driver.State, []driver.Notice, error) {
			if s, _ := m.Load(ctx, c.Key, 1000); len(s.Holders) > 0 && where(s, c) {
				return driver.State{}, nil, &driver.MismatchError{Key: c.Key, Kind: s.Kind, WantKind: c.Kind, Limit: s.Limit, WantLimit: c.Limit}
			}
			return storecmd.Acquire(ctx, m, c, wait, expired, notAfter)
		}
	}
}
