package dsync

import (
	"context"
	"fmt"
	"sync/atomic"

	"github.com/leasehold-go/leasehold/dsync/driver"
	"github.com/leasehold-go/leasehold/internal/engine"
)

// A Once runs a function once among all processes: a migration, for example. It is made by
// [Session.Once]. The first run that succeeds seals the key, and the store keeps the seal and the result until
// somebody calls Inspector.Forget of package dsync/admin. For a function that runs again and again there is
// [Periodic].
//
// Only one run succeeds, but more than one may begin: if a run fails, or its process dies or loses its hold, the next
// caller runs its function. So a run must be able to continue where another broke off. Guard effects that must not
// happen twice with the run's fencing token; see [HoldFrom].
type Once struct {
	t     ticks
	known atomic.Pointer[engine.SealedError] // the run that succeeded; nil: not known to this Once
}

// String returns the kind and the key, such as `once "schema v7"`.
func (o *Once) String() string { return fmt.Sprintf("%s %q", driver.KindOnce, o.t.key) }

// Do calls f unless the key is sealed, and seals the key when f returns nil. While another run is in progress, here or
// elsewhere, Do waits for it. If that run succeeds, Do returns nil without calling f; if it fails, Do may run f next.
// ctx bounds the wait. f's context ends with ctx and with the hold.
//
// f runs on the calling goroutine. If it panics or calls runtime.Goexit, the run has failed. The error
// is f's, joined with [ErrLost] if the hold ended before f returned: then the run does not count. Other
// errors are those of [Mutex.LockContext].
//
// If ctx or the hold ends before the store has confirmed the seal, Do returns ctx's error or ErrLost.
// The next Do, or [Once.Value], shows whether the run counts.
func (o *Once) Do(ctx context.Context, f func(context.Context) error) error {
	_, err := o.DoValue(ctx, func(ctx context.Context) ([]byte, error) { return nil, f(ctx) })
	return err
}

// DoValue is Do for a function that returns a result of up to 64 KiB; a longer one fails the run. It returns the
// result of the run that succeeded: this one or an earlier one, in any process.
func (o *Once) DoValue(ctx context.Context, f func(context.Context) ([]byte, error)) (value []byte, err error) {
	t := o.ticks()
	done := o.known.Load()
	if done == nil {
		if done, _, err = t.do(ctx, engine.OnceTick, f); err != nil {
			return nil, err
		}
		o.known.Store(done)
	}
	return done.Result(), nil
}

// Value returns the result of the run that succeeded, and whether there is one. Errors are those of
// ctx, [ErrClosed] and those of the store.
func (o *Once) Value(ctx context.Context) (value []byte, ok bool, err error) {
	t := o.ticks()
	done := o.known.Load()
	if done == nil {
		if done, err = t.read(ctx); done == nil {
			return nil, false, err
		}
		o.known.Store(done)
	}
	return done.Result(), true, nil
}

func (o *Once) ticks() *ticks {
	if o.t.s == nil {
		panic("dsync: use of a zero Once; make one with Session.Once")
	}
	return &o.t
}
