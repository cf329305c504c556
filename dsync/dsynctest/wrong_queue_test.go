package dsynctest_test

import (
	"context"
	"time"

	"github.com/leasehold-go/leasehold/dsync/driver"
	"github.com/leasehold-go/leasehold/dsync/dsynctest"
	"github.com/leasehold-go/leasehold/internal/storecmd"
)

// wrongQueues are defects of the queue, and of how kinds and expired sessions are handled.
func wrongQueues() []plant {
	return []plant{
		{"a command grants 64 claims at most", "Queue/OneCommandGrantsAllThatFit", func(m *dsynctest.Memory, w *wrong) {
			w.load = func(ctx context.Context, key string) (driver.State, error) {
				s, err := m.Load(ctx, key, 1000)
				s.Holders = s.Holders[:min(64, len(s.Holders))]
				return s, err
			}
		}},
		{"light claims overtake", "Queue/LightDoesNotOvertakeHeavy", overtaking},
		{"light tries overtake", "Queue/TryDoesNotOvertake", overtaking},
		{"WaitersAhead is the head of the queue", "Queue/ShowsTheNearestAhead", func(m *dsynctest.Memory, w *wrong) {
			w.acquire = func(ctx context.Context, c driver.Claim, wait bool, expired []string, notAfter time.Time) (driver.State, []driver.Notice, error) {
				s, n, err := storecmd.Acquire(ctx, m, c, wait, expired, notAfter)
				head, _ := m.Load(ctx, c.Key, 1000)
				if s.Position > len(s.WaitersAhead) {
					s.WaitersAhead = head.WaitersAhead
				}
				return s, n, err
			}
		}},
		{"Load shows as much of the queue as Acquire", "Load/ShowsTheQueue", func(m *dsynctest.Memory, w *wrong) {
			w.load = func(ctx context.Context, key string) (driver.State, error) {
				s, err := m.Load(ctx, key, 1000)
				s.WaitersAhead = s.WaitersAhead[:min(8, len(s.WaitersAhead))]
				return s, err
			}
		}},
		{"kinds don't matter", "Mismatch/Kind", anyKind},
		{"limits don't matter", "Mismatch/Limit", anyKind},
		{"claims of expired sessions are not dropped", "Expired/HolderIsDropped", deafTo(func(bool) bool { return true })},
		{"a try does not drop claims of expired sessions", "Expired/TryDropsThemToo", deafTo(func(wait bool) bool { return !wait })},
		{"waiters of expired sessions stay in the queue", "Expired/WaitersAreDropped", deafTo(func(bool) bool { return true })},
		{"expired sessions lose their fixed leases", "Expired/FixedLeaseStaysUntilItsEnd", dropsLeases},
		{"expired sessions wait on for fixed leases", "Expired/WaiterForFixedLeaseIsDropped", deafTo(func(bool) bool { return true })},
	}
}

// jump moves c to the head of the queue. claims has the queue's claims, by id.
func jump(ctx context.Context, m *dsynctest.Memory, c driver.Claim, claims map[string]driver.Claim, s driver.State) (driver.State, []driver.Notice, error) {
	for _, w := range s.WaitersAhead {
		storecmd.Release(ctx, m, claims[w.Claim], driver.Release{})
	}
	s, n, err := storecmd.Acquire(ctx, m, c, true, nil, s.Now.Add(time.Hour))
	for _, w := range s.WaitersAhead {
		storecmd.Acquire(ctx, m, claims[w.Claim], true, nil, s.Now.Add(time.Hour))
	}
	return s, n, err
}

func overtaking(m *dsynctest.Memory, w *wrong) {
	claims := make(map[string]driver.Claim)
	w.acquire = func(ctx context.Context, c driver.Claim, wait bool, expired []string, notAfter time.Time) (driver.State, []driver.Notice, error) {
		claims[c.ID] = c
		s, n, err := storecmd.Acquire(ctx, m, c, true, expired, notAfter)
		sum := c.Weight
		for _, h := range s.Holders {
			sum += h.Weight
		}
		if s.Position > 0 && sum <= s.Limit {
			return jump(ctx, m, c, claims, s)
		}
		if !wait {
			return storecmd.Acquire(ctx, m, c, false, expired, notAfter)
		}
		return s, n, err
	}
}

func anyKind(m *dsynctest.Memory, w *wrong) {
	w.acquire = func(ctx context.Context, c driver.Claim, wait bool, expired []string, notAfter time.Time) (driver.State, []driver.Notice, error) {
		if s, _ := m.Load(ctx, c.Key, 1000); s.Kind != "" {
			c.Kind, c.Limit = s.Kind, s.Limit
		}
		return storecmd.Acquire(ctx, m, c, wait, expired, notAfter)
	}
}

func deafTo(which func(wait bool) bool) func(*dsynctest.Memory, *wrong) {
	return func(m *dsynctest.Memory, w *wrong) {
		w.acquire = func(ctx context.Context, c driver.Claim, wait bool, expired []string, notAfter time.Time) (driver.State, []driver.Notice, error) {
			if which(wait) {
				expired = nil
			}
			return storecmd.Acquire(ctx, m, c, wait, expired, notAfter)
		}
	}
}

// The type acquiring is a function that changes the request of an Acquire. s is the key's state before the Acquire.
type acquiring func(s driver.State, c *driver.Claim, wait bool, notAfter *time.Time)

// asked changes each Acquire before the store executes it.
func asked(change acquiring) func(*dsynctest.Memory, *wrong) {
	return func(m *dsynctest.Memory, w *wrong) {
		w.acquire = func(ctx context.Context, c driver.Claim, wait bool, expired []string, notAfter time.Time) (driver.State, []driver.Notice, error) {
			s, _ := m.Load(ctx, c.Key, 1000)
			change(s, &c, wait, &notAfter)
			return storecmd.Acquire(ctx, m, c, wait, expired, notAfter)
		}
	}
}

// joinsAnew changes the Acquire of a claim with First: if known returns true, the claim is released before it is
// acquired.
func joinsAnew(known func(s driver.State, c driver.Claim) bool) func(*dsynctest.Memory, *wrong) {
	return func(m *dsynctest.Memory, w *wrong) {
		w.acquire = func(ctx context.Context, c driver.Claim, wait bool, expired []string, notAfter time.Time) (driver.State, []driver.Notice, error) {
			if s, _ := m.Load(ctx, c.Key, 1000); c.First && known(s, c) {
				storecmd.Release(ctx, m, c, driver.Release{})
			}
			return storecmd.Acquire(ctx, m, c, wait, expired, notAfter)
		}
	}
}

func weight(s driver.State) (sum int64) {
	for _, h := range s.Holders {
		sum += h.Weight
	}
	return sum
}

// wrongFirsts are defects of claims that go to the head of the queue.
func wrongFirsts() []plant {
	return []plant{
		{"nobody is first", "First/GoesToTheHead", asked(func(_ driver.State, c *driver.Claim, _ bool, _ *time.Time) { c.First = false })},
		{"a repeated request goes first again", "First/WaiterKeepsItsPosition", joinsAnew(func(s driver.State, c driver.Claim) bool { return !holds(s, c) })},
		{"a holder may be first too", "First/HolderIsNotJoinedAgain", joinsAnew(holds)},
		{"a first claim that does not fit goes last", "First/HeavyOneHoldsUpTheQueue", asked(func(s driver.State, c *driver.Claim, _ bool, _ *time.Time) {
			c.First = c.First && weight(s)+c.Weight <= s.Limit
		})},
		{"tries are never first", "First/TryThatFitsIsGranted", asked(func(_ driver.State, c *driver.Claim, wait bool, _ *time.Time) {
			c.First = c.First && wait
		})},
		{"a first claim ignores notAfter", "First/AfterNotAfterJoinsNothing", asked(func(_ driver.State, c *driver.Claim, _ bool, notAfter *time.Time) {
			if c.First {
				*notAfter = time.Now().Add(time.Hour)
			}
		})},
	}
}

// wrongYields are defects of claims that yield.
func wrongYields() []plant {
	nobodyYields := asked(func(_ driver.State, c *driver.Claim, _ bool, _ *time.Time) { c.Yield = false })
	everybodyYields := asked(func(_ driver.State, c *driver.Claim, _ bool, _ *time.Time) { c.Yield = true })
	return []plant{
		{"nobody yields", "Yield/IsShown", nobodyYields},
		{"everybody yields", "Yield/IsShown", everybodyYields},
		{"no holder is notified to yield", "Notice/YieldFromTheFirstWaiter", omitting(func(_ command, n driver.Notice) bool { return n.Type == driver.NoticeYield })},
		{"joining at the head makes nobody yield", "Notice/YieldFromTheFirstWaiter", omitting(func(by command, n driver.Notice) bool {
			return n.Type == driver.NoticeYield && by.claim.First
		})},
		{"every holder is notified to yield", "Notice/YieldToEveryHolderThatYields", everybodyYields},
		{"a waiter's own session is not notified to yield", "Notice/YieldToEveryHolderThatYields", omitting(func(by command, n driver.Notice) bool {
			return n.Type == driver.NoticeYield && n.Session == by.claim.Session
		})},
		{"a grant with Yield never says that others wait", "Notice/GrantSaysWhetherToYield", reading(func(n *driver.Notice) { n.Crowded = false })},
		{"a grant with Yield always says that others wait", "Notice/GrantSaysWhetherToYield", reading(func(n *driver.Notice) { n.Crowded = true })},
		{"there is no room for hand-offs", "Token/RoomBehindOneThatYields", nobodyYields},
		{"the reserved tokens count as used", "Token/RoomBehindOneThatYields", seen(func(s *driver.State) {
			if len(s.Holders) > 0 && s.Holders[0].Yield {
				s.Token += 1024
			}
		})},
		{"a part has the room of all", "Token/NoRoomBehindAPart", seen(func(s *driver.State) {
			if len(s.Holders) > 0 && s.Holders[0].Yield && s.Holders[0].Weight < s.Limit {
				s.Token = s.Holders[0].Token + 64512
			}
		})},
		{"holders without Yield have the room", "Token/NoRoomBehindAPart", everybodyYields},
		{"Sweep forgets the room", "Sweep/RoomStaysBehindOneThatYields", carelessSweep},
	}
}
