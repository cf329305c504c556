package dsynctest_test

import (
	"context"
	"sync"
	"time"

	"github.com/leasehold-go/leasehold/dsync"
	"github.com/leasehold-go/leasehold/dsync/dsynctest"
)

// wrongSeals are defects of Release with Outcome.Seal, and of who is told to ask
// once more.
func wrongSeals() []plant {
	return []plant{
		{"an empty result is none", "Seal/ResultIsReadByAll", seen(func(s *dsync.State) {
			if s.Sealed && len(s.Value) == 0 {
				s.Value = nil
			}
		})},
		{"sealing shares its caller's slice", "Seal/ResultIsReadByAll", resultIs(func(_ bool, _, sent []byte) []byte { return sent })},
		{"a sealed key has another token", "Seal/ResultIsReadByAll", seen(func(s *dsync.State) {
			if s.Sealed {
				s.Token += 1024
			}
		})},
		{"what was published is the result", "Seal/ResultIsReadByAll", func(m *dsynctest.Memory, w *wrong) {
			w.release = func(ctx context.Context, c dsync.Claim, o dsync.Outcome) (bool, error) {
				if s, _ := m.Load(ctx, c.Key); o.Seal && s.Value != nil {
					o.Result = s.Value
				}
				return m.Release(ctx, c, o)
			}
		}},
		{"Acquire does not read the result", "Seal/ResultIsReadByAll", func(m *dsynctest.Memory, w *wrong) {
			w.acquire = func(ctx context.Context, c dsync.Claim, wait bool, dead []string, notAfter time.Time) (dsync.State, error) {
				s, err := m.Acquire(ctx, c, wait, dead, notAfter)
				if s.Sealed {
					s.Value = nil
				}
				return s, err
			}
		}},
		{"Keys does not read the result", "Seal/ResultIsReadByAll", listed(func(s *dsync.State) { s.Value = nil })},
		{"a sealed key is a free one", "Seal/NobodyJoinsAnyMore", func(m *dsynctest.Memory, w *wrong) {
			w.acquire = func(ctx context.Context, c dsync.Claim, wait bool, dead []string, notAfter time.Time) (dsync.State, error) {
				if s, _ := m.Load(ctx, c.Key); s.Sealed {
					m.Forget(true)
				}
				return m.Acquire(ctx, c, wait, dead, notAfter)
			}
		}},
		{"a sealed key is an error", "Seal/NobodyJoinsAnyMore", func(m *dsynctest.Memory, w *wrong) {
			w.acquire = func(ctx context.Context, c dsync.Claim, wait bool, dead []string, notAfter time.Time) (dsync.State, error) {
				s, err := m.Acquire(ctx, c, wait, dead, notAfter)
				if s.Sealed {
					err = dsync.ErrRefused
				}
				return s, err
			}
		}},
		{"who seals hands over", "Seal/DropsTheLine", func(m *dsynctest.Memory, w *wrong) {
			w.release = func(ctx context.Context, c dsync.Claim, o dsync.Outcome) (bool, error) {
				if s, _ := m.Load(ctx, c.Key); s.Waiting > 0 {
					o.Seal = false
				}
				return m.Release(ctx, c, o)
			}
		}},
		{"who waits can seal", "Seal/NotHeld", sealForHolder(func(s dsync.State, c dsync.Claim) bool { return s.Waiting > 1 })},
		{"whoever seals is found", "Seal/NotHeld", func(m *dsynctest.Memory, w *wrong) {
			w.release = func(ctx context.Context, c dsync.Claim, o dsync.Outcome) (bool, error) {
				found, err := m.Release(ctx, c, o)
				return found || o.Seal, err
			}
		}},
		{"sealing does not look at the clock", "Seal/NotAfterItsEnd", func(m *dsynctest.Memory, w *wrong) {
			w.release = func(ctx context.Context, c dsync.Claim, o dsync.Outcome) (bool, error) {
				if o.Seal {
					m.SetUntil(c, time.Now().Add(time.Minute))
				}
				return m.Release(ctx, c, o)
			}
		}},
		{"a sealed key has no kind", "Seal/OtherKindIsMismatch", asked(func(s dsync.State, c *dsync.Claim, _ bool, _ *time.Time) {
			if s.Sealed {
				c.Kind = s.Kind
			}
		})},
		{"the last result counts", "Seal/RepeatedOrLateDoesNothing", resultIs(func(_ bool, _, sent []byte) []byte { return sent })},
		{"the last holder's result counts", "Seal/OtherHoldersDoNotChangeTheResult", resultIs(func(found bool, was, sent []byte) []byte {
			if found {
				return sent
			}
			return was
		})},
		{"results are cut", "Seal/MoreThan64KiBIsRefused", func(m *dsynctest.Memory, w *wrong) {
			w.release = func(ctx context.Context, c dsync.Claim, o dsync.Outcome) (bool, error) {
				o.Result = o.Result[:min(len(o.Result), 64<<10)]
				return m.Release(ctx, c, o)
			}
		}},
		{"too long a result is a release without", "Seal/MoreThan64KiBIsRefused", func(m *dsynctest.Memory, w *wrong) {
			w.release = func(ctx context.Context, c dsync.Claim, o dsync.Outcome) (bool, error) {
				if len(o.Result) <= 64<<10 {
					return m.Release(ctx, c, o)
				}
				m.Release(ctx, c, dsync.Outcome{})
				return false, dsync.ErrRefused
			}
		}},
		{"Sweep deletes what is sealed", "Sweep/LeavesSealedKeys", carelessSweep},
		{"Acquire looks for the seal before it joins", "Race/SealAndAcquire", func(m *dsynctest.Memory, w *wrong) {
			w.release = func(ctx context.Context, c dsync.Claim, o dsync.Outcome) (bool, error) {
				time.Sleep(time.Millisecond)
				return m.Release(ctx, c, o)
			}
			w.acquire = func(ctx context.Context, c dsync.Claim, wait bool, dead []string, notAfter time.Time) (dsync.State, error) {
				before, _ := m.Load(ctx, c.Key)
				time.Sleep(2 * time.Millisecond)
				if s, err := m.Acquire(ctx, c, wait, dead, notAfter); before.Sealed == s.Sealed {
					return s, err
				}
				return before, nil
			}
		}},
		{"a late Release seals for another", "Late/EveryRequestTwiceAfterEveryLaterOne_B31", sealForHolder(func(s dsync.State, c dsync.Claim) bool {
			return len(s.Holders) > 0 && s.Holders[0].Session != c.Session
		})},
		{"Watch wakes nobody when a key is sealed", "Watch/SealWakesTheLine", withoutEvents(dsync.EventWake)},
		{"Watch wakes one of a session", "Watch/SealWakesTheLine", func(m *dsynctest.Memory, w *wrong) {
			w.watch = func(ctx context.Context, id string, keys []string, f func(dsync.Event)) error {
				woken := false
				return m.Watch(ctx, id, keys, func(e dsync.Event) {
					if e.Type != dsync.EventWake || !woken {
						f(e)
					}
					woken = woken || e.Type == dsync.EventWake
				})
			}
		}},
		{"Watch passes by a seal", "Watch/EveryChangeOfAKey", func(m *dsynctest.Memory, w *wrong) {
			skip := passBy(m, w)
			w.release = func(ctx context.Context, c dsync.Claim, o dsync.Outcome) (bool, error) {
				if o.Seal {
					skip.Add(1)
				}
				return m.Release(ctx, c, o)
			}
		}},
		{"Watch wakes nobody by Keep", "Watch/KeepWakesTheFirstInLine", withoutEvents(dsync.EventWake)},
		{"Watch wakes whoever watches", "Watch/KeepWakesTheFirstInLine", watchEverybody},
		{"Watch wakes others by Keep too", "Watch/KeepWakesTheFirstInLine", func(m *dsynctest.Memory, w *wrong) {
			w.watch = func(ctx context.Context, id string, keys []string, f func(dsync.Event)) error {
				return m.Watch(ctx, id, keys, func(e dsync.Event) {
					f(e)
					if s, _ := m.Load(ctx, e.Key); e.Type == dsync.EventWake && s.Waiting > 1 {
						f(dsync.Event{Type: e.Type, Key: e.Key, Claim: s.Ahead[1].Claim})
					}
				})
			}
		}},
	}
}

// resultIs lets a key have another result than that it was sealed with.
func resultIs(which func(found bool, was, sent []byte) []byte) func(*dsynctest.Memory, *wrong) {
	return func(m *dsynctest.Memory, w *wrong) {
		var mu sync.Mutex
		results := make(map[string][]byte)
		w.release = func(ctx context.Context, c dsync.Claim, o dsync.Outcome) (bool, error) {
			found, err := m.Release(ctx, c, o)
			if o.Seal {
				mu.Lock()
				defer mu.Unlock()
				results[c.Key] = which(found, results[c.Key], o.Result)
			}
			return found, err
		}
		w.load = func(ctx context.Context, key string) (dsync.State, error) {
			s, err := m.Load(ctx, key)
			mu.Lock()
			defer mu.Unlock()
			if s.Sealed {
				s.Value = results[key]
			}
			return s, err
		}
	}
}

// sealForHolder lets who does not hold seal for who does.
func sealForHolder(where func(dsync.State, dsync.Claim) bool) func(*dsynctest.Memory, *wrong) {
	return func(m *dsynctest.Memory, w *wrong) {
		w.release = func(ctx context.Context, c dsync.Claim, o dsync.Outcome) (bool, error) {
			if s, _ := m.Load(ctx, c.Key); o.Seal && !holds(s, c) && len(s.Holders) > 0 && where(s, c) {
				c.ID = s.Holders[0].Claim
			}
			return m.Release(ctx, c, o)
		}
	}
}
