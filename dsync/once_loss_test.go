package dsync_test

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/leasehold-go/leasehold/dsync"
	"github.com/leasehold-go/leasehold/dsync/dsynctest"
)

// If the process that runs a Once's function is cut off, another process begins the next run as soon as the lost
// session can be expired. In the same process, the next run waits until the function of the lost run has returned. The
// lost run does not count, even if it succeeds later.
func TestLostRunIsFollowed(t *testing.T) {
	for _, c := range []struct {
		name string
		same bool // the next run is in the same process as the lost run
	}{{"by another process", false}, {"by the same process", true}} {
		inBubble(t, c.name, func(t *testing.T) {
			memory := dsynctest.NewMemory()
			faulty := newFaulty(t, memory, nil)
			a, b := newSession(t, faulty, nil), newSession(t, memory, nil)
			if c.same {
				b = a
			}
			var (
				lost, next time.Time
				token      int64
				finish     = make(chan struct{})
				first      = make(chan error, 1)
			)
			go func() {
				value, err := a.Once("k").DoValue(background, func(ctx context.Context) ([]byte, error) {
					token = dsync.HoldFrom(ctx).Token()
					<-ctx.Done()
					lost = time.Now()
					if cause := context.Cause(ctx); !errors.Is(cause, dsync.ErrLost) || dsync.HoldFrom(ctx).Token() != 0 {
						t.Errorf("the run's context ended with %v and the token %d", cause, dsync.HoldFrom(ctx).Token())
					}
					<-finish
					return []byte("late"), nil
				})
				if value != nil {
					t.Errorf("the lost run returned %q", value)
				}
				first <- err
			}()
			synctest.Wait()
			faulty.Cut()
			second := make(chan error, 1)
			go func() {
				_, err := b.Once("k").DoValue(background, func(ctx context.Context) ([]byte, error) {
					next = time.Now()
					if tok := dsync.HoldFrom(ctx).Token(); tok <= token {
						t.Errorf("token %d after %d", tok, token)
					}
					return []byte("v"), nil
				})
				second <- err
			}()
			time.Sleep(2 * ttl)
			faulty.Heal()
			time.Sleep(ttl)
			synctest.Wait()
			if c.same != next.IsZero() {
				t.Errorf("the next run has begun: %t; want true, unless it must wait for the lost run of its own process to return", !next.IsZero())
			}
			close(finish)
			err := <-first
			wantErr(t, "the lost run", err, dsync.ErrLost)
			if err := <-second; err != nil {
				t.Errorf("the next: %v", err)
			}
			if d := next.Sub(lost); lost.IsZero() || d < grace {
				t.Errorf("the next run began %v after the lost one was notified, want at least the grace of %v", d, grace)
			}
			time.Sleep(ttl)
			wantDone(t, a.Once("k"), "v")
			wantDone(t, newSession(t, memory, nil).Once("k"), "v")
		})
	}
}

// A lost run does not count, even if its function returns before the next run begins. The error of Do also wraps the
// function's error.
func TestLostRunDoesNotCount(t *testing.T) {
	failed := errors.New("failed")
	for _, fail := range []error{nil, failed} {
		inBubble(t, fmt.Sprint(fail), func(t *testing.T) {
			memory := dsynctest.NewMemory()
			faulty := newFaulty(t, memory, nil)
			o := newSession(t, faulty, nil).Once("k")
			err := o.Do(background, func(ctx context.Context) error {
				faulty.Cut()
				<-ctx.Done()
				faulty.Heal()
				return fail
			})
			wantErr(t, "Do", err, dsync.ErrLost)
			if fail != nil {
				wantErr(t, "Do", err, fail)
			}
			if _, done, err := o.Value(background); done || err != nil {
				t.Errorf("Value: %t, %v", done, err)
			}
			sealed(t, o, "v")
		})
	}
}

// B09: whatever happens to the request that seals the key, or to its reply, the seal takes effect exactly once. After
// the seal, no request of the run takes effect.
func TestSealWhoseReplyIsLost(t *testing.T) {
	for _, fault := range []dsynctest.Fault{
		{LoseReply: true}, {LoseRequest: true}, {LoseReply: true, Again: ttl}, {Delay: ttl / 4}, {LoseRequest: true, Again: ttl / 3},
	} {
		inBubble(t, fmt.Sprintf("%+v", fault), func(t *testing.T) {
			memory := dsynctest.NewMemory()
			seals := 0
			faulty := newFaulty(t, memory, func(r dsynctest.Request) dsynctest.Fault {
				if r.Method == dsynctest.MethodRelease {
					if seals++; seals == 1 {
						return fault
					}
				}
				return dsynctest.Fault{}
			})
			s := newSession(t, faulty, nil)
			o := s.Once("k")
			sealed(t, o, "v")
			if seals < 2 {
				t.Fatalf("%d Releases were sent, want at least 2", seals)
			}
			wantFree(t, memory, "k")
			time.Sleep(2 * ttl)
			wantDone(t, s.Once("k"), "v")
			wantDone(t, newSession(t, memory, nil).Once("k"), "v")
		})
	}
}

// If ctx ends while the store is unreachable and can't confirm the seal, Do returns ctx's error, not success.
func TestSealNotConfirmed(t *testing.T) {
	bubble(t, func(t *testing.T) {
		memory := dsynctest.NewMemory()
		faulty := newFaulty(t, memory, nil)
		o := newSession(t, faulty, nil).Once("k")
		ctx, cancel := context.WithTimeout(background, time.Second)
		defer cancel()
		value, err := o.DoValue(ctx, func(context.Context) ([]byte, error) {
			faulty.Cut()
			return []byte("v"), nil
		})
		wantErr(t, "DoValue", err, context.DeadlineExceeded)
		if value != nil || errors.Is(err, dsync.ErrLost) {
			t.Errorf("DoValue: %q, %v; want no value, and an error without ErrLost", value, err)
		}
		if _, done, _ := newSession(t, memory, nil).Once("k").Value(background); done {
			t.Fatal("sealed by a request that was lost")
		}
		faulty.Heal()
		time.Sleep(ttl / 2) // the seal is retried in the background
		wantDone(t, o, "v")
	})
}

// If the session is lost before the store has confirmed the seal, the key may or may not be sealed. The error of Do
// says that the hold was lost; the next call shows whether the key is sealed.
func TestSealNotConfirmedBeforeTheLoss(t *testing.T) {
	for _, counts := range []bool{false, true} {
		inBubble(t, fmt.Sprint("counts ", counts), func(t *testing.T) {
			memory := dsynctest.NewMemory()
			var lossy atomic.Bool
			faulty := newFaulty(t, memory, func(dsynctest.Request) dsynctest.Fault {
				return dsynctest.Fault{LoseReply: lossy.Load() && counts, LoseRequest: lossy.Load() && !counts}
			})
			o := newSession(t, faulty, nil).Once("k")
			value, err := o.DoValue(background, func(context.Context) ([]byte, error) {
				lossy.Store(true)
				return []byte("v"), nil
			})
			wantErr(t, "DoValue", err, dsync.ErrLost)
			if value != nil {
				t.Errorf("DoValue returned the value %q, want none", value)
			}
			lossy.Store(false)
			if _, done, err := o.Value(background); done != counts || err != nil {
				t.Errorf("Value: %t, %v", done, err)
			}
			if !counts {
				sealed(t, o, "v")
			}
			wantDone(t, o, "v")
		})
	}
}

// When the caller's ctx ends, so does the run's context. If the function then returns an error, the run does not count.
func TestOnceCallersContextEnds(t *testing.T) {
	bubble(t, func(t *testing.T) {
		store := dsynctest.NewMemory()
		o := newSession(t, store, nil).Once("k")
		ctx, cancel := context.WithCancel(background)
		err := o.Do(ctx, func(c context.Context) error {
			cancel()
			<-c.Done()
			return c.Err()
		})
		wantErr(t, "Do", err, context.Canceled)
		if _, done, _ := o.Value(background); done || errors.Is(err, dsync.ErrLost) {
			t.Errorf("the key is sealed: %t; Do: %v; want it not sealed, and an error without ErrLost", done, err)
		}
		sealed(t, o, "v")
	})
}
