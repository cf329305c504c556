package dsynctest_test

import (
	"context"
	"time"

	"github.com/leasehold-go/leasehold/dsync/driver"
	"github.com/leasehold-go/leasehold/dsync/dsynctest"
)

// wrongSweeps are defects of Sweep.
func wrongSweeps() []plant {
	return []plant{
		{"Sweep restarts tokens", "Sweep/TokensGrowOn_B08", carelessSweep},
		{"Sweep ignores the retention of keys", "Sweep/LeavesWhatIsYoungerThanRetention", carelessSweep},
		{"Sweep ignores the retention of sessions", "Sweep/LeavesWhatIsYoungerThanRetention", beforeSweep(func(_ *dsynctest.Memory, retention *time.Duration) {
			*retention = 0
		})},
		{"Sweep deletes keys in use", "Sweep/LeavesKeysInUse_B22", beforeSweep(func(m *dsynctest.Memory, _ *time.Duration) { m.Forget(false) })},
		{"Sweep forgets the room", "Sweep/RoomStaysBehindOneThatYields", carelessSweep},
		{"Sweep deletes what is sealed", "Sweep/LeavesSealedKeys", carelessSweep},
		{"Sweep forgets terms", "Sweep/LeavesKeysThatCountTerms", carelessSweep},
		{"Sweep deletes sessions that live", "Sweep/DeletesOldExpiredSessions", beforeSweep(func(m *dsynctest.Memory, retention *time.Duration) {
			m.ForgetSessions(*retention)
		})},
		{"Sweep deletes nothing", "Sweep/DeletesIdleKeys_B22", sweepNothing},
		{"Sweep deletes no sessions", "Sweep/DeletesOldExpiredSessions", sweepNothing},
		{"Sweep stops after one slice", "Sweep/PassesEveryRecordAndReports", afterSweep(func(st *driver.SweepState, _ string, _ driver.SweepState) {
			st.After = ""
		})},
		{"Sweep forgets how many it saw in the round", "Sweep/PassesEveryRecordAndReports", afterSweep(func(st *driver.SweepState, _ string, _ driver.SweepState) {
			if st.After != "" {
				st.Round = st.Seen
			}
		})},
		{"Sweep forgets how many there were", "Sweep/PassesEveryRecordAndReports", afterSweep(func(st *driver.SweepState, _ string, _ driver.SweepState) {
			if st.After == "" {
				st.LastRound = st.Seen
			}
		})},
		{"Sweep does not count what it deletes", "Sweep/PassesEveryRecordAndReports", afterSweep(func(st *driver.SweepState, _ string, _ driver.SweepState) {
			st.Deleted = 0
		})},
		{"Sweep reports the time of the slice before", "Sweep/PassesEveryRecordAndReports", afterSweep(func(st *driver.SweepState, _ string, last driver.SweepState) {
			st.At = last.At
		})},
		{"Sweep deletes before it checks whose turn it is", "Sweep/OfAnEarlierTurnChangesNothing", carelessSweep},
		{"Sweep reports its turn to everybody", "Sweep/OneOfManyTakesTheTurn", afterSweep(func(st *driver.SweepState, by string, last driver.SweepState) {
			if last.Turn >= 0 {
				st.By = by
			}
		})},
	}
}

// beforeSweep makes Sweep call do first.
func beforeSweep(do func(m *dsynctest.Memory, retention *time.Duration)) func(*dsynctest.Memory, *wrong) {
	return func(m *dsynctest.Memory, w *wrong) {
		w.sweep = func(ctx context.Context, by string, last driver.SweepState, retention time.Duration) (driver.SweepState, error) {
			do(m, &retention)
			return m.Sweep(ctx, by, last, retention)
		}
	}
}

// afterSweep makes Sweep call do at its end. The call may change what Sweep returns.
func afterSweep(do func(st *driver.SweepState, by string, last driver.SweepState)) func(*dsynctest.Memory, *wrong) {
	return func(m *dsynctest.Memory, w *wrong) {
		w.sweep = func(ctx context.Context, by string, last driver.SweepState, retention time.Duration) (driver.SweepState, error) {
			st, err := m.Sweep(ctx, by, last, retention)
			do(&st, by, last)
			return st, err
		}
	}
}

func carelessSweep(m *dsynctest.Memory, w *wrong) {
	beforeSweep(func(m *dsynctest.Memory, _ *time.Duration) { m.Forget(true) })(m, w)
}

func sweepNothing(m *dsynctest.Memory, w *wrong) {
	beforeSweep(func(_ *dsynctest.Memory, retention *time.Duration) { *retention = 24 * time.Hour })(m, w)
}
