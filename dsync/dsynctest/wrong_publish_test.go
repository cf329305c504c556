package dsynctest_test

import (
	"bytes"
	"context"
	"errors"
	"sync"
	"time"

	"github.com/leasehold-go/leasehold/dsync"
	"github.com/leasehold-go/leasehold/dsync/dsynctest"
)

// wrongPublishes are defects of Publish.
func wrongPublishes() []plant {
	return []plant{
		{"Publish stores nothing", "Publish/IsReadByAll", func(m *dsynctest.Memory, w *wrong) {
			w.publish = func(ctx context.Context, c dsync.Claim, _ int64, _ []byte) error { return nil }
		}},
		{"the first value stays", "Publish/IsReadByAll", func(m *dsynctest.Memory, w *wrong) {
			w.publish = func(ctx context.Context, c dsync.Claim, seq int64, value []byte) error {
				if s, _ := m.Load(ctx, c.Key); s.Value != nil {
					return nil
				}
				return m.Publish(ctx, c, seq, value)
			}
		}},
		{"Publish shares its caller's slice", "Publish/IsReadByAll", func(m *dsynctest.Memory, w *wrong) {
			values := make(map[string][]byte)
			w.publish = func(ctx context.Context, c dsync.Claim, seq int64, value []byte) error {
				values[c.Key] = value
				return m.Publish(ctx, c, seq, value)
			}
			w.load = func(ctx context.Context, key string) (dsync.State, error) {
				s, err := m.Load(ctx, key)
				if s.Value != nil {
					s.Value = values[key]
				}
				return s, err
			}
		}},
		{"an empty value is none", "Publish/IsReadByAll", seen(func(s *dsync.State) {
			if len(s.Value) == 0 {
				s.Value = nil
			}
		})},
		{"no value is an empty one", "Publish/IsReadByAll", seen(func(s *dsync.State) {
			if s.Value == nil {
				s.Value = []byte{}
			}
		})},
		{"values are texts", "Publish/IsReadByAll", seen(func(s *dsync.State) { s.Value = bytes.ToValidUTF8(s.Value, []byte("?")) })},
		{"Acquire does not read the value", "Publish/IsReadByAll", func(m *dsynctest.Memory, w *wrong) {
			w.acquire = func(ctx context.Context, c dsync.Claim, wait bool, dead []string, notAfter time.Time) (dsync.State, error) {
				s, err := m.Acquire(ctx, c, wait, dead, notAfter)
				s.Value = nil
				return s, err
			}
		}},
		{"Publish prolongs a fixed lease", "Publish/IsReadByAll", func(m *dsynctest.Memory, w *wrong) {
			w.publish = func(ctx context.Context, c dsync.Claim, seq int64, value []byte) error {
				m.SetUntil(c, time.Now().Add(time.Hour))
				return m.Publish(ctx, c, seq, value)
			}
		}},
		{"who joins takes the value away", "Publish/StaysWhileItsHolderHolds", seen(func(s *dsync.State) {
			if s.Waiting > 0 {
				s.Value = nil
			}
		})},
		{"Extend takes the value away", "Publish/StaysWhileItsHolderHolds", func(m *dsynctest.Memory, w *wrong) {
			w.extend = func(ctx context.Context, c dsync.Claim) (dsync.Holder, error) {
				m.Publish(ctx, c, 1<<40, nil)
				return m.Extend(ctx, c)
			}
		}},
		{"Keep takes the value away", "Publish/StaysWhileItsHolderHolds", func(m *dsynctest.Memory, w *wrong) {
			w.release = func(ctx context.Context, c dsync.Claim, o dsync.Outcome) (bool, error) {
				if o.Keep > 0 {
					m.Publish(ctx, c, 1<<40, nil)
				}
				return m.Release(ctx, c, o)
			}
		}},
		{"a value stays for the next holder", "Publish/GoesWithItsHolder", inherited(func(s dsync.State) bool { return len(s.Holders) > 0 })},
		{"a value stays when nobody holds", "Publish/GoesWithItsHolder", inherited(func(s dsync.State) bool { return len(s.Holders) == 0 })},
		{"whoever publishes does so for the holder", "Publish/GoesWithItsHolder", publishForHolder},
		{"a waiter may publish", "Publish/NotHeld", publishForHolder},
		{"Publish of what is not held is nothing to speak of", "Publish/NotHeld", func(m *dsynctest.Memory, w *wrong) {
			w.publish = func(ctx context.Context, c dsync.Claim, seq int64, value []byte) error {
				if err := m.Publish(ctx, c, seq, value); !errors.Is(err, dsync.ErrNotHeld) {
					return err
				}
				return nil
			}
		}},
		{"Publish does not look at the clock", "Publish/NotAfterItsEnd", func(m *dsynctest.Memory, w *wrong) {
			w.publish = func(ctx context.Context, c dsync.Claim, seq int64, value []byte) error {
				m.SetUntil(c, time.Now().Add(time.Minute))
				return m.Publish(ctx, c, seq, value)
			}
		}},
		{"the last to arrive counts", "Publish/LateOlderOneChangesNothing", func(m *dsynctest.Memory, w *wrong) {
			arrived := int64(0)
			w.publish = func(ctx context.Context, c dsync.Claim, _ int64, value []byte) error {
				arrived++
				return m.Publish(ctx, c, arrived, value)
			}
		}},
		{"an older value is an error", "Publish/LateOlderOneChangesNothing", func(m *dsynctest.Memory, w *wrong) {
			var last int64
			w.publish = func(ctx context.Context, c dsync.Claim, seq int64, value []byte) error {
				if seq < last {
					return dsync.ErrNotHeld
				}
				last = seq
				return m.Publish(ctx, c, seq, value)
			}
		}},
		{"the key counts what is published", "Publish/EveryClaimCountsFromOne", func(m *dsynctest.Memory, w *wrong) {
			last := make(map[string]int64)
			w.publish = func(ctx context.Context, c dsync.Claim, seq int64, value []byte) error {
				if seq < last[c.Key] {
					return nil
				}
				last[c.Key] = seq
				return m.Publish(ctx, c, seq, value)
			}
		}},
		{"values are cut", "Publish/MoreThan64KiBIsRefused", func(m *dsynctest.Memory, w *wrong) {
			w.publish = func(ctx context.Context, c dsync.Claim, seq int64, value []byte) error {
				return m.Publish(ctx, c, seq, value[:min(len(value), 64<<10)])
			}
		}},
		{"too long a value may be repeated", "Publish/MoreThan64KiBIsRefused", func(m *dsynctest.Memory, w *wrong) {
			w.publish = func(ctx context.Context, c dsync.Claim, seq int64, value []byte) error {
				if len(value) > 64<<10 {
					return errors.New("message too long")
				}
				return m.Publish(ctx, c, seq, value)
			}
		}},
		{"Publish is not atomic", "Race/PublishAndHandOver", func(m *dsynctest.Memory, w *wrong) {
			w.publish = func(ctx context.Context, c dsync.Claim, seq int64, value []byte) error {
				s, _ := m.Load(ctx, c.Key)
				time.Sleep(time.Millisecond)
				if !holds(s, c) {
					return dsync.ErrNotHeld
				}
				s, _ = m.Load(ctx, c.Key)
				c.ID = s.Holders[0].Claim
				return m.Publish(ctx, c, seq, value)
			}
		}},
		{"a late Publish is the next holder's", "Late/EveryRequestTwiceAfterEveryLaterOne_B31", publishForHolder},
	}
}

// inherited lets a key keep what was published last, where that is so.
func inherited(where func(dsync.State) bool) func(*dsynctest.Memory, *wrong) {
	return func(m *dsynctest.Memory, w *wrong) {
		var mu sync.Mutex
		values := make(map[string][]byte)
		w.publish = func(ctx context.Context, c dsync.Claim, seq int64, value []byte) error {
			err := m.Publish(ctx, c, seq, value)
			if err == nil {
				mu.Lock()
				defer mu.Unlock()
				values[c.Key] = value
			}
			return err
		}
		w.load = func(ctx context.Context, key string) (dsync.State, error) {
			s, err := m.Load(ctx, key)
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
	w.publish = func(ctx context.Context, c dsync.Claim, seq int64, value []byte) error {
		err := m.Publish(ctx, c, seq, value)
		if s, _ := m.Load(ctx, c.Key); errors.Is(err, dsync.ErrNotHeld) && len(s.Holders) > 0 {
			c.ID = s.Holders[0].Claim
			m.Publish(ctx, c, seq, value)
		}
		return err
	}
}
