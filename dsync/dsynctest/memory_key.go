package dsynctest

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/leasehold-go/leasehold/dsync"
)

// Acquire implements [dsync.Store].
func (m *Memory) Acquire(ctx context.Context, c dsync.Claim, wait bool, dead []string, notAfter time.Time) (dsync.State, error) {
	now, err := m.begin(ctx, MethodAcquire)
	if err != nil {
		return dsync.State{}, err
	}
	defer m.mu.Unlock()
	if c.Weight < 1 || c.Weight > c.Limit {
		// It could never be granted, and would block the line for ever.
		return dsync.State{}, fmt.Errorf("dsynctest: %w: claim %s has weight %d, it must be from 1 to its limit %d",
			dsync.ErrRefused, c.ID, c.Weight, c.Limit)
	}
	r := m.keys[c.Key]
	if r == nil {
		r = newRecord()
	}
	fx, err := r.acquire(c, wait, dead, notAfter, now)
	if err != nil {
		return dsync.State{}, err
	}
	if fx.changed {
		m.keys[c.Key] = r
		m.wrote(c.Key, fx)
	}
	return r.state(c.Key, c.ID, now, maxAhead), nil
}

// Release implements [dsync.Store].
func (m *Memory) Release(ctx context.Context, c dsync.Claim, o dsync.Outcome) (bool, error) {
	now, err := m.begin(ctx, MethodRelease)
	if err != nil {
		return false, err
	}
	defer m.mu.Unlock()
	if o.Seal && len(o.Result) > maxValue {
		return false, fmt.Errorf("dsynctest: %w: the result for key %q has %d bytes, it may have %d", dsync.ErrRefused, c.Key, len(o.Result), maxValue)
	}
	r := m.keys[c.Key]
	if r == nil {
		return false, nil
	}
	fx, found := r.release(c.ID, o, now)
	if fx.changed {
		m.wrote(c.Key, fx)
	}
	return found, nil
}

// Extend implements [dsync.Store].
func (m *Memory) Extend(ctx context.Context, c dsync.Claim) (dsync.Holder, error) {
	now, err := m.begin(ctx, MethodExtend)
	if err != nil {
		return dsync.Holder{}, err
	}
	defer m.mu.Unlock()
	if r := m.keys[c.Key]; r != nil && c.Lease > 0 {
		for i := range r.holders {
			h := &r.holders[i]
			if h.Claim != c.ID || h.Until.IsZero() || !now.Before(h.Until) {
				continue
			}
			if end := now.Add(ceilMilli(c.Lease)); end.After(h.Until) {
				h.Until, r.used = end, now
				m.wrote(c.Key, effect{})
			}
			return *h, nil
		}
	}
	return dsync.Holder{}, notHeldError(c)
}

// Publish implements [dsync.Store].
func (m *Memory) Publish(ctx context.Context, c dsync.Claim, seq int64, value []byte) error {
	now, err := m.begin(ctx, MethodPublish)
	if err != nil {
		return err
	}
	defer m.mu.Unlock()
	if len(value) > maxValue {
		return fmt.Errorf("dsynctest: %w: the value for key %q has %d bytes, it may have %d", dsync.ErrRefused, c.Key, len(value), maxValue)
	}
	r := m.keys[c.Key]
	if r == nil {
		return notHeldError(c)
	}
	held, changed := r.publish(c.ID, seq, value, now)
	if !held {
		return notHeldError(c)
	}
	if changed {
		m.wrote(c.Key, effect{})
	}
	return nil
}

// Resize implements [dsync.Store].
func (m *Memory) Resize(ctx context.Context, key string, kind dsync.Kind, from, limit int64) error {
	now, err := m.begin(ctx, MethodResize)
	if err != nil {
		return err
	}
	defer m.mu.Unlock()
	if limit < 1 {
		return fmt.Errorf("dsynctest: %w: limit %d for key %q, it must be at least 1", dsync.ErrRefused, limit, key)
	}
	r := m.keys[key]
	if r == nil {
		r = newRecord()
	}
	fx, err := r.resize(key, kind, from, limit, now)
	if err != nil {
		return err
	}
	if fx.changed {
		m.keys[key] = r
		m.wrote(key, fx)
	}
	return nil
}

// Load implements [dsync.Store].
func (m *Memory) Load(ctx context.Context, key string) (dsync.State, error) {
	now, err := m.begin(ctx, MethodLoad)
	if err != nil {
		return dsync.State{}, err
	}
	defer m.mu.Unlock()
	r := m.keys[key]
	if r == nil {
		return dsync.State{Key: key, Now: now}, nil
	}
	return r.state(key, "", now, maxShown), nil
}

// Line implements [dsync.Store].
func (m *Memory) Line(ctx context.Context, key string) ([]dsync.Waiter, error) {
	now, err := m.begin(ctx, MethodLine)
	if err != nil {
		return nil, err
	}
	defer m.mu.Unlock()
	r := m.keys[key]
	if r == nil {
		return nil, nil
	}
	return r.state(key, "", now, len(r.line)).Ahead, nil
}

// Keys implements [dsync.Store]. Keys that nobody holds or waits for are among
// them for as long as they have a record.
func (m *Memory) Keys(ctx context.Context, prefix, after string, n int) ([]dsync.State, error) {
	now, err := m.begin(ctx, MethodKeys)
	if err != nil {
		return nil, err
	}
	defer m.mu.Unlock()
	var keys []string
	for key := range m.keys {
		if key > after && strings.HasPrefix(key, prefix) {
			keys = append(keys, key)
		}
	}
	slices.Sort(keys)
	var states []dsync.State
	for _, key := range keys[:max(0, min(len(keys), n, maxShown))] {
		states = append(states, m.keys[key].state(key, "", now, maxAhead))
	}
	return states, nil
}
