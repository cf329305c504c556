package dsync

import (
	"bytes"
	"context"
	"errors"
	"fmt"

	"github.com/leasehold-go/leasehold/dsync/driver"
	"github.com/leasehold-go/leasehold/internal/engine"
)

// ticks runs functions for a key's ticks. The store keeps only the greatest tick for which a run has succeeded.
// A [Periodic] has a tick for each scheduled run; a [Once] has a single tick.
type ticks struct {
	s    *engine.Session
	key  string
	kind driver.Kind
}

// Unless the tick is over, do calls f, and seals the key up to the tick if f returns nil. It returns the
// last tick for which a run has succeeded, with the run's result, and whether it called f.
func (t *ticks) do(ctx context.Context, tick int64, f func(context.Context) ([]byte, error)) (last *engine.SealedError, ran bool, err error) {
	w := engine.Whole(t.key, t.kind)
	w.Tick = tick
	h, err := t.s.Acquire(ctx, w)
	switch {
	case errors.As(err, &last):
		return last, false, nil
	case err != nil:
		return nil, false, fmt.Errorf("dsync: %s %q: %w", t.kind, t.key, err)
	}

	c, cancel := h.Context(ctx, nil)
	returned := false
	defer func() {
		cancel(context.Canceled)
		if !returned {
			h.Unlock(driver.Release{}).Finish()
		}
	}()
	value, err := f(c)
	if err == nil && len(value) > driver.MaxValue {
		err = fmt.Errorf("the result has %d bytes; it may have at most %d", len(value), driver.MaxValue)
	}
	returned = true
	if err != nil {
		return nil, true, errors.Join(fmt.Errorf("dsync: %s %q: %w", t.kind, t.key, err), t.release(h))
	}
	last = &engine.SealedError{Tick: tick, Value: bytes.Clone(value)} // f may reuse the slice
	if err := h.Unlock(driver.Release{Seal: tick, Result: last.Value}).Wait(ctx); err != nil {
		return nil, true, fmt.Errorf("dsync: %s %q: seal: %w", t.kind, t.key, err)
	}
	return last, true, nil
}

// release releases the hold after its run failed. It returns an error only if the hold was
// lost.
func (t *ticks) release(h *engine.Hold) error {
	ctx, cancel := context.WithTimeout(context.Background(), t.s.TTL()/3)
	defer cancel()
	if err := h.Unlock(driver.Release{}).Wait(ctx); errors.Is(err, ErrLost) {
		return err
	}
	return nil
}

// read returns the last tick for which a run has succeeded, or nil if the store has none.
func (t *ticks) read(ctx context.Context) (last *engine.SealedError, err error) {
	st, err := t.s.Load(ctx, t.key)
	switch {
	case err != nil:
		return nil, fmt.Errorf("dsync: %s %q: %w", t.kind, t.key, err)
	case st.Kind != t.kind || st.Sealed == 0:
		return nil, nil
	}
	return &engine.SealedError{Tick: st.Sealed, Value: st.Value}, nil
}
