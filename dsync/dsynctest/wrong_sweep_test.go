package dsynctest_test

import (
	"context"
	"time"

	"github.com/leasehold-go/leasehold/dsync"
	"github.com/leasehold-go/leasehold/dsync/dsynctest"
)

// wrongSweeps are defects of tokens and Sweep.
func wrongSweeps() []plant {
	return []plant{
		{"tokens are dense", "Token/GrowsOverEveryHandOver_B08", func(m *dsynctest.Memory, w *wrong) {
			w.load = func(ctx context.Context, key string) (dsync.State, error) {
				s, err := m.Load(ctx, key)
				return dense(s), err
			}
			w.acquire = func(ctx context.Context, c dsync.Claim, wait bool, dead []string, notAfter time.Time) (dsync.State, error) {
				s, err := m.Acquire(ctx, c, wait, dead, notAfter)
				return dense(s), err
			}
		}},
		{"the free key forgets its last token", "Token/LastOneStaysReadable", func(m *dsynctest.Memory, w *wrong) {
			w.release = func(ctx context.Context, c dsync.Claim, o dsync.Outcome) (bool, error) {
				found, err := m.Release(ctx, c, o)
				m.Forget(true)
				return found, err
			}
		}},
		{"Sweep restarts tokens", "Sweep/TokensGrowOn_B08", carelessSweep},
		{"Sweep ignores the retention of keys", "Sweep/LeavesWhatIsYoungerThanRetention", carelessSweep},
		{"Sweep ignores the retention of sessions", "Sweep/LeavesWhatIsYoungerThanRetention", beforeSweep(func(_ *dsynctest.Memory, retention *time.Duration) {
			*retention = 0
		})},
		{"Sweep deletes keys in use", "Sweep/LeavesKeysInUse_B22", beforeSweep(func(m *dsynctest.Memory, _ *time.Duration) { m.Forget(false) })},
		{"Sweep forgets terms", "Sweep/LeavesKeysThatCountTerms", carelessSweep},
		{"Sweep deletes sessions that live", "Sweep/DeletesOldDeadSessions", beforeSweep(func(m *dsynctest.Memory, retention *time.Duration) {
			m.ForgetSessions(*retention)
		})},
		{"Sweep deletes nothing", "Sweep/DeletesIdleKeys_B22", sweepNothing},
		{"Sweep deletes no sessions", "Sweep/DeletesOldDeadSessions", sweepNothing},
		{"Sweep stops after one slice", "Sweep/CursorPassesEveryRecord", afterSweep(func(st *dsync.SweepState, _ string, _ dsync.SweepState) {
			st.After = ""
		})},
		{"Sweep does not get on", "Sweep/CursorPassesEveryRecord", func(m *dsynctest.Memory, w *wrong) {
			w.sweep = func(ctx context.Context, by string, last dsync.SweepState, retention time.Duration) (dsync.SweepState, error) {
				st, err := m.Sweep(ctx, by, last, retention)
				m.SweptTo("")
				return st, err
			}
		}},
		{"Sweep passes over what is behind its slice", "Sweep/CursorPassesEveryRecord", func(m *dsynctest.Memory, w *wrong) {
			w.sweep = func(ctx context.Context, by string, last dsync.SweepState, retention time.Duration) (dsync.SweepState, error) {
				st, err := m.Sweep(ctx, by, last, retention)
				if st.After != "" && st.Turn != last.Turn {
					st.After = "s/"
					m.SweptTo(st.After)
				}
				return st, err
			}
		}},
		{"Sweep forgets how many it saw in the round", "Sweep/TellsWhatItDid", afterSweep(func(st *dsync.SweepState, _ string, _ dsync.SweepState) {
			if st.After != "" {
				st.Round = st.Seen
			}
		})},
		{"Sweep forgets how many there were", "Sweep/TellsWhatItDid", afterSweep(func(st *dsync.SweepState, _ string, _ dsync.SweepState) {
			if st.After == "" {
				st.LastRound = st.Seen
			}
		})},
		{"Sweep does not count what it deletes", "Sweep/TellsWhatItDid", afterSweep(func(st *dsync.SweepState, _ string, _ dsync.SweepState) {
			st.Deleted = 0
		})},
		{"Sweep tells the time of the one before", "Sweep/TellsWhatItDid", afterSweep(func(st *dsync.SweepState, _ string, last dsync.SweepState) {
			st.At = last.At
		})},
		{"Sweep does not look whose turn it is", "Sweep/OfAnEarlierTurnChangesNothing", func(m *dsynctest.Memory, w *wrong) {
			w.sweep = func(ctx context.Context, by string, last dsync.SweepState, retention time.Duration) (dsync.SweepState, error) {
				if last.Turn >= 0 {
					last = m.Swept()
				}
				return m.Sweep(ctx, by, last, retention)
			}
		}},
		{"Sweep deletes before it looks whose turn it is", "Sweep/OfAnEarlierTurnChangesNothing", carelessSweep},
		{"Sweep tells everybody that it was his turn", "Sweep/OneOfManyTakesTheTurn", afterSweep(func(st *dsync.SweepState, by string, last dsync.SweepState) {
			if last.Turn >= 0 {
				st.By = by
			}
		})},
		{"Sweep takes as many turns as there are sweepers", "Sweep/OneOfManyTakesTheTurn", func(m *dsynctest.Memory, w *wrong) {
			w.sweep = func(ctx context.Context, by string, last dsync.SweepState, retention time.Duration) (dsync.SweepState, error) {
				for {
					if now := m.Swept(); last.Turn >= 0 {
						last = now
					}
					st, err := m.Sweep(ctx, by, last, retention)
					if err != nil || last.Turn < 0 || st.By == by {
						return st, err
					}
				}
			}
		}},
	}
}

// beforeSweep plants what Sweep does first.
func beforeSweep(do func(m *dsynctest.Memory, retention *time.Duration)) func(*dsynctest.Memory, *wrong) {
	return func(m *dsynctest.Memory, w *wrong) {
		w.sweep = func(ctx context.Context, by string, last dsync.SweepState, retention time.Duration) (dsync.SweepState, error) {
			do(m, &retention)
			return m.Sweep(ctx, by, last, retention)
		}
	}
}

// afterSweep plants what becomes of its answer.
func afterSweep(do func(st *dsync.SweepState, by string, last dsync.SweepState)) func(*dsynctest.Memory, *wrong) {
	return func(m *dsynctest.Memory, w *wrong) {
		w.sweep = func(ctx context.Context, by string, last dsync.SweepState, retention time.Duration) (dsync.SweepState, error) {
			st, err := m.Sweep(ctx, by, last, retention)
			do(&st, by, last)
			return st, err
		}
	}
}

func dense(s dsync.State) dsync.State {
	s.Token /= 1024
	for i := range s.Holders {
		s.Holders[i].Token /= 1024
	}
	return s
}

func carelessSweep(m *dsynctest.Memory, w *wrong) {
	beforeSweep(func(m *dsynctest.Memory, _ *time.Duration) { m.Forget(true) })(m, w)
}

func sweepNothing(m *dsynctest.Memory, w *wrong) {
	beforeSweep(func(_ *dsynctest.Memory, retention *time.Duration) { *retention = 24 * time.Hour })(m, w)
}
