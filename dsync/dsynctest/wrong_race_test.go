package dsynctest_test

import (
	"context"
	"errors"
	"sync/atomic"
	"time"

	"github.com/leasehold-go/leasehold/dsync/driver"
	"github.com/leasehold-go/leasehold/dsync/dsynctest"
	"github.com/leasehold-go/leasehold/internal/storecmd"
)

// wrongRaces are defects of commands that are not atomic or that arrive late.
func wrongRaces() []plant {
	return []plant{
		{"Acquire ignores notAfter", "Late/EveryRequestTwiceAfterEveryLaterOne_B31", func(m *dsynctest.Memory, w *wrong) {
			w.acquire = func(ctx context.Context, c driver.Claim, wait bool, expired []string, _ time.Time) (driver.State, []driver.Notice, error) {
				return storecmd.Acquire(ctx, m, c, wait, expired, time.Now().Add(time.Hour))
			}
		}},
		{"take-over is not atomic", "Race/FiftyOnAFreshKey_B01", notAtomic},
		{"tries are not atomic", "Race/FiftyTriesOnAFreshKey_B01", notAtomic},
		{"holders are counted before they come", "Race/NeverMoreThanTheLimit_B01", notAtomic},
		{"waiters are let in together", "Race/EveryWaiterIsServed", notAtomic},
		{"repeats that race are granted twice", "Race/RepeatsOfOneClaim", func(m *dsynctest.Memory, w *wrong) {
			w.acquire = func(ctx context.Context, c driver.Claim, wait bool, expired []string, notAfter time.Time) (driver.State, []driver.Notice, error) {
				s, _ := m.Load(ctx, c.Key, 1000)
				time.Sleep(time.Millisecond)
				if len(s.Holders) == 0 {
					storecmd.Release(ctx, m, c, driver.Release{})
				}
				return storecmd.Acquire(ctx, m, c, wait, expired, notAfter)
			}
		}},
		{"releases that race free twice", "Race/RepeatsOfOneRelease", func(m *dsynctest.Memory, w *wrong) {
			w.release = func(ctx context.Context, c driver.Claim, o driver.Release) (bool, []driver.Notice, error) {
				s, _ := m.Load(ctx, c.Key, 1000)
				time.Sleep(time.Millisecond)
				_, n, err := storecmd.Release(ctx, m, c, o)
				return holds(s, c), n, err
			}
		}},
		{"an Acquire that fails also fails for others", "Race/EachKeyHasItsOwnAnswer", func(m *dsynctest.Memory, w *wrong) {
			var failed atomic.Pointer[error]
			w.acquire = func(ctx context.Context, c driver.Claim, wait bool, expired []string, notAfter time.Time) (driver.State, []driver.Notice, error) {
				s, n, err := storecmd.Acquire(ctx, m, c, wait, expired, notAfter)
				if err != nil {
					failed.Store(&err)
				}
				time.Sleep(time.Millisecond)
				if err := failed.Load(); err != nil {
					return driver.State{}, n, *err
				}
				return s, n, err
			}
		}},
		{"registrations that race fail", "Race/RegistersOfOneSession", func(m *dsynctest.Memory, w *wrong) {
			w.register = func(ctx context.Context, s driver.Member) (time.Time, error) {
				if found, _, _ := storecmd.Members(ctx, m, s.ID); len(found) > 0 {
					return time.Time{}, errDuplicateKey
				}
				return m.Register(ctx, s)
			}
		}},
		{"Expire returns before the session has expired", "Race/ExpiriesAndHeartbeats", func(m *dsynctest.Memory, w *wrong) {
			w.expire = func(ctx context.Context, id string) (time.Duration, error) {
				found, now, err := storecmd.Members(ctx, m, id)
				if len(found) == 1 && !now.Before(found[0].LastHeartbeat.Add(found[0].TTL)) {
					return 0, err
				}
				return m.Expire(ctx, id, false)
			}
		}},
		{"a late Register revives an expired session", "Late/EveryRequestTwiceAfterItsSessionsEnd_B31", func(m *dsynctest.Memory, w *wrong) {
			w.register = func(ctx context.Context, s driver.Member) (time.Time, error) {
				if found, _, _ := storecmd.Members(ctx, m, s.ID); len(found) > 0 && found[0].Expired {
					m.ForgetSessions(-1)
				}
				return m.Register(ctx, s)
			}
		}},
		{"a late Release frees another's hold", "Late/EveryRequestTwiceAfterEveryLaterOne_B31", func(m *dsynctest.Memory, w *wrong) {
			w.release = func(ctx context.Context, c driver.Claim, o driver.Release) (bool, []driver.Notice, error) {
				found, n, err := storecmd.Release(ctx, m, c, o)
				if s, _ := m.Load(ctx, c.Key, 1000); err == nil && !found && len(s.Holders) > 0 {
					c.ID = s.Holders[0].Claim
					storecmd.Release(ctx, m, c, o)
				}
				return found, n, err
			}
		}},
	}
}

var errDuplicateKey = errors.New("E11000 duplicate key")

// notAtomic grants a claim if nobody held the key a millisecond ago.
func notAtomic(m *dsynctest.Memory, w *wrong) {
	w.acquire = func(ctx context.Context, c driver.Claim, wait bool, expired []string, notAfter time.Time) (driver.State, []driver.Notice, error) {
		before, _ := m.Load(ctx, c.Key, 1000)
		time.Sleep(time.Millisecond)
		s, n, err := storecmd.Acquire(ctx, m, c, wait, expired, notAfter)
		if len(before.Holders) == 0 && !holds(s, c) {
			s.Holders = append(s.Holders, driver.Holder{Claim: c.ID, Session: c.Session, Weight: c.Weight, Token: s.Token + 1024})
		}
		return s, n, err
	}
}
