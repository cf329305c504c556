package dsynctest_test

import (
	"bytes"
	"context"
	"errors"
	"sync"
	"time"

	"github.com/leasehold-go/leasehold/dsync/driver"
	"github.com/leasehold-go/leasehold/dsync/dsynctest"
	"github.com/leasehold-go/leasehold/internal/storecmd"
)

// wrongPublishes are defects of Publish.
func wrongPublishes() []plant {
	return []plant{
		{"Publish stores nothing", "Publish/IsReadByAll", func(m *dsynctest.Memory, w *wrong) {
			w.publish = func(ctx context.Context, c driver.Claim, _ int64, _ []byte) ([]driver.Notice, error) { return nil, nil }
		}},
		{"an empty value is none", "Publish/IsReadByAll", seen(func(s *driver.State) {
			if len(s.Value) == 0 {
				s.Value = nil
			}
		})},
		{"no value is an empty one", "Publish/IsReadByAll", seen(func(s *driver.State) {
			if s.Value == nil {
				s.Value = []byte{}
			}
		})},
		{"values are texts", "Publish/IsReadByAll", seen(func(s *driver.State) { s.Value = bytes.ToValidUTF8(s.Value, []byte("?")) })},
		{"Publish prolongs a fixed lease", "Publish/IsReadByAll", func(m *dsynctest.Memory, w *wrong) {
			w.publish = func(ctx context.Context, c driver.Claim, seq int64, value []byte) ([]driver.Notice, error) {
				m.SetUntil(c, time.Now().Add(time.Hour))
				return storecmd.Publish(ctx, m, c, seq, value)
			}
		}},
		{"a value stays for the next holder", "Publish/GoesWithItsHolder", inherited(func(s driver.State) bool { return len(s.Holders) > 0 })},
		{"a value stays when nobody holds", "Publish/GoesWithItsHolder", inherited(func(s driver.State) bool { return len(s.Holders) == 0 })},
		{"anybody can publish for the holder", "Publish/GoesWithItsHolder", publishForHolder},
		{"a waiter may publish", "Publish/NotHeld", publishForHolder},
		{"Publish without a hold is no error", "Publish/NotHeld", func(m *dsynctest.Memory, w *wrong) {
			w.publish = func(ctx context.Context, c driver.Claim, seq int64, value []byte) ([]driver.Notice, error) {
				if n, err := storecmd.Publish(ctx, m, c, seq, value); !errors.Is(err, driver.ErrNotHeld) {
					return n, err
				}
				return nil, nil
			}
		}},
		{"values are cut", "Publish/MoreThan64KiBIsRefused", func(m *dsynctest.Memory, w *wrong) {
			w.publish = func(ctx context.Context, c driver.Claim, seq int64, value []byte) ([]driver.Notice, error) {
				return storecmd.Publish(ctx, m, c, seq, value[:min(len(value), 64<<10)])
			}
		}},
		{"the grant publishes nothing", "Publish/ByTheGrant", asked(func(_ driver.State, c *driver.Claim, _ bool, _ *time.Time) { c.Value = "" })},
		{"a claim's value is cut", "Publish/ClaimsOfMoreThan256BytesAreRefused", asked(func(_ driver.State, c *driver.Claim, _ bool, _ *time.Time) {
			c.Value = c.Value[:min(len(c.Value), driver.MaxClaimValue)]
		})},
		{"Publish is not atomic", "Race/PublishAndHandOff", func(m *dsynctest.Memory, w *wrong) {
			w.publish = func(ctx context.Context, c driver.Claim, seq int64, value []byte) ([]driver.Notice, error) {
				s, _ := m.Load(ctx, c.Key, 1000)
				time.Sleep(time.Millisecond)
				if !holds(s, c) {
					return nil, driver.ErrNotHeld
				}
				s, _ = m.Load(ctx, c.Key, 1000)
				c.ID = s.Holders[0].Claim
				return storecmd.Publish(ctx, m, c, seq, value)
			}
		}},
		{"a late Publish is the next holder's", "Late/EveryRequestTwiceAfterEveryLaterOne_B31", publishForHolder},
	}
}

// inherited makes Load put the last published value into each state for which the function where returns true.
func inherited(where func(driver.State) bool) func(*dsynctest.Memory, *wrong) {
	return func(m *dsynctest.Memory, w *wrong) {
		var mu sync.Mutex
		values := make(map[string][]byte)
		w.publish = func(ctx context.Context, c driver.Claim, seq int64, value []byte) ([]driver.Notice, error) {
			n, err := storecmd.Publish(ctx, m, c, seq, value)
			if err == nil {
				mu.Lock()
				defer mu.Unlock()
				values[c.Key] = value
			}
			return n, err
		}
		w.load = func(ctx context.Context, key string) (driver.State, error) {
			s, err := m.Load(ctx, key, 1000)
			mu.Lock()
			defer mu.Unlock()
			if where(s) {
				s.Value = values[key]
			}
			return s, err
		}
	}
}

func publishForHolder(m *dsynctest.Memory, w *wrong) {
	w.publish = func(ctx context.Context, c driver.Claim, seq int64, value []byte) ([]driver.Notice, error) {
		n, err := storecmd.Publish(ctx, m, c, seq, value)
		if s, _ := m.Load(ctx, c.Key, 1000); errors.Is(err, driver.ErrNotHeld) && len(s.Holders) > 0 {
			c.ID = s.Holders[0].Claim
			storecmd.Publish(ctx, m, c, seq, value)
		}
		return n, err
	}
}

// wrongSeals are defects of Release with Seal.
func wrongSeals() []plant {
	return []plant{
		{"an empty result is none", "Seal/ResultIsReadByAll", seen(func(s *driver.State) {
			if s.Sealed > 0 && len(s.Value) == 0 {
				s.Value = nil
			}
		})},
		{"sealing shares its caller's slice", "Seal/ResultIsReadByAll", resultIs(func(_ bool, _, sent []byte) []byte { return sent })},
		{"a sealed key has another token", "Seal/ResultIsReadByAll", seen(func(s *driver.State) {
			if s.Sealed > 0 {
				s.Token += 1024
			}
		})},
		{"Keys does not read the result", "Seal/ResultIsReadByAll", listed(func(s *driver.State) { s.Value = nil })},
		{"a waiter can seal", "Seal/NotHeld", sealForHolder(func(s driver.State, c driver.Claim) bool { return s.Waiting > 1 })},
		{"the last result counts", "Seal/RepeatedOrLateDoesNothing", resultIs(func(_ bool, _, sent []byte) []byte { return sent })},
		{"results are cut", "Seal/MoreThan64KiBIsRefused", func(m *dsynctest.Memory, w *wrong) {
			w.release = func(ctx context.Context, c driver.Claim, o driver.Release) (bool, []driver.Notice, error) {
				o.Result = o.Result[:min(len(o.Result), 64<<10)]
				return storecmd.Release(ctx, m, c, o)
			}
		}},
		{"Sweep deletes what is sealed", "Sweep/LeavesSealedKeys", carelessSweep},
		{"Acquire checks for the seal before it joins", "Race/SealAndAcquire", func(m *dsynctest.Memory, w *wrong) {
			w.release = func(ctx context.Context, c driver.Claim, o driver.Release) (bool, []driver.Notice, error) {
				time.Sleep(time.Millisecond)
				return storecmd.Release(ctx, m, c, o)
			}
			w.acquire = func(ctx context.Context, c driver.Claim, wait bool, expired []string, notAfter time.Time) (driver.State, []driver.Notice, error) {
				before, _ := m.Load(ctx, c.Key, 1000)
				time.Sleep(2 * time.Millisecond)
				if s, n, err := storecmd.Acquire(ctx, m, c, wait, expired, notAfter); before.Sealed == s.Sealed {
					return s, n, err
				}
				return before, nil, nil
			}
		}},
		{"a late Release seals for another", "Late/EveryRequestTwiceAfterEveryLaterOne_B31", sealForHolder(func(s driver.State, c driver.Claim) bool {
			return len(s.Holders) > 0 && s.Holders[0].Session != c.Session
		})},
	}
}

// resultIs changes the result that Load returns for a sealed key.
func resultIs(which func(found bool, was, sent []byte) []byte) func(*dsynctest.Memory, *wrong) {
	return func(m *dsynctest.Memory, w *wrong) {
		var mu sync.Mutex
		results := make(map[string][]byte)
		w.release = func(ctx context.Context, c driver.Claim, o driver.Release) (bool, []driver.Notice, error) {
			found, n, err := storecmd.Release(ctx, m, c, o)
			if o.Seal > 0 {
				mu.Lock()
				defer mu.Unlock()
				results[c.Key] = which(found, results[c.Key], o.Result)
			}
			return found, n, err
		}
		w.load = func(ctx context.Context, key string) (driver.State, error) {
			s, err := m.Load(ctx, key, 1000)
			mu.Lock()
			defer mu.Unlock()
			if s.Sealed > 0 {
				s.Value = results[key]
			}
			return s, err
		}
	}
}

// sealForHolder lets some claims seal a key that they do not hold. The function where selects these claims.
func sealForHolder(where func(driver.State, driver.Claim) bool) func(*dsynctest.Memory, *wrong) {
	return func(m *dsynctest.Memory, w *wrong) {
		w.release = func(ctx context.Context, c driver.Claim, o driver.Release) (bool, []driver.Notice, error) {
			if s, _ := m.Load(ctx, c.Key, 1000); o.Seal > 0 && !holds(s, c) && len(s.Holders) > 0 && where(s, c) {
				c.ID = s.Holders[0].Claim
			}
			return storecmd.Release(ctx, m, c, o)
		}
	}
}
