package dsynctest_test

import (
	"context"
	"time"

	"github.com/leasehold-go/leasehold/dsync"
	"github.com/leasehold-go/leasehold/dsync/dsynctest"
)

// An acquiring changes what an Acquire asks for, knowing the key's state before.
type acquiring func(s dsync.State, c *dsync.Claim, wait bool, notAfter *time.Time)

// asked lets Acquire do something else than it was asked for.
func asked(change acquiring) func(*dsynctest.Memory, *wrong) {
	return func(m *dsynctest.Memory, w *wrong) {
		w.acquire = func(ctx context.Context, c dsync.Claim, wait bool, dead []string, notAfter time.Time) (dsync.State, error) {
			s, _ := m.Load(ctx, c.Key)
			change(s, &c, wait, &notAfter)
			return m.Acquire(ctx, c, wait, dead, notAfter)
		}
	}
}

// joinsAnew lets a claim that is known join once more.
func joinsAnew(known func(s dsync.State, c dsync.Claim) bool) func(*dsynctest.Memory, *wrong) {
	return func(m *dsynctest.Memory, w *wrong) {
		w.acquire = func(ctx context.Context, c dsync.Claim, wait bool, dead []string, notAfter time.Time) (dsync.State, error) {
			if s, _ := m.Load(ctx, c.Key); c.First && known(s, c) {
				m.Release(ctx, c, dsync.Outcome{})
			}
			return m.Acquire(ctx, c, wait, dead, notAfter)
		}
	}
}

func weight(s dsync.State) (sum int64) {
	for _, h := range s.Holders {
		sum += h.Weight
	}
	return sum
}

// wrongFirsts are defects of claims that go to the head of the line.
func wrongFirsts() []plant {
	return []plant{
		{"nobody is first", "First/GoesToTheHead", asked(func(_ dsync.State, c *dsync.Claim, _ bool, _ *time.Time) { c.First = false })},
		{"first are second behind others that are", "First/GoesToTheHead", func(m *dsynctest.Memory, w *wrong) {
			first := make(map[string]bool)
			w.acquire = func(ctx context.Context, c dsync.Claim, wait bool, dead []string, notAfter time.Time) (dsync.State, error) {
				s, _ := m.Load(ctx, c.Key)
				c.First = c.First && (len(s.Ahead) == 0 || !first[s.Ahead[0].Claim])
				first[c.ID] = c.First
				return m.Acquire(ctx, c, wait, dead, notAfter)
			}
		}},
		{"who repeats is first again", "First/WhoIsInLineStaysWhere", joinsAnew(func(s dsync.State, c dsync.Claim) bool { return !holds(s, c) })},
		{"a holder may be first too", "First/HolderIsNotJoinedAgain", joinsAnew(holds)},
		{"who is first but does not fit is last", "First/HeavyOneHoldsUpTheLine", asked(func(s dsync.State, c *dsync.Claim, _ bool, _ *time.Time) {
			c.First = c.First && weight(s)+c.Weight <= s.Limit
		})},
		{"tries are never first", "First/TryThatFitsIsGranted", asked(func(_ dsync.State, c *dsync.Claim, wait bool, _ *time.Time) {
			c.First = c.First && wait
		})},
		{"first tries stay in line", "First/TryThatFitsIsGranted", func(m *dsynctest.Memory, w *wrong) {
			w.acquire = func(ctx context.Context, c dsync.Claim, wait bool, dead []string, notAfter time.Time) (dsync.State, error) {
				return m.Acquire(ctx, c, wait || c.First, dead, notAfter)
			}
		}},
		{"who is first is never late", "First/AfterNotAfterJoinsNothing", asked(func(_ dsync.State, c *dsync.Claim, _ bool, notAfter *time.Time) {
			if c.First {
				*notAfter = time.Now().Add(time.Hour)
			}
		})},
	}
}

// wrongYields are defects of claims that yield.
func wrongYields() []plant {
	nobodyYields := asked(func(_ dsync.State, c *dsync.Claim, _ bool, _ *time.Time) { c.Yield = false })
	everybodyYields := asked(func(_ dsync.State, c *dsync.Claim, _ bool, _ *time.Time) { c.Yield = true })
	return []plant{
		{"nobody yields", "Yield/IsShown", nobodyYields},
		{"everybody yields", "Yield/IsShown", everybodyYields},
		{"Watch tells nobody to yield", "Watch/YieldWhenTheFirstJoins", withoutEvents(dsync.EventYield)},
		{"Watch tells a claim to yield once", "Watch/YieldWhenTheFirstJoins", func(m *dsynctest.Memory, w *wrong) {
			told := make(map[string]bool)
			w.watch = func(ctx context.Context, id string, keys []string, f func(dsync.Event)) error {
				return m.Watch(ctx, id, keys, func(e dsync.Event) {
					if e.Type != dsync.EventYield || !told[e.Claim] {
						f(e)
					}
					told[e.Claim] = e.Type == dsync.EventYield
				})
			}
		}},
		{"first that join are not told of", "Watch/YieldWhenTheFirstJoins", func(m *dsynctest.Memory, w *wrong) {
			var deaf bool
			w.acquire = func(ctx context.Context, c dsync.Claim, wait bool, dead []string, notAfter time.Time) (dsync.State, error) {
				deaf = c.First
				return m.Acquire(ctx, c, wait, dead, notAfter)
			}
			w.watch = func(ctx context.Context, id string, keys []string, f func(dsync.Event)) error {
				return m.Watch(ctx, id, keys, func(e dsync.Event) {
					if e.Type != dsync.EventYield || !deaf {
						f(e)
					}
				})
			}
		}},
		{"Watch tells everybody to yield", "Watch/YieldOnlyToThoseThatDo", everybodyYields},
		{"Watch tells sessions to yield that hold nothing", "Watch/YieldOnlyToThoseThatDo", watchEverybody},
		{"Watch tells one of a session to yield", "Watch/YieldOnlyToThoseThatDo", func(m *dsynctest.Memory, w *wrong) {
			w.watch = func(ctx context.Context, id string, keys []string, f func(dsync.Event)) error {
				var last dsync.Event
				return m.Watch(ctx, id, keys, func(e dsync.Event) {
					if e.Type != dsync.EventYield || last.Type != dsync.EventYield {
						f(e)
					}
					last = e
				})
			}
		}},
		{"a grant hides the yield", "Watch/YieldWhenGrantedWhileOthersWait", func(m *dsynctest.Memory, w *wrong) {
			w.watch = func(ctx context.Context, id string, keys []string, f func(dsync.Event)) error {
				var last dsync.Event
				return m.Watch(ctx, id, keys, func(e dsync.Event) {
					if e.Type != dsync.EventYield || last.Type != dsync.EventGrant {
						f(e)
					}
					last = e
				})
			}
		}},
		{"every grant is to yield", "Watch/YieldWhenGrantedWhileOthersWait", func(m *dsynctest.Memory, w *wrong) {
			w.watch = func(ctx context.Context, id string, keys []string, f func(dsync.Event)) error {
				return m.Watch(ctx, id, keys, func(e dsync.Event) {
					f(e)
					if e.Type == dsync.EventGrant {
						f(dsync.Event{Type: dsync.EventYield, Key: e.Key, Claim: e.Claim})
					}
				})
			}
		}},
		{"there is no room for hand-overs", "Token/RoomBehindOneThatYields", nobodyYields},
		{"the room is told as used", "Token/RoomBehindOneThatYields", seen(func(s *dsync.State) {
			if len(s.Holders) > 0 && s.Holders[0].Yield {
				s.Token += 1024
			}
		})},
		{"a part has the room of all", "Token/NoRoomBehindAPart", seen(func(s *dsync.State) {
			if len(s.Holders) > 0 && s.Holders[0].Yield && s.Holders[0].Weight < s.Limit {
				s.Token = s.Holders[0].Token + 64512
			}
		})},
		{"who does not yield has the room", "Token/NoRoomBehindAPart", everybodyYields},
		{"Sweep forgets the room", "Sweep/RoomStaysBehindOneThatYields", carelessSweep},
	}
}
