package dsynctest_test

import (
	"context"
	"slices"
	"time"

	"github.com/leasehold-go/leasehold/dsync"
	"github.com/leasehold-go/leasehold/dsync/dsynctest"
)

// wrongLines are defects of the line, kinds and the dead.
func wrongLines() []plant {
	return []plant{
		{"a command grants 64 claims at most", "Line/OneCommandGrantsAllThatFit", func(m *dsynctest.Memory, w *wrong) {
			w.load = func(ctx context.Context, key string) (dsync.State, error) {
				s, err := m.Load(ctx, key)
				s.Holders = s.Holders[:min(64, len(s.Holders))]
				return s, err
			}
		}},
		{"who leaves the line lets nobody in", "Line/WhenTheHeavyHeadLeavesTheNextAreGranted", func(m *dsynctest.Memory, w *wrong) {
			w.release = func(ctx context.Context, c dsync.Claim, o dsync.Outcome) (bool, error) {
				if s, _ := m.Load(ctx, c.Key); s.Waiting > 0 && !holds(s, c) {
					return true, nil
				}
				return m.Release(ctx, c, o)
			}
		}},
		{"all weights are one", "Line/WeightsNeverExceedTheLimit", func(m *dsynctest.Memory, w *wrong) {
			w.acquire = func(ctx context.Context, c dsync.Claim, wait bool, dead []string, notAfter time.Time) (dsync.State, error) {
				c.Weight = 1
				return m.Acquire(ctx, c, wait, dead, notAfter)
			}
		}},
		{"a late Acquire does nothing at all", "Dead/LateRequestStillSettles", func(m *dsynctest.Memory, w *wrong) {
			w.acquire = func(ctx context.Context, c dsync.Claim, wait bool, dead []string, notAfter time.Time) (dsync.State, error) {
				if s, err := m.Load(ctx, c.Key); s.Now.After(notAfter) {
					return s, err
				}
				return m.Acquire(ctx, c, wait, dead, notAfter)
			}
		}},
		{"light claims overtake", "Line/LightDoesNotOvertakeHeavy", overtaking},
		{"light tries overtake", "Line/TryDoesNotOvertake", overtaking},
		{"who names the dead is granted first", "Dead/FirstInLineIsGrantedNotWhoNoticed", func(m *dsynctest.Memory, w *wrong) {
			claims := make(map[string]dsync.Claim)
			w.acquire = func(ctx context.Context, c dsync.Claim, wait bool, dead []string, notAfter time.Time) (dsync.State, error) {
				claims[c.ID] = c
				if len(dead) > 0 {
					s, _ := m.Load(ctx, c.Key)
					for _, w := range s.Ahead {
						m.Release(ctx, claims[w.Claim], dsync.Outcome{})
					}
				}
				return m.Acquire(ctx, c, wait, dead, notAfter)
			}
		}},
		{"the line is last in, first out", "Line/IsServedInOrder", func(m *dsynctest.Memory, w *wrong) {
			claims := make(map[string]dsync.Claim)
			w.acquire = func(ctx context.Context, c dsync.Claim, wait bool, dead []string, notAfter time.Time) (dsync.State, error) {
				claims[c.ID] = c
				s, err := m.Acquire(ctx, c, wait, dead, notAfter)
				if s.Place > 1 {
					return jump(ctx, m, c, claims, s)
				}
				return s, err
			}
		}},
		{"Ahead is the head of the line", "Line/ShowsTheNearestAhead", func(m *dsynctest.Memory, w *wrong) {
			w.acquire = func(ctx context.Context, c dsync.Claim, wait bool, dead []string, notAfter time.Time) (dsync.State, error) {
				s, err := m.Acquire(ctx, c, wait, dead, notAfter)
				head, _ := m.Load(ctx, c.Key)
				if s.Place > len(s.Ahead) {
					s.Ahead = head.Ahead
				}
				return s, err
			}
		}},
		{"Load shows as much of the line as Acquire", "Load/ShowsTheLine", func(m *dsynctest.Memory, w *wrong) {
			w.load = func(ctx context.Context, key string) (dsync.State, error) {
				s, err := m.Load(ctx, key)
				s.Ahead = s.Ahead[:min(8, len(s.Ahead))]
				return s, err
			}
		}},
		{"kinds don't matter", "Mismatch/Kind", anyKind},
		{"limits don't matter", "Mismatch/Limit", anyKind},
		{"a key keeps its kind for ever", "Mismatch/FreeKeyTakesOver", func(m *dsynctest.Memory, w *wrong) {
			w.acquire = func(ctx context.Context, c dsync.Claim, wait bool, dead []string, notAfter time.Time) (dsync.State, error) {
				if s, _ := m.Load(ctx, c.Key); s.Kind != "" && s.Kind != c.Kind {
					return dsync.State{}, &dsync.MismatchError{Key: c.Key, Kind: s.Kind, WantKind: c.Kind, Limit: s.Limit, WantLimit: c.Limit}
				}
				return m.Acquire(ctx, c, wait, dead, notAfter)
			}
		}},
		{"the dead are not dropped", "Dead/HolderIsDropped", deafTo(func(bool) bool { return true })},
		{"a try does not drop the dead", "Dead/TryDropsThemToo", deafTo(func(wait bool) bool { return !wait })},
		{"dead waiters stay in line", "Dead/WaitersAreDropped", deafTo(func(bool) bool { return true })},
		{"the dead lose their fixed leases", "Dead/FixedLeaseStaysUntilItsEnd", dropsLeases},
		{"the dead wait on for fixed leases", "Dead/WaiterForFixedLeaseIsDropped", deafTo(func(bool) bool { return true })},
		{"whoever names one dead session drops all others", "Dead/OnlyThoseNamed", func(m *dsynctest.Memory, w *wrong) {
			w.acquire = func(ctx context.Context, c dsync.Claim, wait bool, dead []string, notAfter time.Time) (dsync.State, error) {
				if s, _ := m.Load(ctx, c.Key); len(dead) > 0 {
					for _, h := range s.Holders {
						dead = append(slices.Clone(dead), h.Session)
					}
				}
				return m.Acquire(ctx, c, wait, dead, notAfter)
			}
		}},
	}
}

// jump puts c, which waits, before all others in line, of which claims has the
// claims by id.
func jump(ctx context.Context, m *dsynctest.Memory, c dsync.Claim, claims map[string]dsync.Claim, s dsync.State) (dsync.State, error) {
	for _, w := range s.Ahead {
		m.Release(ctx, claims[w.Claim], dsync.Outcome{})
	}
	s, err := m.Acquire(ctx, c, true, nil, s.Now.Add(time.Hour))
	for _, w := range s.Ahead {
		m.Acquire(ctx, claims[w.Claim], true, nil, s.Now.Add(time.Hour))
	}
	return s, err
}

func overtaking(m *dsynctest.Memory, w *wrong) {
	claims := make(map[string]dsync.Claim)
	w.acquire = func(ctx context.Context, c dsync.Claim, wait bool, dead []string, notAfter time.Time) (dsync.State, error) {
		claims[c.ID] = c
		s, err := m.Acquire(ctx, c, true, dead, notAfter)
		sum := c.Weight
		for _, h := range s.Holders {
			sum += h.Weight
		}
		if s.Place > 0 && sum <= s.Limit {
			return jump(ctx, m, c, claims, s)
		}
		if !wait {
			return m.Acquire(ctx, c, false, dead, notAfter)
		}
		return s, err
	}
}

func anyKind(m *dsynctest.Memory, w *wrong) {
	w.acquire = func(ctx context.Context, c dsync.Claim, wait bool, dead []string, notAfter time.Time) (dsync.State, error) {
		if s, _ := m.Load(ctx, c.Key); s.Kind != "" {
			c.Kind, c.Limit = s.Kind, s.Limit
		}
		return m.Acquire(ctx, c, wait, dead, notAfter)
	}
}

func deafTo(which func(wait bool) bool) func(*dsynctest.Memory, *wrong) {
	return func(m *dsynctest.Memory, w *wrong) {
		w.acquire = func(ctx context.Context, c dsync.Claim, wait bool, dead []string, notAfter time.Time) (dsync.State, error) {
			if which(wait) {
				dead = nil
			}
			return m.Acquire(ctx, c, wait, dead, notAfter)
		}
	}
}
