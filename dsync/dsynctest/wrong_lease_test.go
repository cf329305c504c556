package dsynctest_test

import (
	"context"
	"errors"
	"slices"
	"sync/atomic"
	"time"

	"github.com/leasehold-go/leasehold/dsync"
	"github.com/leasehold-go/leasehold/dsync/dsynctest"
)

// wrongLeases are defects of fixed leases.
func wrongLeases() []plant {
	return []plant{
		{"leases end when the host says so", "Lease/EndsThatLongAfterItsGrant", func(m *dsynctest.Memory, w *wrong) {
			m.Skew(-time.Hour)
			w.acquire = func(ctx context.Context, c dsync.Claim, wait bool, dead []string, notAfter time.Time) (dsync.State, error) {
				m.Acquire(ctx, c, wait, dead, notAfter)
				m.SetUntil(c, time.Now().Add(c.Lease))
				return m.Acquire(ctx, c, wait, dead, notAfter)
			}
		}},
		{"leases count from the join", "Lease/CountsFromTheGrantNotTheJoin", func(m *dsynctest.Memory, w *wrong) {
			ends := make(map[string]time.Time)
			w.acquire = func(ctx context.Context, c dsync.Claim, wait bool, dead []string, notAfter time.Time) (dsync.State, error) {
				s, err := m.Acquire(ctx, c, wait, dead, notAfter)
				ends[c.ID] = s.Now.Add(c.Lease)
				return s, err
			}
			w.load = func(ctx context.Context, key string) (dsync.State, error) {
				s, err := m.Load(ctx, key)
				for i, h := range s.Holders {
					s.Holders[i].Until = ends[h.Claim]
				}
				return s, err
			}
		}},
		{"leases never lapse", "Lease/AnotherMayHaveItFromItsEndOn", neverLapse},
		{"leases become holds without an end", "Extend/NotAfterItsEnd", neverLapse},
		{"Load hides what has lapsed", "Lease/LapsedIsShownUntilItIsDropped", func(m *dsynctest.Memory, w *wrong) {
			w.load = func(ctx context.Context, key string) (dsync.State, error) {
				s, err := m.Load(ctx, key)
				s.Holders = slices.DeleteFunc(s.Holders, func(h dsync.Holder) bool {
					return !h.Until.IsZero() && !s.Now.Before(h.Until)
				})
				return s, err
			}
		}},
		{"leases are rounded down", "Lease/TinyOneHasAnEnd", func(m *dsynctest.Memory, w *wrong) {
			w.acquire = func(ctx context.Context, c dsync.Claim, wait bool, dead []string, notAfter time.Time) (dsync.State, error) {
				c.Lease = c.Lease.Truncate(time.Millisecond)
				return m.Acquire(ctx, c, wait, dead, notAfter)
			}
		}},
		{"a repeated Acquire prolongs", "Lease/RepeatedAcquireDoesNotProlong", func(m *dsynctest.Memory, w *wrong) {
			w.acquire = func(ctx context.Context, c dsync.Claim, wait bool, dead []string, notAfter time.Time) (dsync.State, error) {
				m.Extend(ctx, c)
				return m.Acquire(ctx, c, wait, dead, notAfter)
			}
		}},
		{"Extend says another end than it writes", "Extend/MovesTheEnd_B25", func(m *dsynctest.Memory, w *wrong) {
			w.extend = func(ctx context.Context, c dsync.Claim) (dsync.Holder, error) {
				h, err := m.Extend(ctx, c)
				h.Until = h.Until.Add(time.Microsecond)
				return h, err
			}
		}},
		{"Extend says no token", "Extend/MovesTheEnd_B25", func(m *dsynctest.Memory, w *wrong) {
			w.extend = func(ctx context.Context, c dsync.Claim) (dsync.Holder, error) {
				h, err := m.Extend(ctx, c)
				h.Token = 0
				return h, err
			}
		}},
		{"Extend says the token of the first grant", "Extend/OfASecondGrant", func(m *dsynctest.Memory, w *wrong) {
			var first atomic.Int64
			w.acquire = func(ctx context.Context, c dsync.Claim, wait bool, dead []string, notAfter time.Time) (dsync.State, error) {
				s, err := m.Acquire(ctx, c, wait, dead, notAfter)
				if h, ok := s.Holder(c.ID); ok && c.Lease > 0 {
					first.CompareAndSwap(0, h.Token)
				}
				return s, err
			}
			w.extend = func(ctx context.Context, c dsync.Claim) (dsync.Holder, error) {
				h, err := m.Extend(ctx, c)
				if err == nil {
					h.Token = first.Load()
				}
				return h, err
			}
		}},
		{"Extend shortens", "Extend/NeverShortens", extendAlways},
		{"Extend revives a lapsed lease", "Extend/NotAfterItsEnd", extendAlways},
		{"Extend of what is not held succeeds", "Extend/NotHeld", func(m *dsynctest.Memory, w *wrong) {
			w.extend = func(ctx context.Context, c dsync.Claim) (dsync.Holder, error) {
				h, err := m.Extend(ctx, c)
				if errors.Is(err, dsync.ErrNotHeld) {
					return dsync.Holder{Claim: c.ID, Until: time.Now().Add(c.Lease)}, nil
				}
				return h, err
			}
		}},
	}
}

func dropsLeases(m *dsynctest.Memory, w *wrong) {
	w.acquire = func(ctx context.Context, c dsync.Claim, wait bool, dead []string, notAfter time.Time) (dsync.State, error) {
		s, _ := m.Load(ctx, c.Key)
		for _, h := range s.Holders {
			if slices.Contains(dead, h.Session) {
				m.Release(ctx, dsync.Claim{Key: c.Key, ID: h.Claim}, dsync.Outcome{})
			}
		}
		return m.Acquire(ctx, c, wait, dead, notAfter)
	}
}

func extendAlways(m *dsynctest.Memory, w *wrong) {
	w.extend = func(ctx context.Context, c dsync.Claim) (dsync.Holder, error) {
		if m.SetUntil(c, time.Now().Add(c.Lease)) {
			s, err := m.Load(ctx, c.Key)
			h, _ := s.Holder(c.ID)
			return h, err
		}
		return m.Extend(ctx, c)
	}
}

func neverLapse(m *dsynctest.Memory, w *wrong) {
	w.acquire = func(ctx context.Context, c dsync.Claim, wait bool, dead []string, notAfter time.Time) (dsync.State, error) {
		c.Lease = 0
		s, err := m.Acquire(ctx, c, wait, dead, notAfter)
		for i := range s.Holders {
			s.Holders[i].Until = s.Holders[i].Since.Add(100 * time.Millisecond)
		}
		return s, err
	}
}
