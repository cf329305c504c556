package dsynctest_test

import (
	"context"
	"time"

	"github.com/leasehold-go/leasehold/dsync/driver"
	"github.com/leasehold-go/leasehold/dsync/dsynctest"
	"github.com/leasehold-go/leasehold/internal/storecmd"
)

// wrongReplaces are defects of edits with Leave and Join.
func wrongReplaces() []plant {
	// replace changes each such edit.
	replace := func(change func(m *dsynctest.Memory, e *driver.Edit)) func(*dsynctest.Memory, *wrong) {
		return func(m *dsynctest.Memory, w *wrong) {
			w.edit = func(ctx context.Context, e driver.Edit) (driver.Edited, error) {
				if e.Leave != nil && e.Join != nil {
					leave, join := *e.Leave, *e.Join // else a repetition would be of the changed edit
					e.Leave, e.Join = &leave, &join
					change(m, &e)
				}
				return m.Edit(ctx, e)
			}
		}
	}
	return []plant{
		{"what is replaced stays", "Replace/GrantsTheFirstWaiter", replace(func(m *dsynctest.Memory, e *driver.Edit) {
			e.Leave = nil
		})},
		{"a replacement goes ahead", "Replace/JoinsBehindAll", replace(func(m *dsynctest.Memory, e *driver.Edit) {
			e.Join.Claim.First = true
		})},
		{"a replacement joins without what it replaces", "Replace/GrantsItselfIfNobodyWaits", replace(func(m *dsynctest.Memory, e *driver.Edit) {
			storecmd.Acquire(context.Background(), m, e.Join.Claim, true, nil, e.Join.NotAfter)
			e.Join.NotAfter = time.Time{}
			e.Leave = nil
		})},
		{"a late replacement joins", "Replace/LateOnlyReleases", replace(func(m *dsynctest.Memory, e *driver.Edit) {
			e.Join.NotAfter = time.Now().Add(time.Hour)
		})},
		{"a late replacement releases nothing", "Replace/LateOnlyReleases", replace(func(m *dsynctest.Memory, e *driver.Edit) {
			if time.Now().After(e.Join.NotAfter) {
				e.Leave = nil
			}
		})},
		{"a repeated replacement leaves the queue", "Replace/MayRepeat", replace(func(m *dsynctest.Memory, e *driver.Edit) {
			if s, _ := m.Load(context.Background(), e.Key(), 1); len(s.WaitersAhead) > 0 && s.WaitersAhead[0].Claim == e.Join.Claim.ID {
				storecmd.Release(context.Background(), m, e.Join.Claim, driver.Leave{})
				e.Join.NotAfter = time.Time{}
			}
		})},
		{"a value outlives a replacement", "Replace/OfAnySort", func(m *dsynctest.Memory, w *wrong) {
			w.edit = func(ctx context.Context, e driver.Edit) (driver.Edited, error) {
				before, _ := m.Load(ctx, e.Key(), 1)
				done, err := m.Edit(ctx, e)
				if e.Leave != nil && e.Join != nil {
					done.State.Value = before.Value
				}
				return done, err
			}
		}},
		{"a replacement releases whatever the session holds", "Replace/OfAReleasedClaim", replace(func(m *dsynctest.Memory, e *driver.Edit) {
			s, _ := m.Load(context.Background(), e.Key(), 1)
			for _, h := range s.Holders {
				if h.Session == e.Join.Claim.Session {
					e.Leave.Claim.ID = h.Claim
				}
			}
		})},
	}
}
