package dsync_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/leasehold-go/leasehold/dsync"
	"github.com/leasehold-go/leasehold/dsync/dsynctest"
	"github.com/leasehold-go/leasehold/leader"
)

// If a call waits for the hold that its own context belongs to, it can't return before the context ends. The log and
// Hooks.Deadlock report such a wait once, after half a TTL. They do not report waits that somebody else can end.
func TestWaitForOneself(t *testing.T) {
	type nest func(ctx context.Context, s, other *dsync.Session) error
	rlock := func(ctx context.Context, s, other *dsync.Session, wait bool) error {
		return under(ctx, s.RWMutex("k").RHold, func(c context.Context) error {
			if wait {
				go other.RWMutex("k").LockContext(ctx)
				time.Sleep(ttl) // by then the writer is waiting, so the readers' hold can no longer be shared
			}
			return under(c, s.RWMutex("k").RHold, func(context.Context) error { return nil })
		})
	}
	for _, test := range []struct {
		name string
		told bool
		nest nest
	}{
		{"Mutex in Mutex", true, func(ctx context.Context, s, _ *dsync.Session) error {
			return s.Mutex("k").Do(ctx, func(c context.Context) error { return s.Mutex("k").LockContext(c) })
		}},
		{"and with another lock between them", true, func(ctx context.Context, s, _ *dsync.Session) error {
			return s.Mutex("k").Do(ctx, func(c context.Context) error {
				return s.Semaphore("s", 2).Do(c, 1, func(c context.Context) error { return s.Mutex("k").LockContext(c) })
			})
		}},
		{"Lock in RLock", true, func(ctx context.Context, s, _ *dsync.Session) error {
			return under(ctx, s.RWMutex("k").RHold, func(c context.Context) error { return s.RWMutex("k").LockContext(c) })
		}},
		{"RLock in Lock", true, func(ctx context.Context, s, _ *dsync.Session) error {
			return s.RWMutex("k").Do(ctx, func(c context.Context) error { return errOf(s.RWMutex("k").RHold(c)) })
		}},
		{"RLock in RLock while a writer waits", true, func(ctx context.Context, s, other *dsync.Session) error {
			return rlock(ctx, s, other, true)
		}},
		{"RLock in RLock", false, func(ctx context.Context, s, other *dsync.Session) error { return rlock(ctx, s, other, false) }},
		{"Mutex in LockAll", true, func(ctx context.Context, s, _ *dsync.Session) error {
			c, unlock, err := dsync.LockAll(ctx, s.Mutex("j"), s.Mutex("k"))
			if err != nil {
				return err
			}
			defer unlock()
			return s.Mutex("k").LockContext(c)
		}},
		{"Semaphore of 2: 2 in 1", true, func(ctx context.Context, s, _ *dsync.Session) error {
			return s.Semaphore("k", 2).Do(ctx, 1, func(c context.Context) error { return s.Semaphore("k", 2).Acquire(c, 2) })
		}},
		{"Semaphore of 3: 2 in 1, and another has 1 for a while", false, func(ctx context.Context, s, other *dsync.Session) error {
			theirs := other.Semaphore("k", 3)
			if err := theirs.Acquire(ctx, 1); err != nil {
				return err
			}
			time.AfterFunc(3*ttl, func() { theirs.Release(1) })
			m := s.Semaphore("k", 3)
			return m.Do(ctx, 1, func(c context.Context) error {
				c = dsync.HoldFrom(c).Context(c) // a second context of the same hold
				return s.Semaphore("k", 3).Do(c, 2, func(context.Context) error { return nil })
			})
		}},
		{"Once in itself", true, func(ctx context.Context, s, _ *dsync.Session) error {
			o := s.Once("k")
			return o.Do(ctx, func(c context.Context) error { return o.Do(c, func(context.Context) error { return nil }) })
		}},
		{"Campaign in Run", true, func(ctx context.Context, s, _ *dsync.Session) error {
			e, err := leader.New(s, "k", nil)
			if err != nil {
				return err
			}
			return e.Run(ctx, func(c context.Context) error { _, err := e.Campaign(c); return err })
		}},
		{"of another session", false, func(ctx context.Context, s, other *dsync.Session) error {
			theirs := other.Mutex("k")
			theirs.Lock()
			time.AfterFunc(3*ttl, theirs.Unlock)
			return s.Mutex("j").Do(ctx, func(c context.Context) error { return s.Mutex("k").Do(c, func(context.Context) error { return nil }) })
		}},
		{"with a context of its own", false, func(ctx context.Context, s, _ *dsync.Session) error {
			return s.Mutex("k").Do(ctx, func(context.Context) error { return s.Mutex("k").LockContext(ctx) })
		}},
	} {
		inBubble(t, test.name, func(t *testing.T) {
			store := dsynctest.NewMemory()
			var log bytes.Buffer
			var told []string
			s := newSession(t, store, &dsync.Options{
				Name: "pod-7", Host: "h", Logger: slog.New(slog.NewTextHandler(&log, nil)),
				Hooks: &dsync.Hooks{Deadlock: func(members, keys []string) { told = append(told, fmt.Sprint(members, keys)) }},
			})
			ctx, cancel := context.WithTimeout(background, time.Hour)
			defer cancel()
			err := test.nest(ctx, s, newSession(t, store, nil))
			synctest.Wait()
			if n := strings.Count(log.String(), "possible deadlock"); n != len(told) || test.told != (n == 1) {
				t.Errorf("the hook got %q; the log is %s", told, log.String())
			}
			if !test.told || len(told) != 1 {
				return
			}
			if !strings.HasPrefix(told[0], "[pod-7 (process ") || !strings.HasSuffix(told[0], "on h)] [k]") {
				t.Errorf("the hook got %q, want the process pod-7 on h and the key k", told)
			}
			if !errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("the call returned %v; want it to wait until its context ends", err)
			}
		})
	}
}

// under calls acquire, calls f with the context of the acquired hold, and then releases the hold.
func under(ctx context.Context, acquire func(context.Context) (*dsync.Hold, error), f func(context.Context) error) error {
	h, err := acquire(ctx)
	if err != nil {
		return err
	}
	defer h.Release(background)
	return f(h.Context(ctx))
}

// For the context of a reader or of LockAll, HoldFrom does not return the hold of an outer Mutex, because Progress
// would then limit that outer hold. It returns nil, or a hold whose Progress returns an error.
func TestProgressOfWhatHasNoLimit(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := newSession(t, dsynctest.NewMemory(), nil)
		for name, inner := range map[string]func(context.Context, func(context.Context) error) error{
			"LockAll": func(ctx context.Context, f func(context.Context) error) error {
				c, unlock, err := dsync.LockAll(ctx, s.Mutex("a"), s.Mutex("b"))
				if err != nil {
					return err
				}
				return errors.Join(f(c), unlock())
			},
			"readers": func(ctx context.Context, f func(context.Context) error) error {
				return under(ctx, s.RWMutex("rw").RHold, f)
			},
		} {
			outer := s.Mutex("outer")
			err := outer.Do(background, func(ctx context.Context) error {
				if err := dsync.HoldFrom(ctx).Progress(time.Hour); err != nil {
					t.Errorf("%s: Progress of the outer Mutex: %v", name, err)
				}
				return inner(ctx, func(ctx context.Context) error {
					if h := dsync.HoldFrom(ctx); h != nil && h.Progress(time.Second) == nil {
						t.Errorf("%s: Progress of %v returned no error", name, h)
					}
					time.Sleep(ttl)
					if outer.Token() == 0 {
						t.Errorf("%s: Progress has ended the hold of the outer Mutex", name)
					}
					return s.Mutex("inner").Do(ctx, func(ctx context.Context) error { return dsync.HoldFrom(ctx).Progress(time.Minute) })
				})
			})
			if err != nil {
				t.Errorf("%s: %v", name, err)
			}
		}
	})
}

// Like Options.Hooks, AddHooks accepts nil; it then registers nothing.
func TestAddHooksNil(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := newSession(t, dsynctest.NewMemory(), nil)
		stop := s.AddHooks(nil)
		turn(s.Mutex("k"))
		stop()
	})
}
