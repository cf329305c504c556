package dsynctest_test

import (
	"context"
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
		{"Release of what is absent is an error", "Release/AbsentIsNoError", func(m *dsynctest.Memory, w *wrong) {
			w.release = func(ctx context.Context, c driver.Claim, o driver.Release) (bool, []driver.Notice, error) {
				found, n, err := storecmd.Release(ctx, m, c, o)
				if err == nil && !found {
					err = driver.ErrNotHeld
				}
				return found, n, err
			}
		}},
		{"Keep is ignored", "Keep/EndsThatMuchLater_B35", func(m *dsynctest.Memory, w *wrong) {
			w.release = func(ctx context.Context, c driver.Claim, _ driver.Release) (bool, []driver.Notice, error) {
				return storecmd.Release(ctx, m, c, driver.Release{})
			}
		}},
		{"a repeated Keep prolongs", "Keep/RepeatingDoesNotProlong", keepMoves},
		{"Keep prolongs a fixed lease", "Keep/EarlierEndOfFixedLeaseStays", keepMoves},
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
		{"leases never lapse", "Lease/AnotherMayHaveItFromItsEndOn", neverLapse},
		{"leases become holds without an end", "Extend/NotAfterItsEnd", neverLapse},
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
		{"Extend says another end than it writes", "Extend/MovesTheEnd_B25", func(m *dsynctest.Memory, w *wrong) {
			w.extend = func(ctx context.Context, c driver.Claim) (driver.Holder, error) {
				h, err := storecmd.Extend(ctx, m, c)
				h.Until = h.Until.Add(time.Microsecond)
				return h, err
			}
		}},
		{"Extend shortens", "Extend/NeverShortens", extendAlways},
		{"Extend revives a lapsed lease", "Extend/NotAfterItsEnd", extendAlways},
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
