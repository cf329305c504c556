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

// wrongNotices are defects of the notices of grants.
func wrongNotices() []plant {
	grants := func(by func(command) bool) func(*dsynctest.Memory, *wrong) {
		return omitting(func(c command, n driver.Notice) bool { return n.Type == driver.NoticeGrant && by(c) })
	}
	return []plant{
		{"Release returns no grants", "Notice/GrantByRelease", grants(func(by command) bool { return by.method == dsynctest.MethodRelease })},
		{"Release with NoneWaiting returns no grants", "Notice/GrantByRelease", grants(func(by command) bool { return by.claim.NoneWaiting })},
		{"a session is not notified by itself", "Notice/GrantByRelease", omitting(func(by command, n driver.Notice) bool {
			return n.Session == by.claim.Session
		})},
		{"a release from the queue returns no grants", "Notice/GrantByAnyCommand", grants(func(by command) bool {
			return by.method == dsynctest.MethodRelease && by.claim.Token == 0
		})},
		{"tries return no grants", "Notice/GrantByAnyCommand", grants(func(by command) bool {
			return by.method == dsynctest.MethodAcquire && !by.wait
		})},
		{"tries drop lapsed leases without a notice", "Notice/GrantAfterALapsedLease", grants(func(by command) bool {
			return by.method == dsynctest.MethodAcquire && !by.wait
		})},
		{"an Acquire that joins returns no grants", "Notice/GrantByAnyCommand", grants(func(by command) bool {
			return by.method == dsynctest.MethodAcquire && by.wait && by.state.Position > 0
		})},
		{"late requests return no grants", "Notice/GrantByAnyCommand", grants(func(by command) bool {
			return by.method == dsynctest.MethodAcquire && by.wait && by.state.Position == 0
		})},
		{"grants have other tokens", "Notice/GrantByAnyCommand", reading(func(n *driver.Notice) { n.Token++ })},
		{"grants are for other sessions", "Notice/GrantByRelease", reading(func(n *driver.Notice) { n.Session += "1" })},
		{"a command returns one grant", "Notice/SeveralGrantsOfOneCommand", noticing(func(_ command, n []driver.Notice) []driver.Notice {
			return n[:min(1, len(n))]
		})},
		{"one's own grant is a notice too", "Notice/OwnGrantIsInTheReply", noticing(func(by command, n []driver.Notice) []driver.Notice {
			if h, ok := by.state.Holder(by.claim.ID); ok {
				n = append(n, grantOf(by, h))
			}
			return n
		})},
		{"every request wakes the first in the queue", "Notice/OnlyOfWhatTheCommandDid", noticing(func(by command, n []driver.Notice) []driver.Notice {
			if by.method == dsynctest.MethodAcquire {
				n = append(n, wakeOf(by, 0, 1)...)
			}
			return n
		})},
		{"notices are returned although nobody can listen", "Notice/NoneWhereNobodyCanListen", cannotListen},
		{"Notify fails where nobody can listen", "Notice/NoneWhereNobodyCanListen", func(m *dsynctest.Memory, w *wrong) {
			m.Polling = true
			w.notify = func(context.Context, []driver.Notice) error { return errors.New("not connected") }
		}},
		{"Release decides whom to notify before it releases", "Race/EveryGrantIsNotified", func(m *dsynctest.Memory, w *wrong) {
			w.release = func(ctx context.Context, c driver.Claim, o driver.Release) (bool, []driver.Notice, error) {
				s, _ := m.Load(ctx, c.Key, 1000)
				time.Sleep(5 * time.Millisecond)
				found, n, err := storecmd.Release(ctx, m, c, o)
				return found, slices.DeleteFunc(n, func(n driver.Notice) bool {
					return !slices.ContainsFunc(s.WaitersAhead, func(w driver.Waiter) bool { return w.Claim == n.Claim })
				}), err
			}
		}},
	}
}

// wrongWakes are defects of NoticeWake.
func wrongWakes() []plant {
	nobody := omitting(func(_ command, n driver.Notice) bool { return n.Type == driver.NoticeWake })
	return []plant{
		{"Seal wakes nobody", "Notice/SealWakesTheQueue", nobody},
		{"Seal wakes one of a session", "Notice/SealWakesTheQueue", noticing(func(_ command, n []driver.Notice) []driver.Notice {
			return n[:min(2, len(n))]
		})},
		{"Keep wakes nobody", "Notice/KeepWakesTheFirstWaiter", nobody},
	}
}

// The type command describes a command of the store that returned notices. The field state has the key's state in the
// reply to an Acquire, or after any other command.
type command struct {
	method  dsynctest.Method
	key     string
	claim   driver.Claim
	wait    bool // of Acquire
	outcome driver.Release
	state   driver.State
}

// noticing changes the notices that commands return.
func noticing(change func(by command, n []driver.Notice) []driver.Notice) func(*dsynctest.Memory, *wrong) {
	return func(m *dsynctest.Memory, w *wrong) {
		changed := func(by command, n []driver.Notice, err error) []driver.Notice {
			if err != nil {
				return n
			}
			if by.method != dsynctest.MethodAcquire {
				by.state, _ = m.Load(context.Background(), by.key, 1000)
			}
			return change(by, n)
		}
		w.acquire = func(ctx context.Context, c driver.Claim, wait bool, expired []string, notAfter time.Time) (driver.State, []driver.Notice, error) {
			s, n, err := storecmd.Acquire(ctx, m, c, wait, expired, notAfter)
			return s, changed(command{method: dsynctest.MethodAcquire, key: c.Key, claim: c, wait: wait, state: s}, n, err), err
		}
		w.release = func(ctx context.Context, c driver.Claim, o driver.Release) (bool, []driver.Notice, error) {
			found, n, err := storecmd.Release(ctx, m, c, o)
			return found, changed(command{method: dsynctest.MethodRelease, key: c.Key, claim: c, outcome: o}, n, err), err
		}
		w.publish = func(ctx context.Context, c driver.Claim, seq int64, value []byte) ([]driver.Notice, error) {
			n, err := storecmd.Publish(ctx, m, c, seq, value)
			return changed(command{method: dsynctest.MethodPublish, key: c.Key, claim: c}, n, err), err
		}
		w.resize = func(ctx context.Context, key string, kind driver.Kind, from, limit int64) ([]driver.Notice, error) {
			n, err := storecmd.Resize(ctx, m, key, kind, from, limit)
			return changed(command{method: dsynctest.MethodResize, key: key}, n, err), err
		}
		w.revoke = func(ctx context.Context, session string, r driver.Revocation) ([]driver.Notice, error) {
			n, err := m.Revoke(ctx, session, r)
			return changed(command{method: dsynctest.MethodRevoke, key: r.Key}, n, err), err
		}
	}
}

// omitting leaves out the notices for which drop returns true.
func omitting(drop func(by command, n driver.Notice) bool) func(*dsynctest.Memory, *wrong) {
	return noticing(func(by command, n []driver.Notice) []driver.Notice {
		return slices.DeleteFunc(n, func(n driver.Notice) bool { return drop(by, n) })
	})
}

// reading changes every notice of a grant.
func reading(change func(*driver.Notice)) func(*dsynctest.Memory, *wrong) {
	return noticing(func(_ command, n []driver.Notice) []driver.Notice {
		for i := range n {
			if n[i].Type == driver.NoticeGrant {
				change(&n[i])
			}
		}
		return n
	})
}

// grantOf returns the notice of the grant of h.
func grantOf(by command, h driver.Holder) driver.Notice {
	return driver.Notice{Type: driver.NoticeGrant, Session: h.Session, Key: by.key, Claim: h.Claim,
		Token: h.Token, Term: by.state.Term, Crowded: by.state.Waiting > 0}
}

// wakeOf returns a NoticeWake for each waiter in queue[from:to].
func wakeOf(by command, from, to int) (n []driver.Notice) {
	ahead := by.state.WaitersAhead
	for _, w := range ahead[min(from, len(ahead)):min(to, len(ahead))] {
		n = append(n, driver.Notice{Type: driver.NoticeWake, Session: w.Session, Key: by.key, Claim: w.Claim})
	}
	return n
}

func cannotListen(m *dsynctest.Memory, w *wrong) {
	w.listen = func(context.Context, string, []string, func(driver.Notice)) error { return errors.ErrUnsupported }
}
