package dsync

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/leasehold-go/leasehold/dsync/driver"
	"github.com/leasehold-go/leasehold/internal/engine"
)

// A Once runs a function once among all processes: a migration, for example. The first run that
// succeeds seals the key, and the store keeps the seal and the result until [Session.Forget].
//
// Make a Once with [Session.Once]; using a zero Once panics. It must not be copied. All methods
// may be called concurrently.
//
// Exactly one run succeeds, but more than one may begin: if a run fails, or its process dies or
// loses its hold, the next caller runs its function. So a run must be able to continue where
// another broke off. Guard effects that must not happen twice with the run's fencing token; see
// [TokenFrom].
type Once struct {
	s   *engine.Session
	key string

	mu   sync.Mutex
	done *engine.SealedError // nil until the result is known here
}

// Key returns the key.
func (o *Once) Key() string { return o.key }

// String returns the kind and the key, such as `once "schema v7"`.
func (o *Once) String() string { return fmt.Sprintf("%s %q", driver.KindOnce, o.key) }

// Do calls f unless the key is sealed, and seals the key when f returns nil. While another run
// is in progress, here or elsewhere, Do waits for it: if that run succeeds, Do returns nil
// without calling f; if it fails, Do may run f next. ctx bounds the wait. The context passed to
// f ends with ctx and with the hold.
//
// f runs on the calling goroutine. If it panics or calls runtime.Goexit, the run has failed.
// The error is f's, joined with [ErrLost] if the hold ended before f returned: then the run
// does not count, even if f returned nil. Other errors are those of [Mutex.LockContext].
//
// If ctx ends before the store has confirmed the seal, Do returns ctx's error and the sealing
// goes on in the background. If the hold is lost before the store has confirmed the seal, Do
// returns ErrLost; the next Do, or [Once.Value], shows whether the run counts.
func (o *Once) Do(ctx context.Context, f func(context.Context) error) error {
	_, err := o.DoValue(ctx, func(ctx context.Context) ([]byte, error) { return nil, f(ctx) })
	return err
}

// DoValue is Do for a function that returns a result of up to 64 KiB. DoValue returns the
// result of the run that succeeded, whether that is this run or an earlier one, in this process
// or another.
func (o *Once) DoValue(ctx context.Context, f func(context.Context) ([]byte, error)) (value []byte, err error) {
	s := o.session()
	if done := o.known(); done != nil {
		return done.Result(), nil
	}
	h, err := s.Acquire(ctx, engine.Whole(o.key, driver.KindOnce))
	var done *engine.SealedError
	switch {
	case errors.As(err, &done):
		o.learn(done)
		return done.Result(), nil
	case err != nil:
		return nil, fmt.Errorf("dsync: once %q: %w", o.key, err)
	}

	c, cancel := h.Context(context.WithValue(ctx, onceToken{}, h))
	returned := false
	defer func() {
		cancel(context.Canceled)
		if !returned {
			h.Unlock(driver.Leave{}).Finish(s, o.key)
		}
	}()
	value, err = f(c)
	if err == nil && len(value) > driver.MaxValue {
		err = fmt.Errorf("the result has %d bytes; it may have at most %d", len(value), driver.MaxValue)
	}
	returned = true
	if err != nil {
		return nil, errors.Join(fmt.Errorf("dsync: once %q: %w", o.key, err), o.release(h))
	}
	done = &engine.SealedError{Value: bytes.Clone(value)} // f may keep the slice
	if err := h.Unlock(driver.Leave{Seal: true, Result: done.Value}).Wait(ctx); err != nil {
		return nil, fmt.Errorf("dsync: once %q: seal: %w", o.key, err)
	}
	o.learn(done)
	return done.Result(), nil
}

// release releases the hold of a run that failed. It returns an error only if the hold was
// lost.
func (o *Once) release(h *engine.Hold) error {
	ctx, cancel := context.WithTimeout(context.Background(), o.s.TTL()/3)
	defer cancel()
	if err := h.Unlock(driver.Leave{}).Wait(ctx); errors.Is(err, ErrLost) {
		return err
	}
	return nil
}

// Value returns the result of the run that succeeded, and whether there is one. Errors are
// those of ctx, [ErrClosed] and those of the store.
func (o *Once) Value(ctx context.Context) (value []byte, done bool, err error) {
	s := o.session()
	if done := o.known(); done != nil {
		return done.Result(), true, nil
	}
	st, err := s.Load(ctx, o.key)
	switch {
	case err != nil:
		return nil, false, fmt.Errorf("dsync: once %q: %w", o.key, err)
	case st.Kind != driver.KindOnce || !st.Sealed:
		return nil, false, nil
	}
	o.learn(&engine.SealedError{Value: st.Value})
	return o.known().Result(), true, nil
}

func (o *Once) session() *engine.Session {
	if o.s == nil {
		panic("dsync: use of a zero Once; make one with Session.Once")
	}
	return o.s
}

func (o *Once) known() *engine.SealedError {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.done
}

func (o *Once) learn(done *engine.SealedError) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.done = done
}

type onceToken struct{}

// TokenFrom returns the fencing token of the run whose context is ctx, or is a parent of ctx.
// It returns 0 if the run's hold is over, or if there is no run: see [Once.Do].
func TokenFrom(ctx context.Context) int64 {
	if h, ok := ctx.Value(onceToken{}).(*engine.Hold); ok {
		return h.Token()
	}
	return 0
}
