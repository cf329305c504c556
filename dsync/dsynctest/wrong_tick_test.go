package dsynctest_test

import (
	"context"
	"slices"
	"time"

	"github.com/leasehold-go/leasehold/dsync/driver"
	"github.com/leasehold-go/leasehold/dsync/dsynctest"
	"github.com/leasehold-go/leasehold/internal/storecmd"
)

// wrongTicks are defects of claims with a Tick.
func wrongTicks() []plant {
	// joins changes the claim of each Acquire.
	joins := func(with func(s driver.State, c *driver.Claim)) func(*dsynctest.Memory, *wrong) {
		return asked(func(s driver.State, c *driver.Claim, _ bool, _ *time.Time) { with(s, c) })
	}
	// seals changes the Releases that seal a tick.
	seals := func(with func(s driver.State, l *driver.Release)) func(*dsynctest.Memory, *wrong) {
		return func(m *dsynctest.Memory, w *wrong) {
			w.release = func(ctx context.Context, c driver.Claim, l driver.Release) (bool, []driver.Notice, error) {
				if s, _ := m.Load(ctx, c.Key, 1000); l.Seal > 0 {
					with(s, &l)
				}
				return storecmd.Release(ctx, m, c, l)
			}
		}
	}
	return []plant{
		{"no tick is later", "Tick/LaterOnesAreGranted", joins(func(s driver.State, c *driver.Claim) { c.Tick = 1 })},
		{"the tick is 32 bits", "Tick/LaterOnesAreGranted", seals(func(_ driver.State, l *driver.Release) { l.Seal = int64(int32(l.Seal)) })},
		{"candidates are not ranked", "Tick/RanksCandidates", joins(func(_ driver.State, c *driver.Claim) {
			if c.Kind == driver.KindElection {
				c.Tick = 0
			}
		})},
		{"the last of equal candidates is the first", "Tick/RanksCandidates", joins(func(s driver.State, c *driver.Claim) {
			if c.Kind == driver.KindElection && slices.ContainsFunc(s.WaitersAhead, func(o driver.Waiter) bool { return o.Tick == c.Tick }) {
				c.Tick--
			}
		})},
		{"a seal empties the queue", "Tick/SealDropsThoseThatAreOver", joins(func(_ driver.State, c *driver.Claim) { c.Tick = min(c.Tick, 5) })},
		{"the last seal counts", "Tick/AnEarlierSealChangesNothing", seals(func(s driver.State, l *driver.Release) { l.Seal = max(l.Seal, s.Sealed+1) })},
		{"a seal is for all ticks", "Tick/AnEarlierSealChangesNothing", seals(func(_ driver.State, l *driver.Release) { l.Seal = 1 << 62 })},
		{"negative ticks are 0", "Tick/NegativeIsRefused", joins(func(_ driver.State, c *driver.Claim) { c.Tick = max(c.Tick, 0) })},
		{"a seal up to a negative tick is a release", "Tick/NegativeIsRefused", func(m *dsynctest.Memory, w *wrong) {
			w.release = func(ctx context.Context, c driver.Claim, l driver.Release) (bool, []driver.Notice, error) {
				l.Seal = max(l.Seal, 0)
				return storecmd.Release(ctx, m, c, l)
			}
		}},
	}
}
