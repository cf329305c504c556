package dsynctest_test

import (
	"context"
	"time"

	"github.com/leasehold-go/leasehold/dsync/driver"
	"github.com/leasehold-go/leasehold/dsync/dsynctest"
	"github.com/leasehold-go/leasehold/internal/storecmd"
)

// wrongReplaces are defects of edits with Release and Acquire.
func wrongReplaces() []plant {
	// replace changes each edit with Release and Acquire.
	replace := func(change func(m *dsynctest.Memory, e *driver.Edit)) func(*dsynctest.Memory, *wrong) {
		return func(m *dsynctest.Memory, w *wrong) {
			w.edit = func(ctx context.Context, e driver.Edit) (driver.Edited, error) {
				if e.Release != nil && e.Acquire != nil {
					leave, join := *e.Release, *e.Acquire // copies, because the caller may repeat its edit
					e.Release, e.Acquire = &leave, &join
					change(m, &e)
				}
				return m.Edit(ctx, e)
			}
		}
	}
	return []plant{
		{"what is replaced stays", "Replace/GrantsTheFirstWaiter", replace(func(m *dsynctest.Memory, e *driver.Edit) {
			e.Release = nil
		})},
		{"a replacement goes ahead", "Replace/JoinsBehindAll", replace(func(m *dsynctest.Memory, e *driver.Edit) {
			e.Acquire.Claim.First = true
		})},
		{"a replacement joins without what it replaces", "Replace/GrantsItselfIfNobodyWaits", replace(func(m *dsynctest.Memory, e *driver.Edit) {
			storecmd.Acquire(context.Background(), m, e.Acquire.Claim, true, nil, e.Acquire.NotAfter)
			e.Acquire.NotAfter = time.Time{}
			e.Release = nil
		})},
		{"a late replacement joins", "Replace/LateOnlyReleases", replace(func(m *dsynctest.Memory, e *driver.Edit) {
			e.Acquire.NotAfter = time.Now().Add(time.Hour)
		})},
		{"a late replacement releases nothing", "Replace/LateOnlyReleases", replace(func(m *dsynctest.Memory, e *driver.Edit) {
			if time.Now().After(e.Acquire.NotAfter) {
				e.Release = nil
			}
		})},
		{"a repeated replacement leaves the queue", "Replace/MayRepeat", replace(func(m *dsynctest.Memory, e *driver.Edit) {
			if s, _ := m.Load(context.Background(), e.Key(), 1); len(s.WaitersAhead) > 0 && s.WaitersAhead[0].Claim == e.Acquire.Claim.ID {
				storecmd.Release(context.Background(), m, e.Acquire.Claim, driver.Release{})
				e.Acquire.NotAfter = time.Time{}
			}
		})},
		{"a value outlives a replacement", "Replace/OfAnySort", func(m *dsynctest.Memory, w *wrong) {
			w.edit = func(ctx context.Context, e driver.Edit) (driver.Edited, error) {
				before, _ := m.Load(ctx, e.Key(), 1)
				done, err := m.Edit(ctx, e)
				if e.Release != nil && e.Acquire != nil {
					done.State.Value = before.Value
				}
				return done, err
			}
		}},
		{"a replacement releases whatever the session holds", "Replace/OfAReleasedClaim", replace(func(m *dsynctest.Memory, e *driver.Edit) {
			s, _ := m.Load(context.Background(), e.Key(), 1)
			for _, h := range s.Holders {
				if h.Session == e.Acquire.Claim.Session {
					e.Release.Claim.ID = h.Claim
				}
			}
		})},
	}
}
