package dsync

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"sync"
)

// maxResult is how many bytes the result of a Once may have.
const maxResult = 64 << 10

// A Once has a function run once among all processes, and for ever: a migration,
// say. Its key is sealed by the first run that succeeds; the store keeps that, and
// the result, without end.
//
// Make one with [Session.Once]; a zero Once panics when it is used. It must not be
// copied. All methods may be called concurrently.
//
// Exactly one run succeeds, but more than one may begin: when one fails, or its
// process dies or loses its hold, the next that asked runs its function. So a run
// must be able to go on where another broke off; what it must not do twice it
// guards by its token ([OnceToken]).
type Once struct {
	s   *Session
	key string

	mu   sync.Mutex
	done *sealedError // what is known of the result
}

// Key returns the key.
func (o *Once) Key() string { return o.key }

// Do calls f unless the key is sealed, and seals it when f returns nil. While
// another run is under way, here or elsewhere, it waits for it: for its success,
// and then returns nil without calling f, or for its end, and is next. ctx bounds
// the wait, and f's context ends with it and with the hold.
//
// f runs on the calling goroutine; if it panics or calls runtime.Goexit the run has
// failed. The error is f's, joined with [ErrLost] if the hold ended before f
// returned: then the run did not count, even if f returned nil. Other errors are
// those of [Mutex.LockContext]. If the seal is not confirmed when ctx ends, with
// whose error Do then returns, it goes on in the background; if it is not when the
// hold is lost, the error is ErrLost as well, and whether the run counts is for the
// next Do, or [Once.Value], to find out.
func (o *Once) Do(ctx context.Context, f func(context.Context) error) error {
	_, err := o.DoValue(ctx, func(ctx context.Context) ([]byte, error) { return nil, f(ctx) })
	return err
}

// DoValue is Do for a function with a result of up to 64 KiB, which it returns: its
// own, or that of the run that succeeded, when and wherever that was.
func (o *Once) DoValue(ctx context.Context, f func(context.Context) ([]byte, error)) (value []byte, err error) {
	s := o.session()
	if done := o.known(); done != nil {
		return done.result(), nil
	}
	h, err := s.acquire(ctx, all(o.key, KindOnce))
	var done *sealedError
	switch {
	case errors.As(err, &done):
		o.learn(done)
		return done.result(), nil
	case err != nil:
		return nil, fmt.Errorf("dsync: once %q: %w", o.key, err)
	}

	c, cancel := h.context(context.WithValue(ctx, onceToken{}, h))
	returned := false
	defer func() {
		cancel(context.Canceled)
		if !returned {
			h.unlock(Outcome{}).finish(s, o.key)
		}
	}()
	value, err = f(c)
	if err == nil && len(value) > maxResult {
		err = fmt.Errorf("the result has %d bytes; it may have %d", len(value), maxResult)
	}
	returned = true
	if err != nil {
		return nil, errors.Join(fmt.Errorf("dsync: once %q: %w", o.key, err), o.release(h))
	}
	done = &sealedError{value: bytes.Clone(value)} // f may keep the slice
	if err := h.unlock(Outcome{Seal: true, Result: done.value}).wait(ctx); err != nil {
		return nil, fmt.Errorf("dsync: once %q: seal: %w", o.key, err)
	}
	o.learn(done)
	return done.result(), nil
}

// release releases the hold of a run that failed, and returns an error if it was
// lost.
func (o *Once) release(h *hold) error {
	ctx, cancel := context.WithTimeout(context.Background(), o.s.opt.TTL/3)
	defer cancel()
	if err := h.unlock(Outcome{}).wait(ctx); errors.Is(err, ErrLost) {
		return err
	}
	return nil
}

// Value returns the result of the run that succeeded, and whether there is one. The
// error is that of [Session.Load].
func (o *Once) Value(ctx context.Context) (value []byte, done bool, err error) {
	s := o.session()
	if done := o.known(); done != nil {
		return done.result(), true, nil
	}
	st, err := s.Load(ctx, o.key)
	switch {
	case err != nil:
		return nil, false, fmt.Errorf("dsync: once %q: %w", o.key, err)
	case st.Kind != KindOnce || !st.Sealed:
		return nil, false, nil
	}
	o.learn(&sealedError{value: st.Value})
	return o.known().result(), true, nil
}

func (o *Once) session() *Session {
	if o.s == nil {
		panic("dsync: use of a zero Once; make one with Session.Once")
	}
	return o.s
}

func (o *Once) known() *sealedError {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.done
}

func (o *Once) learn(done *sealedError) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.done = done
}

type onceToken struct{}

// OnceToken returns the fencing token of the run that ctx was made for by [Once.Do],
// or 0 if its hold is over or ctx is of no run.
func OnceToken(ctx context.Context) int64 {
	if h, ok := ctx.Value(onceToken{}).(*hold); ok {
		return h.fencing()
	}
	return 0
}

// A sealedError is what a request on a sealed key is answered with.
type sealedError struct{ value []byte }

func (e *sealedError) Error() string { return "dsync: the key is sealed" }

// result returns a copy, not nil.
func (e *sealedError) result() []byte { return append([]byte{}, e.value...) }
