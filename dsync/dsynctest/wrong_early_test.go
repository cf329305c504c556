package dsynctest_test

import (
	"context"

	"github.com/leasehold-go/leasehold/dsync/driver"
	"github.com/leasehold-go/leasehold/dsync/dsynctest"
)

// wrongEarlies are defects of Release with Early.
func wrongEarlies() []plant {
	// undoable makes the store report a Release as not committed yet, although Memory has committed it.
	undoable := func(which func(l *driver.Release, before driver.State, done driver.Edited) bool) func(*dsynctest.Memory, *wrong) {
		return func(m *dsynctest.Memory, w *wrong) {
			w.edit = func(ctx context.Context, e driver.Edit) (driver.Edited, error) {
				before, _ := m.Load(ctx, e.Key(), 1000)
				done, err := m.Edit(ctx, e)
				if err == nil && e.Release != nil && e.Release.Early && which(e.Release, before, done) {
					done.Applied = driver.OpTime{Term: 1, Time: 1}
				}
				return done, err
			}
		}
	}
	return []plant{
		{"no heartbeat says what is committed", "Early/AHeartbeatSaysWhenCommitted", func(m *dsynctest.Memory, w *wrong) {
			w.heartbeat = func(ctx context.Context, id string, given []driver.Revocation) (driver.HeartbeatReply, error) {
				r, err := m.Heartbeat(ctx, id, given)
				r.Committed = driver.OpTime{}
				return r, err
			}
		}},
		{"Early of what is absent was applied", "Early/RepeatedOrLateChangesNothing",
			undoable(func(_ *driver.Release, _ driver.State, done driver.Edited) bool { return !done.Found })},
		{"Early though somebody waits", "Early/CommittedIfSomebodyWaits",
			undoable(func(l *driver.Release, before driver.State, _ driver.Edited) bool {
				return before.Waiting > 0 && l.Successor == ""
			})},
		{"Early though observed", "Early/CommittedIfObserved",
			undoable(func(_ *driver.Release, _ driver.State, done driver.Edited) bool {
				return len(done.Notices) == 1 && done.Notices[0].Type == driver.NoticeChange
			})},
		{"Early with Keep", "Early/CommittedWithOptions",
			undoable(func(l *driver.Release, _ driver.State, _ driver.Edited) bool { return l.Keep > 0 })},
		{"Early with Seal", "Early/CommittedWithOptions",
			undoable(func(l *driver.Release, _ driver.State, _ driver.Edited) bool { return l.Seal > 0 })},
		{"Early with Successor", "Early/CommittedWithOptions",
			undoable(func(l *driver.Release, _ driver.State, _ driver.Edited) bool { return l.Successor != "" })},
	}
}
