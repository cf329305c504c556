package dsynctest_test

import (
	"context"
	"time"

	"github.com/leasehold-go/leasehold/dsync/driver"
	"github.com/leasehold-go/leasehold/dsync/dsynctest"
)

// wrongReplaces are defects of Acquire with Claim.Replaces.
func wrongReplaces() []plant {
	// acquire changes each such request.
	acquire := func(change func(m *dsynctest.Memory, c *driver.Claim, notAfter *time.Time)) func(*dsynctest.Memory, *wrong) {
		return func(m *dsynctest.Memory, w *wrong) {
			w.acquire = func(ctx context.Context, c driver.Claim, wait bool, expired []string, notAfter time.Time) (driver.State, []driver.Notice, error) {
				if c.Replaces != nil {
					change(m, &c, &notAfter)
				}
				return m.Acquire(ctx, c, wait, expired, notAfter)
			}
		}
	}
	return []plant{
		{"what is replaced stays", "Replace/GrantsTheFirstWaiter", acquire(func(m *dsynctest.Memory, c *driver.Claim, _ *time.Time) {
			c.Replaces = nil
		})},
		{"a replacement goes ahead", "Replace/JoinsBehindAll", acquire(func(m *dsynctest.Memory, c *driver.Claim, _ *time.Time) {
			c.First = true
		})},
		{"a replacement joins without what it replaces", "Replace/GrantsItselfIfNobodyWaits", acquire(func(m *dsynctest.Memory, c *driver.Claim, notAfter *time.Time) {
			later := *c
			later.Replaces = nil
			m.Acquire(context.Background(), later, true, nil, *notAfter)
			*notAfter = time.Time{}
			c.Replaces = nil
		})},
		{"a late replacement joins", "Replace/LateOnlyReleases", acquire(func(m *dsynctest.Memory, _ *driver.Claim, notAfter *time.Time) {
			*notAfter = time.Now().Add(time.Hour)
		})},
		{"a late replacement releases nothing", "Replace/LateOnlyReleases", acquire(func(m *dsynctest.Memory, c *driver.Claim, notAfter *time.Time) {
			if time.Now().After(*notAfter) {
				c.Replaces = nil
			}
		})},
		{"a repeated replacement leaves the queue", "Replace/MayRepeat", acquire(func(m *dsynctest.Memory, c *driver.Claim, notAfter *time.Time) {
			if s, _ := m.Load(context.Background(), c.Key); len(s.WaitersAhead) > 0 && s.WaitersAhead[0].Claim == c.ID {
				m.Release(context.Background(), *c, driver.ReleaseOptions{})
				*notAfter = time.Time{}
			}
		})},
		{"a value outlives a replacement", "Replace/OfAnySort", func(m *dsynctest.Memory, w *wrong) {
			w.acquire = func(ctx context.Context, c driver.Claim, wait bool, expired []string, notAfter time.Time) (driver.State, []driver.Notice, error) {
				before, _ := m.Load(ctx, c.Key)
				s, n, err := m.Acquire(ctx, c, wait, expired, notAfter)
				if c.Replaces != nil {
					s.Value = before.Value
				}
				return s, n, err
			}
		}},
		{"a replacement releases whatever the session holds", "Replace/OfAReleasedClaim", acquire(func(m *dsynctest.Memory, c *driver.Claim, _ *time.Time) {
			s, _ := m.Load(context.Background(), c.Key)
			for _, h := range s.Holders {
				if h.Session == c.Session {
					c.Replaces.ID = h.Claim
				}
			}
		})},
	}
}
