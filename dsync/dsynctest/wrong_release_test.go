package dsynctest_test

import (
	"context"
	"time"

	"github.com/leasehold-go/leasehold/dsync"
	"github.com/leasehold-go/leasehold/dsync/dsynctest"
)

// wrongReleases are defects of Release.
func wrongReleases() []plant {
	return []plant{
		{"the dead lose what they kept", "Keep/OutlivesItsSession", dropsLeases},
		{"Release frees the key, not the claim", "Release/OnlyThatID_B05", func(m *dsynctest.Memory, w *wrong) {
			w.release = func(ctx context.Context, c dsync.Claim, o dsync.Outcome) (bool, error) {
				if s, _ := m.Load(ctx, c.Key); len(s.Holders) > 0 {
					c.ID = s.Holders[0].Claim
				}
				return m.Release(ctx, c, o)
			}
		}},
		{"Release frees whatever the session holds", "Release/RepeatedOrLateNeverFreesNewerHold_B28", func(m *dsynctest.Memory, w *wrong) {
			w.release = func(ctx context.Context, c dsync.Claim, o dsync.Outcome) (bool, error) {
				s, _ := m.Load(ctx, c.Key)
				for _, h := range s.Holders {
					if h.Session == c.Session {
						c.ID = h.Claim
					}
				}
				return m.Release(ctx, c, o)
			}
		}},
		{"Release needs the whole claim", "Release/FindsByIDAlone", func(m *dsynctest.Memory, w *wrong) {
			w.release = func(ctx context.Context, c dsync.Claim, o dsync.Outcome) (bool, error) {
				if c.Session == "" {
					return false, nil
				}
				return m.Release(ctx, c, o)
			}
		}},
		{"Release of what is absent is an error", "Release/AbsentIsNoError", func(m *dsynctest.Memory, w *wrong) {
			w.release = func(ctx context.Context, c dsync.Claim, o dsync.Outcome) (bool, error) {
				found, err := m.Release(ctx, c, o)
				if err == nil && !found {
					err = dsync.ErrNotHeld
				}
				return found, err
			}
		}},
		{"Release leaves waiters in line", "Release/FromTheLine", func(m *dsynctest.Memory, w *wrong) {
			w.release = func(ctx context.Context, c dsync.Claim, o dsync.Outcome) (bool, error) {
				if s, _ := m.Load(ctx, c.Key); !holds(s, c) {
					return true, nil
				}
				return m.Release(ctx, c, o)
			}
		}},
		{"Release empties the line", "Release/HolderGrantsNext", func(m *dsynctest.Memory, w *wrong) {
			w.release = func(ctx context.Context, c dsync.Claim, o dsync.Outcome) (bool, error) {
				if s, _ := m.Load(ctx, c.Key); holds(s, c) {
					m.Forget(false)
					return true, nil
				}
				return m.Release(ctx, c, o)
			}
		}},
		{"Release frees all holders", "Release/OneOfSeveralHolders", func(m *dsynctest.Memory, w *wrong) {
			w.release = func(ctx context.Context, c dsync.Claim, o dsync.Outcome) (bool, error) {
				s, _ := m.Load(ctx, c.Key)
				for _, h := range s.Holders {
					m.Release(ctx, dsync.Claim{Key: c.Key, ID: h.Claim}, o)
				}
				return len(s.Holders) > 0, nil
			}
		}},
		{"fixed leases can't be released", "Release/FixedLeaseEndsAtOnce", func(m *dsynctest.Memory, w *wrong) {
			w.release = func(ctx context.Context, c dsync.Claim, o dsync.Outcome) (bool, error) {
				if c.Lease > 0 {
					return true, nil
				}
				return m.Release(ctx, c, o)
			}
		}},
		{"Keep is ignored", "Keep/EndsThatMuchLater_B35", func(m *dsynctest.Memory, w *wrong) {
			w.release = func(ctx context.Context, c dsync.Claim, _ dsync.Outcome) (bool, error) {
				return m.Release(ctx, c, dsync.Outcome{})
			}
		}},
		{"a repeated Keep prolongs", "Keep/RepeatingDoesNotProlong", keepMoves},
		{"Keep prolongs a fixed lease", "Keep/EarlierEndOfFixedLeaseStays", keepMoves},
		{"Keep only ever sets the first end", "Keep/ShorterOneShortens", func(m *dsynctest.Memory, w *wrong) {
			w.release = func(ctx context.Context, c dsync.Claim, o dsync.Outcome) (bool, error) {
				if s, _ := m.Load(ctx, c.Key); o.Keep > 0 {
					if h, ok := s.Holder(c.ID); ok && !h.Until.IsZero() {
						return true, nil
					}
				}
				return m.Release(ctx, c, o)
			}
		}},
		{"Keep leaves waiters in line", "Keep/FromTheLineTakesOut", func(m *dsynctest.Memory, w *wrong) {
			w.release = func(ctx context.Context, c dsync.Claim, o dsync.Outcome) (bool, error) {
				if s, _ := m.Load(ctx, c.Key); o.Keep > 0 && !holds(s, c) {
					return s.Waiting > 0, nil
				}
				return m.Release(ctx, c, o)
			}
		}},
		{"what is kept can't be released", "Keep/ReleaseEndsIt", func(m *dsynctest.Memory, w *wrong) {
			w.release = func(ctx context.Context, c dsync.Claim, o dsync.Outcome) (bool, error) {
				s, _ := m.Load(ctx, c.Key)
				if h, ok := s.Holder(c.ID); ok && !h.Until.IsZero() {
					return true, nil
				}
				return m.Release(ctx, c, o)
			}
		}},
		{"Keep of what is absent finds it", "Keep/AbsentIsNoError", func(m *dsynctest.Memory, w *wrong) {
			w.release = func(ctx context.Context, c dsync.Claim, o dsync.Outcome) (bool, error) {
				found, err := m.Release(ctx, c, o)
				return found || o.Keep > 0, err
			}
		}},
	}
}

func keepMoves(m *dsynctest.Memory, w *wrong) {
	w.release = func(ctx context.Context, c dsync.Claim, o dsync.Outcome) (bool, error) {
		found, err := m.Release(ctx, c, o)
		if o.Keep > 0 {
			m.SetUntil(c, time.Now().Add(o.Keep))
		}
		return found, err
	}
}
