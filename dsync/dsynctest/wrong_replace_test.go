package dsynctest_test

import (
	"context"
	"time"

	"github.com/leasehold-go/leasehold/dsync/driver"
	"github.com/leasehold-go/leasehold/dsync/dsynctest"
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
		{"a late replacement joins", "Replace/LateOnlyReleases", replace(func(m *dsynctest.Memory, e *driver.Edit) {
			e.Acquire.NotAfter = time.Now().Add(time.Hour)
		})},
	}
}
