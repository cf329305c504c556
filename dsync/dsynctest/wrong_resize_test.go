package dsynctest_test

import (
	"context"
	"time"

	"github.com/leasehold-go/leasehold/dsync/driver"
	"github.com/leasehold-go/leasehold/dsync/dsynctest"
	"github.com/leasehold-go/leasehold/internal/storecmd"
)

type resizing func(ctx context.Context, key string, kind driver.Kind, from, limit int64) ([]driver.Notice, error)

// wrongResizes are defects of Resize.
func wrongResizes() []plant {
	return []plant{
		{"holders above the limit can't repeat", "Resize/HolderMayRepeat", refusing(func(s driver.State, c driver.Claim) bool { return c.Weight > s.Limit })},
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
		{"every limit counts as the present", "Resize/UnknownLimitIsMismatch", anyKind},
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
