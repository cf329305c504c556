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
		{"Sweep ignores the retention of sessions", "Sweep/LeavesWhatIsYoungerThanRetention", func(m *dsynctest.Memory, w *wrong) {
			w.sweep = func(ctx context.Context, after string, _ time.Duration) (string, int, error) {
				return m.Sweep(ctx, after, 0)
			}
		}},
		{"Sweep deletes keys in use", "Sweep/LeavesKeysInUse_B22", func(m *dsynctest.Memory, w *wrong) {
			w.sweep = func(ctx context.Context, after string, retention time.Duration) (string, int, error) {
				m.Forget(false)
				return m.Sweep(ctx, after, retention)
			}
		}},
		{"Sweep forgets terms", "Sweep/LeavesKeysThatCountTerms", carelessSweep},
		{"Sweep deletes sessions that live", "Sweep/DeletesOldDeadSessions", func(m *dsynctest.Memory, w *wrong) {
			w.sweep = func(ctx context.Context, after string, retention time.Duration) (string, int, error) {
				m.ForgetSessions(retention)
				return m.Sweep(ctx, after, retention)
			}
		}},
		{"Sweep deletes nothing", "Sweep/DeletesIdleKeys_B22", sweepNothing},
		{"Sweep deletes no sessions", "Sweep/DeletesOldDeadSessions", sweepNothing},
		{"Sweep stops after one slice", "Sweep/CursorPassesEveryRecord", func(m *dsynctest.Memory, w *wrong) {
			w.sweep = func(ctx context.Context, after string, retention time.Duration) (string, int, error) {
				_, alive, err := m.Sweep(ctx, after, retention)
				return "", alive, err
			}
		}},
		{"Sweep does not get on", "Sweep/CursorPassesEveryRecord", func(m *dsynctest.Memory, w *wrong) {
			w.sweep = func(ctx context.Context, _ string, retention time.Duration) (string, int, error) {
				_, alive, err := m.Sweep(ctx, "", retention)
				return "k/", alive, err
			}
		}},
		{"Sweep counts the dead", "Sweep/CountsTheLiving", func(m *dsynctest.Memory, w *wrong) {
			registered := 0
			w.register = func(ctx context.Context, s dsync.Member) (time.Time, error) {
				registered++
				return m.Register(ctx, s)
			}
			w.sweep = func(ctx context.Context, after string, retention time.Duration) (string, int, error) {
				next, _, err := m.Sweep(ctx, after, retention)
				return next, registered, err
			}
		}},
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
	w.sweep = func(ctx context.Context, after string, retention time.Duration) (string, int, error) {
		m.Forget(true)
		return m.Sweep(ctx, after, retention)
	}
}

func sweepNothing(m *dsynctest.Memory, w *wrong) {
	w.sweep = func(ctx context.Context, after string, _ time.Duration) (string, int, error) {
		return m.Sweep(ctx, after, 24*time.Hour)
	}
}
