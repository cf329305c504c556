package dsynctest_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/leasehold-go/leasehold/dsync/driver"
	"github.com/leasehold-go/leasehold/dsync/dsynctest"
	"github.com/leasehold-go/leasehold/internal/storecmd"
)

// wrongMembers are defects of sessions.
func wrongMembers() []plant {
	return []plant{
		{"Expire is unconditional", "Expire/NotBeforeItLapses", func(m *dsynctest.Memory, w *wrong) {
			w.expire = func(ctx context.Context, id string) (time.Duration, error) { return 0, storecmd.Unregister(ctx, m, id) }
		}},
		{"Register takes what the caller says", "Register/IgnoresLastHeartbeatAndExpired", func(m *dsynctest.Memory, w *wrong) {
			w.register = func(ctx context.Context, s driver.Member) (time.Time, error) {
				at, err := m.Register(ctx, s)
				if s.Expired {
					storecmd.Unregister(ctx, m, s.ID)
				}
				return at, err
			}
		}},
		{"Members makes up unknown sessions", "Members/LeavesOutUnknown", func(m *dsynctest.Memory, w *wrong) {
			w.members = func(ctx context.Context, ids ...string) ([]driver.Member, time.Time, error) {
				found, now, err := storecmd.Members(ctx, m, ids...)
				for len(found) < len(ids) {
					found = append(found, driver.Member{Expired: true})
				}
				return found, now, err
			}
		}},
		{"Register forgets names", "Register/EveryFieldIsReadBack", func(m *dsynctest.Memory, w *wrong) {
			w.register = func(ctx context.Context, s driver.Member) (time.Time, error) {
				s.Name = ""
				return m.Register(ctx, s)
			}
		}},
		{"Members of no ids are none", "Members/WithoutIDsAreTheLiving", func(m *dsynctest.Memory, w *wrong) {
			w.members = func(ctx context.Context, ids ...string) ([]driver.Member, time.Time, error) {
				return storecmd.Members(ctx, m, append(ids, "nobody")...)
			}
		}},
		{"Members of no ids are all there are", "Members/WithoutIDsAreTheLiving", everybody(func(driver.Member, time.Time) bool { return true })},
		{"Members of no ids has the lapsed", "Members/WithoutIDsAreTheLiving", everybody(func(m driver.Member, _ time.Time) bool { return !m.Expired })},
		{"Members of no ids has expired sessions", "Members/WithoutIDsAreTheLiving", everybody(func(m driver.Member, now time.Time) bool {
			return now.Before(m.LastHeartbeat.Add(m.TTL))
		})},
		{"Members of no ids are a hundred", "Members/WithoutIDsAreAtMostAThousand", func(m *dsynctest.Memory, w *wrong) {
			w.members = func(ctx context.Context, ids ...string) ([]driver.Member, time.Time, error) {
				found, now, err := storecmd.Members(ctx, m, ids...)
				return found[:min(100, len(found))], now, err
			}
		}},
		{"Members of no ids has no bound", "Members/WithoutIDsAreAtMostAThousand", everybody(func(m driver.Member, now time.Time) bool {
			return !m.Expired && now.Before(m.LastHeartbeat.Add(m.TTL))
		})},
		{"Members has a hundred", "Members/WithoutIDsAreAtMostAThousand", func(m *dsynctest.Memory, w *wrong) {
			w.members = func(ctx context.Context, ids ...string) ([]driver.Member, time.Time, error) {
				return storecmd.Members(ctx, m, ids[:min(100, len(ids))]...)
			}
		}},
		{"Liveness has a hundred", "Members/WithoutIDsAreAtMostAThousand", func(m *dsynctest.Memory, w *wrong) {
			w.lives = func(ctx context.Context, ids ...string) ([]driver.Member, time.Time, error) {
				return storecmd.Liveness(ctx, m, ids[:min(100, len(ids))]...)
			}
		}},
		{"Liveness leaves out expired sessions", "Liveness/HasLastHeartbeatTTLAndExpired", wrongLives(func(_ *dsynctest.Memory, _ context.Context, found []driver.Member, _ []string) []driver.Member {
			return slices.DeleteFunc(found, func(m driver.Member) bool { return m.Expired })
		})},
		{"Liveness leaves out lapsed sessions", "Liveness/HasLastHeartbeatTTLAndExpired", wrongLives(func(_ *dsynctest.Memory, _ context.Context, found []driver.Member, _ []string) []driver.Member {
			return slices.DeleteFunc(found, func(m driver.Member) bool { return !m.Expired && time.Since(m.LastHeartbeat) >= m.TTL })
		})},
		{"Liveness does not report expiry", "Liveness/HasLastHeartbeatTTLAndExpired", wrongLives(func(_ *dsynctest.Memory, _ context.Context, found []driver.Member, _ []string) []driver.Member {
			for i := range found {
				found[i].Expired = false
			}
			return found
		})},
		{"Liveness has no TTL", "Liveness/HasLastHeartbeatTTLAndExpired", wrongLives(func(_ *dsynctest.Memory, _ context.Context, found []driver.Member, _ []string) []driver.Member {
			for i := range found {
				found[i].TTL = 0
			}
			return found
		})},
		{"Liveness makes up unknown sessions", "Liveness/HasLastHeartbeatTTLAndExpired", wrongLives(func(_ *dsynctest.Memory, _ context.Context, found []driver.Member, ids []string) []driver.Member {
			for len(found) < len(ids) {
				found = append(found, driver.Member{Expired: true})
			}
			return found
		})},
		{"Register forgets the HostFile", "Register/EveryFieldIsReadBack", func(m *dsynctest.Memory, w *wrong) {
			w.register = func(ctx context.Context, s driver.Member) (time.Time, error) {
				s.HostFile = ""
				return m.Register(ctx, s)
			}
		}},
		{"Liveness is Members", "Liveness/HasNothingElse", func(m *dsynctest.Memory, w *wrong) {
			w.lives = func(ctx context.Context, ids ...string) ([]driver.Member, time.Time, error) {
				return storecmd.Members(ctx, m, ids...)
			}
		}},
		{"session ids fold case", "Members/ComparesIDsExactly", func(m *dsynctest.Memory, w *wrong) {
			w.unregister = func(ctx context.Context, id string) error { return storecmd.Unregister(ctx, m, strings.ToUpper(id)) }
		}},
		{"Heartbeat needs its ctx's values", "Contexts/ValuesDoNotMatter", func(m *dsynctest.Memory, w *wrong) {
			w.heartbeat = func(ctx context.Context, id string, given []driver.Revocation) (driver.HeartbeatReply, error) {
				if fmt.Sprint(ctx) != "" && strings.Contains(fmt.Sprint(ctx), "WithValue") {
					return driver.HeartbeatReply{}, errors.New("in a transaction")
				}
				return m.Heartbeat(ctx, id, given)
			}
		}},
		{"Heartbeat ignores its ctx", "Contexts/EndedOneEndsEveryCall", func(m *dsynctest.Memory, w *wrong) {
			w.heartbeat = func(ctx context.Context, id string, given []driver.Revocation) (driver.HeartbeatReply, error) {
				if ctx.Err() != nil {
					time.Sleep(20 * time.Second)
				}
				return m.Heartbeat(ctx, id, given)
			}
		}},
		{"registrations that race fail", "Race/RegistersOfOneSession", func(m *dsynctest.Memory, w *wrong) {
			w.register = func(ctx context.Context, s driver.Member) (time.Time, error) {
				if found, _, _ := storecmd.Members(ctx, m, s.ID); len(found) > 0 {
					return time.Time{}, errors.New("E11000 duplicate key")
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
	}
}

// wrongLives changes the results of Sessions with Liveness.
func wrongLives(change func(m *dsynctest.Memory, ctx context.Context, found []driver.Member, ids []string) []driver.Member) func(*dsynctest.Memory, *wrong) {
	return func(m *dsynctest.Memory, w *wrong) {
		w.lives = func(ctx context.Context, ids ...string) ([]driver.Member, time.Time, error) {
			found, now, err := storecmd.Liveness(ctx, m, ids...)
			return change(m, ctx, found, ids), now, err
		}
	}
}

// everybody makes Sessions without IDs return all sessions for which ok returns true.
func everybody(ok func(driver.Member, time.Time) bool) func(*dsynctest.Memory, *wrong) {
	return func(m *dsynctest.Memory, w *wrong) {
		var mu sync.Mutex
		var all []string
		w.register = func(ctx context.Context, s driver.Member) (time.Time, error) {
			mu.Lock()
			defer mu.Unlock()
			all = append(all, s.ID)
			return m.Register(ctx, s)
		}
		w.members = func(ctx context.Context, ids ...string) ([]driver.Member, time.Time, error) {
			if len(ids) > 0 {
				return storecmd.Members(ctx, m, ids...)
			}
			mu.Lock()
			defer mu.Unlock()
			slices.Sort(all)
			found, now, err := storecmd.Members(ctx, m, all...)
			return slices.DeleteFunc(found, func(m driver.Member) bool { return !ok(m, now) }), now, err
		}
	}
}
