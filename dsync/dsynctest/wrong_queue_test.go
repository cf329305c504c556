package dsynctest_test

import (
	"context"
	"slices"
	"time"

	"github.com/leasehold-go/leasehold/dsync/driver"
	"github.com/leasehold-go/leasehold/dsync/dsynctest"
)

// wrongQueues are defects of the line, kinds and the dead.
func wrongQueues() []plant {
	return []plant{
		{"a command grants 64 claims at most", "Queue/OneCommandGrantsAllThatFit", func(m *dsynctest.Memory, w *wrong) {
			w.load = func(ctx context.Context, key string) (driver.State, error) {
				s, err := m.Load(ctx, key)
				s.Holders = s.Holders[:min(64, len(s.Holders))]
				return s, err
			}
		}},
		{"who leaves the line lets nobody in", "Queue/WhenTheHeavyHeadLeavesTheNextAreGranted", func(m *dsynctest.Memory, w *wrong) {
			w.release = func(ctx context.Context, c driver.Claim, o driver.ReleaseOptions) (bool, []driver.Notice, error) {
				if s, _ := m.Load(ctx, c.Key); s.Waiting > 0 && !holds(s, c) {
					return true, nil, nil
				}
				return m.Release(ctx, c, o)
			}
		}},
		{"all weights are one", "Queue/WeightsNeverExceedTheLimit", func(m *dsynctest.Memory, w *wrong) {
			w.acquire = func(ctx context.Context, c driver.Claim, wait bool, dead []string, notAfter time.Time) (driver.State, []driver.Notice, error) {
				c.Weight = 1
				return m.Acquire(ctx, c, wait, dead, notAfter)
			}
		}},
		{"a late Acquire does nothing at all", "Expired/LateRequestStillSettles", func(m *dsynctest.Memory, w *wrong) {
			w.acquire = func(ctx context.Context, c driver.Claim, wait bool, dead []string, notAfter time.Time) (driver.State, []driver.Notice, error) {
				if s, err := m.Load(ctx, c.Key); s.Now.After(notAfter) {
					return s, nil, err
				}
				return m.Acquire(ctx, c, wait, dead, notAfter)
			}
		}},
		{"light claims overtake", "Queue/LightDoesNotOvertakeHeavy", overtaking},
		{"light tries overtake", "Queue/TryDoesNotOvertake", overtaking},
		{"who names the dead is granted first", "Expired/FirstWaiterIsGrantedNotWhoNoticed", func(m *dsynctest.Memory, w *wrong) {
			claims := make(map[string]driver.Claim)
			w.acquire = func(ctx context.Context, c driver.Claim, wait bool, dead []string, notAfter time.Time) (driver.State, []driver.Notice, error) {
				claims[c.ID] = c
				if len(dead) > 0 {
					s, _ := m.Load(ctx, c.Key)
					for _, w := range s.WaitersAhead {
						m.Release(ctx, claims[w.Claim], driver.ReleaseOptions{})
					}
				}
				return m.Acquire(ctx, c, wait, dead, notAfter)
			}
		}},
		{"the line is last in, first out", "Queue/IsServedInOrder", func(m *dsynctest.Memory, w *wrong) {
			claims := make(map[string]driver.Claim)
			w.acquire = func(ctx context.Context, c driver.Claim, wait bool, dead []string, notAfter time.Time) (driver.State, []driver.Notice, error) {
				claims[c.ID] = c
				s, n, err := m.Acquire(ctx, c, wait, dead, notAfter)
				if s.Position > 1 {
					return jump(ctx, m, c, claims, s)
				}
				return s, n, err
			}
		}},
		{"Ahead is the head of the line", "Queue/ShowsTheNearestAhead", func(m *dsynctest.Memory, w *wrong) {
			w.acquire = func(ctx context.Context, c driver.Claim, wait bool, dead []string, notAfter time.Time) (driver.State, []driver.Notice, error) {
				s, n, err := m.Acquire(ctx, c, wait, dead, notAfter)
				head, _ := m.Load(ctx, c.Key)
				if s.Position > len(s.WaitersAhead) {
					s.WaitersAhead = head.WaitersAhead
				}
				return s, n, err
			}
		}},
		{"Load shows as much of the line as Acquire", "Load/ShowsTheQueue", func(m *dsynctest.Memory, w *wrong) {
			w.load = func(ctx context.Context, key string) (driver.State, error) {
				s, err := m.Load(ctx, key)
				s.WaitersAhead = s.WaitersAhead[:min(8, len(s.WaitersAhead))]
				return s, err
			}
		}},
		{"kinds don't matter", "Mismatch/Kind", anyKind},
		{"limits don't matter", "Mismatch/Limit", anyKind},
		{"a key keeps its kind forever", "Mismatch/FreeKeyTakesOver", func(m *dsynctest.Memory, w *wrong) {
			w.acquire = func(ctx context.Context, c driver.Claim, wait bool, dead []string, notAfter time.Time) (driver.State, []driver.Notice, error) {
				if s, _ := m.Load(ctx, c.Key); s.Kind != "" && s.Kind != c.Kind {
					return driver.State{}, nil, &driver.MismatchError{Key: c.Key, Kind: s.Kind, WantKind: c.Kind, Limit: s.Limit, WantLimit: c.Limit}
				}
				return m.Acquire(ctx, c, wait, dead, notAfter)
			}
		}},
		{"the dead are not dropped", "Expired/HolderIsDropped", deafTo(func(bool) bool { return true })},
		{"a try does not drop the dead", "Expired/TryDropsThemToo", deafTo(func(wait bool) bool { return !wait })},
		{"dead waiters stay in the queue", "Expired/WaitersAreDropped", deafTo(func(bool) bool { return true })},
		{"the dead lose their fixed leases", "Expired/FixedLeaseStaysUntilItsEnd", dropsLeases},
		{"the dead wait on for fixed leases", "Expired/WaiterForFixedLeaseIsDropped", deafTo(func(bool) bool { return true })},
		{"whoever names one dead session drops all others", "Expired/OnlyThoseNamed", func(m *dsynctest.Memory, w *wrong) {
			w.acquire = func(ctx context.Context, c driver.Claim, wait bool, dead []string, notAfter time.Time) (driver.State, []driver.Notice, error) {
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

// jump puts c, which waits, before all others in the queue, of which claims has the
// claims by id.
func jump(ctx context.Context, m *dsynctest.Memory, c driver.Claim, claims map[string]driver.Claim, s driver.State) (driver.State, []driver.Notice, error) {
	for _, w := range s.WaitersAhead {
		m.Release(ctx, claims[w.Claim], driver.ReleaseOptions{})
	}
	s, n, err := m.Acquire(ctx, c, true, nil, s.Now.Add(time.Hour))
	for _, w := range s.WaitersAhead {
		m.Acquire(ctx, claims[w.Claim], true, nil, s.Now.Add(time.Hour))
	}
	return s, n, err
}

func overtaking(m *dsynctest.Memory, w *wrong) {
	claims := make(map[string]driver.Claim)
	w.acquire = func(ctx context.Context, c driver.Claim, wait bool, dead []string, notAfter time.Time) (driver.State, []driver.Notice, error) {
		claims[c.ID] = c
		s, n, err := m.Acquire(ctx, c, true, dead, notAfter)
		sum := c.Weight
		for _, h := range s.Holders {
			sum += h.Weight
		}
		if s.Position > 0 && sum <= s.Limit {
			return jump(ctx, m, c, claims, s)
		}
		if !wait {
			return m.Acquire(ctx, c, false, dead, notAfter)
		}
		return s, n, err
	}
}

func anyKind(m *dsynctest.Memory, w *wrong) {
	w.acquire = func(ctx context.Context, c driver.Claim, wait bool, dead []string, notAfter time.Time) (driver.State, []driver.Notice, error) {
		if s, _ := m.Load(ctx, c.Key); s.Kind != "" {
			c.Kind, c.Limit = s.Kind, s.Limit
		}
		return m.Acquire(ctx, c, wait, dead, notAfter)
	}
}

func deafTo(which func(wait bool) bool) func(*dsynctest.Memory, *wrong) {
	return func(m *dsynctest.Memory, w *wrong) {
		w.acquire = func(ctx context.Context, c driver.Claim, wait bool, dead []string, notAfter time.Time) (driver.State, []driver.Notice, error) {
			if which(wait) {
				dead = nil
			}
			return m.Acquire(ctx, c, wait, dead, notAfter)
		}
	}
}

// An acquiring changes what an Acquire asks for, knowing the key's state before.
type acquiring func(s driver.State, c *driver.Claim, wait bool, notAfter *time.Time)

// asked lets Acquire do something else than it was asked for.
func asked(change acquiring) func(*dsynctest.Memory, *wrong) {
	return func(m *dsynctest.Memory, w *wrong) {
		w.acquire = func(ctx context.Context, c driver.Claim, wait bool, dead []string, notAfter time.Time) (driver.State, []driver.Notice, error) {
			s, _ := m.Load(ctx, c.Key)
			change(s, &c, wait, &notAfter)
			return m.Acquire(ctx, c, wait, dead, notAfter)
		}
	}
}

// joinsAnew lets a claim that is known join once more.
func joinsAnew(known func(s driver.State, c driver.Claim) bool) func(*dsynctest.Memory, *wrong) {
	return func(m *dsynctest.Memory, w *wrong) {
		w.acquire = func(ctx context.Context, c driver.Claim, wait bool, dead []string, notAfter time.Time) (driver.State, []driver.Notice, error) {
			if s, _ := m.Load(ctx, c.Key); c.First && known(s, c) {
				m.Release(ctx, c, driver.ReleaseOptions{})
			}
			return m.Acquire(ctx, c, wait, dead, notAfter)
		}
	}
}

func weight(s driver.State) (sum int64) {
	for _, h := range s.Holders {
		sum += h.Weight
	}
	return sum
}

// wrongFirsts are defects of claims that go to the head of the line.
func wrongFirsts() []plant {
	return []plant{
		{"nobody is first", "First/GoesToTheHead", asked(func(_ driver.State, c *driver.Claim, _ bool, _ *time.Time) { c.First = false })},
		{"first are second behind others that are", "First/GoesToTheHead", func(m *dsynctest.Memory, w *wrong) {
			first := make(map[string]bool)
			w.acquire = func(ctx context.Context, c driver.Claim, wait bool, dead []string, notAfter time.Time) (driver.State, []driver.Notice, error) {
				s, _ := m.Load(ctx, c.Key)
				c.First = c.First && (len(s.WaitersAhead) == 0 || !first[s.WaitersAhead[0].Claim])
				first[c.ID] = c.First
				return m.Acquire(ctx, c, wait, dead, notAfter)
			}
		}},
		{"who repeats is first again", "First/WaiterKeepsItsPosition", joinsAnew(func(s driver.State, c driver.Claim) bool { return !holds(s, c) })},
		{"a holder may be first too", "First/HolderIsNotJoinedAgain", joinsAnew(holds)},
		{"who is first but does not fit is last", "First/HeavyOneHoldsUpTheQueue", asked(func(s driver.State, c *driver.Claim, _ bool, _ *time.Time) {
			c.First = c.First && weight(s)+c.Weight <= s.Limit
		})},
		{"tries are never first", "First/TryThatFitsIsGranted", asked(func(_ driver.State, c *driver.Claim, wait bool, _ *time.Time) {
			c.First = c.First && wait
		})},
		{"first tries stay in the queue", "First/TryThatFitsIsGranted", func(m *dsynctest.Memory, w *wrong) {
			w.acquire = func(ctx context.Context, c driver.Claim, wait bool, dead []string, notAfter time.Time) (driver.State, []driver.Notice, error) {
				return m.Acquire(ctx, c, wait || c.First, dead, notAfter)
			}
		}},
		{"who is first is never late", "First/AfterNotAfterJoinsNothing", asked(func(_ driver.State, c *driver.Claim, _ bool, notAfter *time.Time) {
			if c.First {
				*notAfter = time.Now().Add(time.Hour)
			}
		})},
	}
}

// yieldAll asks every holder to yield, whether it would or not.
func yieldAll(by command) (n []driver.Notice) {
	for _, h := range by.state.Holders {
		n = append(n, driver.Notice{Type: driver.NoticeYield, Session: h.Session, Key: by.key, Claim: h.Claim})
	}
	return n
}

// wrongYields are defects of claims that yield.
func wrongYields() []plant {
	nobodyYields := asked(func(_ driver.State, c *driver.Claim, _ bool, _ *time.Time) { c.Yield = false })
	everybodyYields := asked(func(_ driver.State, c *driver.Claim, _ bool, _ *time.Time) { c.Yield = true })
	return []plant{
		{"nobody yields", "Yield/IsShown", nobodyYields},
		{"everybody yields", "Yield/IsShown", everybodyYields},
		{"nobody is asked to yield", "Notice/YieldFromTheFirstWaiter", omitting(func(_ command, n driver.Notice) bool { return n.Type == driver.NoticeYield })},
		{"a claim is asked to yield once", "Notice/YieldFromTheFirstWaiter", func(m *dsynctest.Memory, w *wrong) {
			asked := make(map[string]bool)
			omitting(func(_ command, n driver.Notice) bool {
				again := asked[n.Claim]
				asked[n.Claim] = again || n.Type == driver.NoticeYield
				return n.Type == driver.NoticeYield && again
			})(m, w)
		}},
		{"whoever waits asks others to yield", "Notice/YieldFromTheFirstWaiter", noticing(func(by command, n []driver.Notice) []driver.Notice {
			if by.method == dsynctest.MethodAcquire && by.state.Position > 1 {
				return append(n, yieldAll(by)...)
			}
			return n
		})},
		{"tries ask others to yield", "Notice/YieldFromTheFirstWaiter", noticing(func(by command, n []driver.Notice) []driver.Notice {
			if by.method == dsynctest.MethodAcquire && !by.wait && by.state.Position == 0 {
				return append(n, yieldAll(by)...)
			}
			return n
		})},
		{"first that join ask nobody to yield", "Notice/YieldFromTheFirstWaiter", omitting(func(by command, n driver.Notice) bool {
			return n.Type == driver.NoticeYield && by.claim.First
		})},
		{"Release asks to yield", "Notice/YieldFromTheFirstWaiter", noticing(func(by command, n []driver.Notice) []driver.Notice {
			if by.method == dsynctest.MethodRelease && by.state.Waiting > 0 {
				return append(n, yieldAll(by)...)
			}
			return n
		})},
		{"everybody is asked to yield", "Notice/YieldToEachThatDoes", everybodyYields},
		{"one of a session is asked to yield", "Notice/YieldToEachThatDoes", noticing(func(_ command, n []driver.Notice) []driver.Notice {
			return slices.CompactFunc(n, func(a, b driver.Notice) bool {
				return a.Type == driver.NoticeYield && a.Session == b.Session && b.Type == a.Type
			})
		})},
		{"nobody asks its own session to yield", "Notice/YieldToEachThatDoes", omitting(func(by command, n driver.Notice) bool {
			return n.Type == driver.NoticeYield && n.Session == by.claim.Session
		})},
		{"who yields is granted as if nobody waited", "Notice/GrantSaysWhetherToYield", reading(func(n *driver.Notice) { n.Crowded = false })},
		{"who yields is granted as if others waited", "Notice/GrantSaysWhetherToYield", reading(func(n *driver.Notice) { n.Crowded = true })},
		{"there is no room for hand-overs", "Token/RoomBehindOneThatYields", nobodyYields},
		{"the room is told as used", "Token/RoomBehindOneThatYields", seen(func(s *driver.State) {
			if len(s.Holders) > 0 && s.Holders[0].Yield {
				s.Token += 1024
			}
		})},
		{"a part has the room of all", "Token/NoRoomBehindAPart", seen(func(s *driver.State) {
			if len(s.Holders) > 0 && s.Holders[0].Yield && s.Holders[0].Weight < s.Limit {
				s.Token = s.Holders[0].Token + 64512
			}
		})},
		{"who does not yield has the room", "Token/NoRoomBehindAPart", everybodyYields},
		{"Sweep forgets the room", "Sweep/RoomStaysBehindOneThatYields", carelessSweep},
	}
}
