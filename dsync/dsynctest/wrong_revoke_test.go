package dsynctest_test

import (
	"context"
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
		{"Heartbeat removes no revocation", "Revoke/KeysAndClaimsAreComparedExactly", func(m *dsynctest.Memory, w *wrong) {
			w.heartbeat = func(ctx context.Context, id string, _ []driver.Revocation) (driver.HeartbeatReply, error) {
				return m.Heartbeat(ctx, id, nil)
			}
		}},
		{"Revoke releases the claim", "Revoke/LeavesTheClaimAlone", func(m *dsynctest.Memory, w *wrong) {
			w.revoke = func(ctx context.Context, id string, r driver.Revocation) ([]driver.Notice, error) {
				storecmd.Release(ctx, m, driver.Claim{Key: r.Key, ID: r.Claim}, driver.Release{})
				return m.Revoke(ctx, id, r)
			}
		}},
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
