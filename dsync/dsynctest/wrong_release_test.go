package dsynctest_test

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/leasehold-go/leasehold/dsync/driver"
	"github.com/leasehold-go/leasehold/dsync/dsynctest"
	"github.com/leasehold-go/leasehold/internal/storecmd"
)

// wrongReleases are defects of Release.
func wrongReleases() []plant {
	return []plant{
		{"expired sessions lose what they kept", "Keep/OutlivesItsSession", dropsLeases},
		{"Release frees the key, not the claim", "Release/OnlyThatID_B05", func(m *dsynctest.Memory, w *wrong) {
			w.release = func(ctx context.Context, c driver.Claim, o driver.Release) (bool, []driver.Notice, error) {
				if s, _ := m.Load(ctx, c.Key, 1000); len(s.Holders) > 0 {
					c.ID = s.Holders[0].Claim
				}
				return storecmd.Release(ctx, m, c, o)
			}
		}},
		{"Release frees whatever the session holds", "Release/RepeatedOrLateNeverFreesNewerHold_B28", func(m *dsynctest.Memory, w *wrong) {
			w.release = func(ctx context.Context, c driver.Claim, o driver.Release) (bool, []driver.Notice, error) {
				s, _ := m.Load(ctx, c.Key, 1000)
				for _, h := range s.Holders {
					if h.Session == c.Session {
						c.ID = h.Claim
					}
				}
				return storecmd.Release(ctx, m, c, o)
			}
		}},
		{"Release needs the whole claim", "Release/FindsByIDAlone", func(m *dsynctest.Memory, w *wrong) {
			w.release = func(ctx context.Context, c driver.Claim, o driver.Release) (bool, []driver.Notice, error) {
				if c.Session == "" {
					return false, nil, nil
				}
				return storecmd.Release(ctx, m, c, o)
			}
		}},
		{"Release of what is absent is an error", "Release/AbsentIsNoError", func(m *dsynctest.Memory, w *wrong) {
			w.release = func(ctx context.Context, c driver.Claim, o driver.Release) (bool, []driver.Notice, error) {
				found, n, err := storecmd.Release(ctx, m, c, o)
				if err == nil && !found {
					err = driver.ErrNotHeld
				}
				return found, n, err
			}
		}},
		{"Release leaves waiters in the queue", "Release/FromTheQueue", func(m *dsynctest.Memory, w *wrong) {
			w.release = func(ctx context.Context, c driver.Claim, o driver.Release) (bool, []driver.Notice, error) {
				if s, _ := m.Load(ctx, c.Key, 1000); !holds(s, c) {
					return true, nil, nil
				}
				return storecmd.Release(ctx, m, c, o)
			}
		}},
		{"Release empties the queue", "Release/HolderGrantsNext", func(m *dsynctest.Memory, w *wrong) {
			w.release = func(ctx context.Context, c driver.Claim, o driver.Release) (bool, []driver.Notice, error) {
				if s, _ := m.Load(ctx, c.Key, 1000); holds(s, c) {
					m.Forget(false)
					return true, nil, nil
				}
				return storecmd.Release(ctx, m, c, o)
			}
		}},
		{"Release frees all holders", "Release/OneOfSeveralHolders", func(m *dsynctest.Memory, w *wrong) {
			w.release = func(ctx context.Context, c driver.Claim, o driver.Release) (bool, []driver.Notice, error) {
				s, _ := m.Load(ctx, c.Key, 1000)
				for _, h := range s.Holders {
					storecmd.Release(ctx, m, driver.Claim{Key: c.Key, ID: h.Claim}, o)
				}
				return len(s.Holders) > 0, nil, nil
			}
		}},
		{"fixed leases can't be released", "Release/FixedLeaseEndsAtOnce", func(m *dsynctest.Memory, w *wrong) {
			w.release = func(ctx context.Context, c driver.Claim, o driver.Release) (bool, []driver.Notice, error) {
				if c.Lease > 0 {
					return true, nil, nil
				}
				return storecmd.Release(ctx, m, c, o)
			}
		}},
		{"Keep is ignored", "Keep/EndsThatMuchLater_B35", func(m *dsynctest.Memory, w *wrong) {
			w.release = func(ctx context.Context, c driver.Claim, _ driver.Release) (bool, []driver.Notice, error) {
				return storecmd.Release(ctx, m, c, driver.Release{})
			}
		}},
		{"a repeated Keep prolongs", "Keep/RepeatingDoesNotProlong", keepMoves},
		{"Keep prolongs a fixed lease", "Keep/EarlierEndOfFixedLeaseStays", keepMoves},
		{"Keep only ever sets the first end", "Keep/ShorterOneShortens", func(m *dsynctest.Memory, w *wrong) {
			w.release = func(ctx context.Context, c driver.Claim, o driver.Release) (bool, []driver.Notice, error) {
				if s, _ := m.Load(ctx, c.Key, 1000); o.Keep > 0 {
					if h, ok := s.Holder(c.ID); ok && !h.Until.IsZero() {
						return true, nil, nil
					}
				}
				return storecmd.Release(ctx, m, c, o)
			}
		}},
		{"Keep leaves waiters in the queue", "Keep/FromTheQueueReleases", func(m *dsynctest.Memory, w *wrong) {
			w.release = func(ctx context.Context, c driver.Claim, o driver.Release) (bool, []driver.Notice, error) {
				if s, _ := m.Load(ctx, c.Key, 1000); o.Keep > 0 && !holds(s, c) {
					return s.Waiting > 0, nil, nil
				}
				return storecmd.Release(ctx, m, c, o)
			}
		}},
		{"what is kept can't be released", "Keep/ReleaseEndsIt", func(m *dsynctest.Memory, w *wrong) {
			w.release = func(ctx context.Context, c driver.Claim, o driver.Release) (bool, []driver.Notice, error) {
				s, _ := m.Load(ctx, c.Key, 1000)
				if h, ok := s.Holder(c.ID); ok && !h.Until.IsZero() {
					return true, nil, nil
				}
				return storecmd.Release(ctx, m, c, o)
			}
		}},
		{"Keep of what is absent finds it", "Keep/AbsentIsNoError", func(m *dsynctest.Memory, w *wrong) {
			w.release = func(ctx context.Context, c driver.Claim, o driver.Release) (bool, []driver.Notice, error) {
				found, n, err := storecmd.Release(ctx, m, c, o)
				return found || o.Keep > 0, n, err
			}
		}},
	}
}

func keepMoves(m *dsynctest.Memory, w *wrong) {
	w.release = func(ctx context.Context, c driver.Claim, o driver.Release) (bool, []driver.Notice, error) {
		found, n, err := storecmd.Release(ctx, m, c, o)
		if o.Keep > 0 {
			m.SetUntil(c, time.Now().Add(o.Keep))
		}
		return found, n, err
	}
}

// wrongLeases are defects of fixed leases.
func wrongLeases() []plant {
	return []plant{
		{"leases end when the host says so", "Lease/EndsThatLongAfterItsGrant", func(m *dsynctest.Memory, w *wrong) {
			m.Skew(-time.Hour)
			w.extend = func(ctx context.Context, c driver.Claim) (driver.Holder, error) {
				storecmd.Extend(ctx, m, c)
				m.SetUntil(c, time.Now().Add(c.Lease))
				return storecmd.Extend(ctx, m, c)
			}
		}},
		{"a grant sets the end of a lease", "Lease/LivesWithItsSessionUntilItIsExtended", func(m *dsynctest.Memory, w *wrong) {
			w.acquire = func(ctx context.Context, c driver.Claim, wait bool, expired []string, notAfter time.Time) (driver.State, []driver.Notice, error) {
				s, n, err := storecmd.Acquire(ctx, m, c, wait, expired, notAfter)
				if h, ok := s.Holder(c.ID); ok && h.Until.IsZero() {
					c.Token = h.Token
					storecmd.Extend(ctx, m, c)
				}
				return s, n, err
			}
		}},
		{"Extend is for whatever grant there is", "Extend/OfASecondGrant", func(m *dsynctest.Memory, w *wrong) {
			w.extend = func(ctx context.Context, c driver.Claim) (driver.Holder, error) {
				st, _ := m.Load(ctx, c.Key, 1000)
				h, _ := st.Holder(c.ID)
				c.Token = h.Token
				return storecmd.Extend(ctx, m, c)
			}
		}},
		{"leases never lapse", "Lease/AnotherMayHaveItFromItsEndOn", neverLapse},
		{"leases become holds without an end", "Extend/NotAfterItsEnd", neverLapse},
		{"Load hides what has lapsed", "Lease/LapsedIsShownUntilItIsDropped", func(m *dsynctest.Memory, w *wrong) {
			w.load = func(ctx context.Context, key string) (driver.State, error) {
				s, err := m.Load(ctx, key, 1000)
				s.Holders = slices.DeleteFunc(s.Holders, func(h driver.Holder) bool {
					return !h.Until.IsZero() && !s.Now.Before(h.Until)
				})
				return s, err
			}
		}},
		{"leases are rounded down", "Lease/TinyOneHasAnEnd", func(m *dsynctest.Memory, w *wrong) {
			w.extend = func(ctx context.Context, c driver.Claim) (driver.Holder, error) {
				h, err := storecmd.Extend(ctx, m, c)
				if c.Lease < time.Millisecond {
					h.Until = time.Time{}
				}
				return h, err
			}
		}},
		{"leases are counted in 32 bits of milliseconds", "Lease/LongestDurations", func(m *dsynctest.Memory, w *wrong) {
			w.extend = func(ctx context.Context, c driver.Claim) (driver.Holder, error) {
				c.Lease = time.Duration(int32(c.Lease.Milliseconds())) * time.Millisecond
				return storecmd.Extend(ctx, m, c)
			}
		}},
		{"what is kept is kept for a year at most", "Lease/LongestDurations", func(m *dsynctest.Memory, w *wrong) {
			w.release = func(ctx context.Context, c driver.Claim, o driver.Release) (bool, []driver.Notice, error) {
				o.Keep = min(o.Keep, 365*24*time.Hour)
				return storecmd.Release(ctx, m, c, o)
			}
		}},
		{"a repeated Acquire prolongs", "Lease/RepeatedAcquireDoesNotProlong", func(m *dsynctest.Memory, w *wrong) {
			w.acquire = func(ctx context.Context, c driver.Claim, wait bool, expired []string, notAfter time.Time) (driver.State, []driver.Notice, error) {
				st, _ := m.Load(ctx, c.Key, 1000)
				h, _ := st.Holder(c.ID)
				c.Token = h.Token
				storecmd.Extend(ctx, m, c)
				return storecmd.Acquire(ctx, m, c, wait, expired, notAfter)
			}
		}},
		{"Extend says another end than it writes", "Extend/MovesTheEnd_B25", func(m *dsynctest.Memory, w *wrong) {
			w.extend = func(ctx context.Context, c driver.Claim) (driver.Holder, error) {
				h, err := storecmd.Extend(ctx, m, c)
				h.Until = h.Until.Add(time.Microsecond)
				return h, err
			}
		}},
		{"Extend says no token", "Extend/MovesTheEnd_B25", func(m *dsynctest.Memory, w *wrong) {
			w.extend = func(ctx context.Context, c driver.Claim) (driver.Holder, error) {
				h, err := storecmd.Extend(ctx, m, c)
				h.Token = 0
				return h, err
			}
		}},
		{"Extend shortens", "Extend/NeverShortens", extendAlways},
		{"Extend revives a lapsed lease", "Extend/NotAfterItsEnd", extendAlways},
		{"Extend of what is not held succeeds", "Extend/NotHeld", func(m *dsynctest.Memory, w *wrong) {
			w.extend = func(ctx context.Context, c driver.Claim) (driver.Holder, error) {
				h, err := storecmd.Extend(ctx, m, c)
				if errors.Is(err, driver.ErrNotHeld) {
					return driver.Holder{Claim: c.ID, Until: time.Now().Add(c.Lease)}, nil
				}
				return h, err
			}
		}},
	}
}

func dropsLeases(m *dsynctest.Memory, w *wrong) {
	w.acquire = func(ctx context.Context, c driver.Claim, wait bool, expired []string, notAfter time.Time) (driver.State, []driver.Notice, error) {
		s, _ := m.Load(ctx, c.Key, 1000)
		for _, h := range s.Holders {
			if slices.Contains(expired, h.Session) {
				storecmd.Release(ctx, m, driver.Claim{Key: c.Key, ID: h.Claim}, driver.Release{})
			}
		}
		return storecmd.Acquire(ctx, m, c, wait, expired, notAfter)
	}
}

func extendAlways(m *dsynctest.Memory, w *wrong) {
	w.extend = func(ctx context.Context, c driver.Claim) (driver.Holder, error) {
		if m.SetUntil(c, time.Now().Add(c.Lease)) {
			s, err := m.Load(ctx, c.Key, 1000)
			h, _ := s.Holder(c.ID)
			return h, err
		}
		return storecmd.Extend(ctx, m, c)
	}
}

func neverLapse(m *dsynctest.Memory, w *wrong) {
	w.acquire = func(ctx context.Context, c driver.Claim, wait bool, expired []string, notAfter time.Time) (driver.State, []driver.Notice, error) {
		c.Lease = 0
		s, n, err := storecmd.Acquire(ctx, m, c, wait, expired, notAfter)
		for i := range s.Holders {
			s.Holders[i].Until = s.Holders[i].Since.Add(100 * time.Millisecond)
		}
		return s, n, err
	}
}
