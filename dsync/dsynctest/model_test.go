package dsynctest_test

import (
	"context"
	"fmt"
	"slices"
	"testing"

	"github.com/leasehold-go/leasehold/dsync/driver"
	"github.com/leasehold-go/leasehold/dsync/dsynctest"
)

// Memory runs on package model. An edit changes neither the record from before it, nor anything at all unless it counts
// as a write and is notified to observers.
func TestEditsOfARecord(t *testing.T) {
	for name := range dsynctest.Scripts() {
		for _, failure := range try(t, name, func() driver.Store {
			m := dsynctest.NewMemory()
			w := &wrong{Memory: m}
			w.edit = func(ctx context.Context, e driver.Edit) (driver.Edited, error) {
				before, writes := m.Record(e.Key()), m.Counts().Writes
				text := fmt.Sprint(before)
				done, err := m.Edit(ctx, e)
				after := m.Record(e.Key())
				if now := fmt.Sprint(before); now != text {
					t.Errorf("%s: the record from before is now %s, was %s", name, now, text)
				}
				wrote, notified := m.Counts().Writes > writes, slices.ContainsFunc(done.Notices, func(n driver.Notice) bool { return n.Type == driver.NoticeChange })
				after.LastChange = before.LastChange
				if changed := fmt.Sprint(after) != text; changed != wrote || changed && e.Extend == nil && m.Observed(e.Key()) != notified {
					t.Errorf("%s: edit %+v of %s to %+v: written %t, notified %t", name, e, text, after, wrote, notified)
				}
				return done, err
			}
			return w
		}) {
			t.Errorf("%s: %s", name, failure)
		}
	}
}
