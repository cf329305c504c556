package dsynctest_test

import (
	"context"
	"errors"
	"time"

	"github.com/leasehold-go/leasehold/dsync"
	"github.com/leasehold-go/leasehold/dsync/dsynctest"
)

type resizing func(ctx context.Context, key string, kind dsync.Kind, from, limit int64) error

// wrongResizes are defects of Resize.
func wrongResizes() []plant {
	return []plant{
		{"Resize grants nothing", "Resize/GrowsAndGrants", func(m *dsynctest.Memory, w *wrong) {
			grow := make(map[string]func())
			w.resize = func(ctx context.Context, key string, kind dsync.Kind, from, limit int64) error {
				grow[key] = func() { m.Resize(ctx, key, kind, from, limit) }
				return nil
			}
			w.acquire = func(ctx context.Context, c dsync.Claim, wait bool, dead []string, notAfter time.Time) (dsync.State, error) {
				if f := grow[c.Key]; f != nil {
					f()
				}
				return m.Acquire(ctx, c, wait, dead, notAfter)
			}
		}},
		{"Resize can't shrink", "Resize/ShrinksAndBlocksUntilTheyFit", resized(func(m *dsynctest.Memory) resizing {
			return func(ctx context.Context, key string, kind dsync.Kind, from, limit int64) error {
				if s, _ := m.Load(ctx, key); weight(s) > limit {
					return dsync.ErrRefused
				}
				return m.Resize(ctx, key, kind, from, limit)
			}
		})},
		{"Resize drops who does not fit", "Resize/ShrinksAndBlocksUntilTheyFit", resized(func(m *dsynctest.Memory) resizing {
			return func(ctx context.Context, key string, kind dsync.Kind, from, limit int64) error {
				s, _ := m.Load(ctx, key)
				for sum := weight(s); sum > limit; s.Holders = s.Holders[1:] {
					sum -= s.Holders[0].Weight
					m.Release(ctx, dsync.Claim{Key: key, ID: s.Holders[0].Claim}, dsync.Outcome{})
				}
				return m.Resize(ctx, key, kind, from, limit)
			}
		})},
		{"holders count as one in a smaller key", "Resize/ShrinksAndBlocksUntilTheyFit", func(m *dsynctest.Memory, w *wrong) {
			w.release = func(ctx context.Context, c dsync.Claim, o dsync.Outcome) (bool, error) {
				found, err := m.Release(ctx, c, o)
				if s, _ := m.Load(ctx, c.Key); int64(len(s.Holders)) <= s.Limit && s.Waiting > 0 {
					m.Resize(ctx, c.Key, s.Kind, 0, 9)
					m.Resize(ctx, c.Key, s.Kind, 0, s.Limit)
				}
				return found, err
			}
		}},
		{"holders above the limit can't repeat", "Resize/HolderMayRepeat", refusing(func(s dsync.State, c dsync.Claim) bool { return c.Weight > s.Limit })},
		{"Resize drops the heavy from the line", "Resize/WaitingWeightTooGreatIsRefused", resized(func(m *dsynctest.Memory) resizing {
			return func(ctx context.Context, key string, kind dsync.Kind, from, limit int64) error {
				s, _ := m.Load(ctx, key)
				for _, w := range s.Ahead {
					if w.Weight > limit {
						m.Release(ctx, dsync.Claim{Key: key, ID: w.Claim}, dsync.Outcome{})
					}
				}
				return m.Resize(ctx, key, kind, from, limit)
			}
		})},
		{"Resize refuses silently", "Resize/WaitingWeightTooGreatIsRefused", resized(func(m *dsynctest.Memory) resizing {
			return func(ctx context.Context, key string, kind dsync.Kind, from, limit int64) error {
				if err := m.Resize(ctx, key, kind, from, limit); !errors.Is(err, dsync.ErrRefused) {
					return err
				}
				return nil
			}
		})},
		{"Resize does not look at the kind", "Resize/OtherKindIsMismatch", resized(func(m *dsynctest.Memory) resizing {
			return func(ctx context.Context, key string, kind dsync.Kind, from, limit int64) error {
				if s, _ := m.Load(ctx, key); s.Kind != "" {
					kind = s.Kind
				}
				return m.Resize(ctx, key, kind, from, limit)
			}
		})},
		{"Resize of a free key keeps its kind", "Resize/OtherKindIsMismatch", resized(func(m *dsynctest.Memory) resizing {
			return func(ctx context.Context, key string, kind dsync.Kind, from, limit int64) error {
				if s, _ := m.Load(ctx, key); s.Kind != "" && s.Kind != kind {
					return &dsync.MismatchError{Key: key, Kind: s.Kind, WantKind: kind, Limit: s.Limit, WantLimit: limit}
				}
				return m.Resize(ctx, key, kind, from, limit)
			}
		})},
		{"Resize repeated drops the line", "Resize/RepeatedChangesNothing", resized(func(m *dsynctest.Memory) resizing {
			return func(ctx context.Context, key string, kind dsync.Kind, from, limit int64) error {
				if s, _ := m.Load(ctx, key); s.Limit == limit {
					for _, w := range s.Ahead {
						m.Release(ctx, dsync.Claim{Key: key, ID: w.Claim}, dsync.Outcome{})
					}
				}
				return m.Resize(ctx, key, kind, from, limit)
			}
		})},
		{"Resize adds", "Late/EveryRequestTwiceAfterEveryLaterOne_B31", resized(func(m *dsynctest.Memory) resizing {
			return func(ctx context.Context, key string, kind dsync.Kind, from, limit int64) error {
				s, _ := m.Load(ctx, key)
				return m.Resize(ctx, key, kind, from, max(s.Limit, from)+limit-from)
			}
		})},
		{"Watch passes by a Resize", "Watch/ResizeGrantsAndYields", func(m *dsynctest.Memory, w *wrong) {
			skip := passBy(m, w)
			w.resize = func(ctx context.Context, key string, kind dsync.Kind, from, limit int64) error {
				skip.Add(1)
				return m.Resize(ctx, key, kind, from, limit)
			}
		}},
		{"Watch passes by who is let in by a Resize", "Watch/ResizeGrantsAndYields", withoutEvents(dsync.EventGrant)},
		{"limits that change are at times unknown", "Race/ResizeAndAcquire", func(m *dsynctest.Memory, w *wrong) {
			w.acquire = func(ctx context.Context, c dsync.Claim, wait bool, dead []string, notAfter time.Time) (dsync.State, error) {
				before, _ := m.Load(ctx, c.Key)
				time.Sleep(time.Millisecond)
				if now, _ := m.Load(ctx, c.Key); now.Limit != before.Limit {
					return dsync.State{}, dsync.ErrMismatch
				}
				return m.Acquire(ctx, c, wait, dead, notAfter)
			}
		}},
	}
}

// wrongLimits are defects of the limits that a key had.
func wrongLimits() []plant {
	return []plant{
		{"former limits count no more", "Resize/FormerLimitCountsAsThePresent", refusing(func(s dsync.State, c dsync.Claim) bool { return c.Limit != s.Limit })},
		{"a free key takes former limits over", "Resize/FormerLimitCountsOnAFreeKey", func(m *dsynctest.Memory, w *wrong) {
			w.acquire = func(ctx context.Context, c dsync.Claim, wait bool, dead []string, notAfter time.Time) (dsync.State, error) {
				if s, _ := m.Load(ctx, c.Key); len(s.Holders) == 0 && s.Limit != c.Limit {
					m.Resize(ctx, c.Key, c.Kind, 0, c.Limit)
				}
				return m.Acquire(ctx, c, wait, dead, notAfter)
			}
		}},
		{"Resize does not look at from", "Resize/FromCountsToo", resized(func(m *dsynctest.Memory) resizing {
			return func(ctx context.Context, key string, kind dsync.Kind, _, limit int64) error {
				return m.Resize(ctx, key, kind, 0, limit)
			}
		})},
		{"a Resize that is there already does not look at from", "Resize/FromCountsToo", resized(func(m *dsynctest.Memory) resizing {
			return func(ctx context.Context, key string, kind dsync.Kind, from, limit int64) error {
				if s, _ := m.Load(ctx, key); s.Limit == limit {
					return nil
				}
				return m.Resize(ctx, key, kind, from, limit)
			}
		})},
		{"every limit counts as the present", "Resize/UnknownLimitIsMismatch", anyKind},
		{"a key keeps its limit for ever", "Resize/UnknownLimitTakesAFreeKeyOver", asked(func(s dsync.State, c *dsync.Claim, _ bool, _ *time.Time) {
			if s.Limit > 0 && len(s.Holders) == 0 {
				c.Limit = s.Limit
			}
		})},
		{"who takes over keeps former limits", "Resize/UnknownLimitTakesAFreeKeyOver", func(m *dsynctest.Memory, w *wrong) {
			w.acquire = func(ctx context.Context, c dsync.Claim, wait bool, dead []string, notAfter time.Time) (dsync.State, error) {
				if s, _ := m.Load(ctx, c.Key); s.Limit > 0 && len(s.Holders) == 0 {
					m.Resize(ctx, c.Key, c.Kind, 0, c.Limit)
				}
				return m.Acquire(ctx, c, wait, dead, notAfter)
			}
		}},
		{"another kind has the same limit", "Resize/OtherKindHadNoFormerLimits", asked(func(s dsync.State, c *dsync.Claim, _ bool, _ *time.Time) {
			if s.Kind != "" && s.Kind != c.Kind {
				c.Limit = s.Limit
			}
		})},
		{"another kind keeps former limits", "Resize/OtherKindHadNoFormerLimits", func(m *dsynctest.Memory, w *wrong) {
			w.acquire = func(ctx context.Context, c dsync.Claim, wait bool, dead []string, notAfter time.Time) (dsync.State, error) {
				before, _ := m.Load(ctx, c.Key)
				s, err := m.Acquire(ctx, c, wait, dead, notAfter)
				if err == nil && before.Kind != s.Kind && before.Limit > 0 {
					m.Resize(ctx, c.Key, c.Kind, before.Limit, s.Limit)
				}
				return s, err
			}
		}},
		{"weights are cut to the limit", "Resize/WeightAboveThePresentLimitIsMismatch", asked(func(s dsync.State, c *dsync.Claim, _ bool, _ *time.Time) {
			if s.Limit > 0 {
				c.Weight = min(c.Weight, s.Limit)
			}
		})},
		{"a mismatch names the present limit alone", "Resize/WeightAboveThePresentLimitIsMismatch", func(m *dsynctest.Memory, w *wrong) {
			w.acquire = func(ctx context.Context, c dsync.Claim, wait bool, dead []string, notAfter time.Time) (dsync.State, error) {
				s, err := m.Acquire(ctx, c, wait, dead, notAfter)
				if mismatch := new(dsync.MismatchError); errors.As(err, &mismatch) {
					mismatch.WantLimit = mismatch.Limit
				}
				return s, err
			}
		}},
		{"who resizes back forgets", "Resize/AndBack", refusing(func(s dsync.State, c dsync.Claim) bool { return c.Limit > s.Limit })},
		{"four former limits are known", "Resize/EightFormerLimitsAreKnown", refusing(func(s dsync.State, c dsync.Claim) bool { return c.Limit < s.Limit-4 })},
	}
}

func resized(f func(*dsynctest.Memory) resizing) func(*dsynctest.Memory, *wrong) {
	return func(m *dsynctest.Memory, w *wrong) { w.resize = f(m) }
}

// refusing lets Acquire say that there is a mismatch.
func refusing(where func(dsync.State, dsync.Claim) bool) func(*dsynctest.Memory, *wrong) {
	return func(m *dsynctest.Memory, w *wrong) {
		w.acquire = func(ctx context.Context, c dsync.Claim, wait bool, dead []string, notAfter time.Time) (dsync.State, error) {
			if s, _ := m.Load(ctx, c.Key); len(s.Holders) > 0 && where(s, c) {
				return dsync.State{}, &dsync.MismatchError{Key: c.Key, Kind: s.Kind, WantKind: c.Kind, Limit: s.Limit, WantLimit: c.Limit}
			}
			return m.Acquire(ctx, c, wait, dead, notAfter)
		}
	}
}
