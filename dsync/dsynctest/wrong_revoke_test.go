package dsynctest_test

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/leasehold-go/leasehold/dsync/driver"
	"github.com/leasehold-go/leasehold/dsync/dsynctest"
	"github.com/leasehold-go/leasehold/internal/storecmd"
)

// wrongRevokes are defects of Revoke and of the revocations that Heartbeat returns.
func wrongRevokes() []plant {
	return []plant{
		{"a revocation is removed when it is returned", "Revoke/StandsUntilAHeartbeatRemovesIt", takingOff(func(_, stand []driver.Revocation) []driver.Revocation { return stand })},
		{"Heartbeat removes no revocation", "Revoke/StandsUntilAHeartbeatRemovesIt", takingOff(func(_, _ []driver.Revocation) []driver.Revocation { return nil })},
		{"only the last revocation is returned", "Revoke/AllThatStandAreListed", listing(func(r []driver.Revocation) []driver.Revocation {
			return r[max(0, len(r)-1):]
		})},
		{"a repeated revocation is another", "Revoke/IsNotAddedTwice", func(m *dsynctest.Memory, w *wrong) {
			asked := make(map[driver.Revocation]int)
			w.revoke = func(ctx context.Context, id string, r driver.Revocation) ([]driver.Notice, error) {
				asked[r]++
				return m.Revoke(ctx, id, r)
			}
			w.heartbeat = func(ctx context.Context, id string, given []driver.Revocation) (driver.HeartbeatReply, error) {
				p, err := m.Heartbeat(ctx, id, given)
				for _, r := range p.Revoked {
					for range asked[r] - 1 {
						p.Revoked = append(p.Revoked, r)
					}
				}
				return p, err
			}
		}},
		{"Heartbeat ignores the key of a revocation", "Revoke/KeysAndClaimsAreComparedExactly", takingOff(func(given, stand []driver.Revocation) (off []driver.Revocation) {
			for _, r := range stand {
				if slices.ContainsFunc(given, func(g driver.Revocation) bool { return g.Claim == r.Claim }) {
					off = append(off, r)
				}
			}
			return off
		})},
		{"Register removes revocations", "Revoke/StandsThroughARegister", func(m *dsynctest.Memory, w *wrong) {
			w.register = func(ctx context.Context, s driver.Member) (time.Time, error) {
				p, _ := m.Heartbeat(ctx, s.ID, nil)
				m.Heartbeat(ctx, s.ID, p.Revoked)
				return m.Register(ctx, s)
			}
		}},
		{"Revoke is a heartbeat", "Revoke/OfTheLapsedIsNoHeartbeat", func(m *dsynctest.Memory, w *wrong) {
			w.revoke = func(ctx context.Context, id string, r driver.Revocation) ([]driver.Notice, error) {
				m.Heartbeat(ctx, id, nil)
				return m.Revoke(ctx, id, r)
			}
		}},
		{"a lapsed session is treated as expired", "Revoke/OfTheLapsedIsNoHeartbeat", func(m *dsynctest.Memory, w *wrong) {
			w.revoke = func(ctx context.Context, id string, r driver.Revocation) ([]driver.Notice, error) {
				m.Expire(ctx, id, false)
				return m.Revoke(ctx, id, r)
			}
		}},
		{"an expired session can be revoked", "Revoke/OfExpiredOrUnknown", func(m *dsynctest.Memory, w *wrong) {
			w.revoke = func(ctx context.Context, id string, r driver.Revocation) ([]driver.Notice, error) {
				if n, err := m.Revoke(ctx, id, r); !errors.Is(err, driver.ErrSessionExpired) {
					return n, err
				}
				return nil, nil
			}
		}},
		{"Revoke registers the unknown", "Revoke/OfExpiredOrUnknown", func(m *dsynctest.Memory, w *wrong) {
			w.revoke = func(ctx context.Context, id string, r driver.Revocation) ([]driver.Notice, error) {
				if found, _, _ := storecmd.Members(ctx, m, id); len(found) == 0 {
					m.Register(ctx, driver.Member{ID: id, TTL: time.Minute})
				}
				return m.Revoke(ctx, id, r)
			}
		}},
		{"Revoke releases the claim", "Revoke/LeavesTheClaimAlone", func(m *dsynctest.Memory, w *wrong) {
			w.revoke = func(ctx context.Context, id string, r driver.Revocation) ([]driver.Notice, error) {
				storecmd.Release(ctx, m, driver.Claim{Key: r.Key, ID: r.Claim}, driver.Release{})
				return m.Revoke(ctx, id, r)
			}
		}},
		{"giving one up removes all revocations", "Revoke/LateHeartbeatsRemoveNoOther", takingOff(func(given, stand []driver.Revocation) []driver.Revocation {
			if len(given) > 0 {
				return stand
			}
			return nil
		})},
		{"revocations make no notice", "Notice/RevocationIsForItsSession", omitting(func(n driver.Notice) bool {
			return n.Type == driver.NoticeRevoke
		})},
		{"a revocation is for the session of the key's holder", "Notice/RevocationIsForItsSession", noticing(func(_ string, n []driver.Notice) []driver.Notice {
			if len(n) > 0 && n[0].Type == driver.NoticeRevoke {
				n[0].Session = ""
			}
			return n
		})},
		{"a removed revocation makes no notice again", "Notice/RevocationIsForItsSession", func(m *dsynctest.Memory, w *wrong) {
			asked := make(map[string]bool)
			omitting(func(n driver.Notice) bool {
				again := asked[n.Claim]
				asked[n.Claim] = true
				return again
			})(m, w)
		}},
		{"heartbeats write back what they read", "Race/RevocationsAndHeartbeats", func(m *dsynctest.Memory, w *wrong) {
			var mu sync.Mutex // allows one write at a time
			w.heartbeat = func(ctx context.Context, id string, given []driver.Revocation) (driver.HeartbeatReply, error) {
				before, _ := m.Heartbeat(ctx, id, nil)
				time.Sleep(time.Millisecond)
				mu.Lock()
				defer mu.Unlock()
				now, _ := m.Heartbeat(ctx, id, nil)
				off := slices.Clone(given)
				for _, r := range now.Revoked {
					if !slices.Contains(before.Revoked, r) {
						off = append(off, r)
					}
				}
				return m.Heartbeat(ctx, id, off)
			}
		}},
	}
}

// takingOff makes heartbeats remove the wrong revocations.
func takingOff(which func(given, stand []driver.Revocation) []driver.Revocation) func(*dsynctest.Memory, *wrong) {
	return func(m *dsynctest.Memory, w *wrong) {
		w.heartbeat = func(ctx context.Context, id string, given []driver.Revocation) (driver.HeartbeatReply, error) {
			p, err := m.Heartbeat(ctx, id, nil)
			if err == nil {
				off := which(given, p.Revoked)
				m.Heartbeat(ctx, id, off)
				if len(given) > 0 {
					p.Revoked = slices.DeleteFunc(p.Revoked, func(r driver.Revocation) bool { return slices.Contains(off, r) })
				}
			}
			return p, err
		}
	}
}

// listing makes heartbeats return the wrong revocations.
func listing(change func([]driver.Revocation) []driver.Revocation) func(*dsynctest.Memory, *wrong) {
	return func(m *dsynctest.Memory, w *wrong) {
		w.heartbeat = func(ctx context.Context, id string, given []driver.Revocation) (driver.HeartbeatReply, error) {
			p, err := m.Heartbeat(ctx, id, given)
			p.Revoked = change(p.Revoked)
			return p, err
		}
	}
}
