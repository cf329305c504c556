package docs_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/leasehold-go/leasehold/dsync"
	"github.com/leasehold-go/leasehold/dsync/dsynctest"
	"github.com/leasehold-go/leasehold/internal/testkit"
)

// This is the code in coming-from.md for users of ShedLock.

// scheduled runs a task that is due, unless another process holds its lock.
func scheduled(ctx context.Context, locks *dsync.Session, task func(context.Context) error) (err error) {
	hold, err := locks.Mutex("report").TryHold(ctx)
	if errors.Is(err, dsync.ErrHeld) {
		return nil // another process runs it, or ran it within the last 5 minutes
	} else if err != nil {
		return err
	}
	atLeast := time.Now().Add(5 * time.Minute) // lockAtLeastFor
	defer func() {
		left := max(time.Until(atLeast), time.Millisecond) // ReleaseAfter needs a millisecond
		err = errors.Join(err, hold.ReleaseAfter(context.WithoutCancel(ctx), left))
	}()
	return task(hold.Context(ctx)) // ends if the lock is lost
}

// scheduledAtMost runs a task that is due, unless another process holds the task's lease. A lease ends after 14 minutes
// at most.
func scheduledAtMost(ctx context.Context, locks *dsync.Session, task func(context.Context) error) (err error) {
	lease, err := locks.Mutex("report").TryLease(ctx, 14*time.Minute) // lockAtMostFor
	if errors.Is(err, dsync.ErrHeld) {
		return nil // another process runs it, or died at it
	} else if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, lease.Release(context.WithoutCancel(ctx))) }()
	return task(lease.Context(ctx)) // ends shortly before the 14 minutes are over
}

// While a process runs the task, and until 5 minutes after the task began, no other process runs
// it. The task may run for more than 5 minutes.
func TestShedLockAtLeastFor(t *testing.T) {
	for _, takes := range []time.Duration{time.Second, 30 * time.Minute} {
		testkit.InBubble(t, takes.String(), func(t *testing.T) {
			ctx := t.Context()
			store := dsynctest.NewMemory()
			a, b := process(store, "a"), process(store, "b")
			defer a.Close(ctx)
			defer b.Close(ctx)
			began := time.Now()
			done := make(chan error)
			go func() {
				done <- scheduled(ctx, a, func(ctx context.Context) error {
					time.Sleep(takes)
					return ctx.Err()
				})
			}()
			synctest.Wait()
			var again time.Time
			for again.IsZero() {
				testkit.NoErr(t, scheduled(ctx, b, func(context.Context) error { again = time.Now(); return nil }))
				time.Sleep(time.Second)
				select {
				case err := <-done:
					if err != nil {
						t.Error(err)
					}
					done = nil
				default:
				}
			}
			least := max(takes, 5*time.Minute)
			if after := again.Sub(began); after < least || after > least+2*time.Second {
				t.Errorf("the task ran again after %v, want %v to 2 s more", after, least)
			}
		})
	}
}

// If the task fails, its error is returned, and the lock is kept for a while, as after a success.
func TestShedLockTaskFails(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx := t.Context()
		locks := process(dsynctest.NewMemory(), "a")
		defer locks.Close(ctx)
		broken := errors.New("broken")
		fails := func(context.Context) error { return broken }
		if err := scheduled(ctx, locks, fails); !errors.Is(err, broken) {
			t.Errorf("the error is %v, want the task's error", err)
		}
		if err := scheduled(ctx, locks, fails); err != nil {
			t.Errorf("the second run returned %v, want nil, because the lock is still held", err)
		}
	})
}

// If a task runs too long, its context ends before its lock does. If the process crashes, the lock
// is still held until the end of its lease (lockAtMostFor, 14 minutes).
func TestShedLockAtMostFor(t *testing.T) {
	for name, dies := range map[string]bool{"too long": false, "dies": true} {
		testkit.InBubble(t, name, func(t *testing.T) {
			ctx := t.Context()
			store := dsynctest.NewMemory()
			link := dsynctest.NewFaulty(store, nil)
			defer link.Close()
			a, err := dsync.New(link, nil)
			testkit.NoErr(t, err)
			defer a.Close(ctx)
			b := process(store, "b")
			defer b.Close(ctx)
			began := time.Now()
			var ended time.Time
			done := make(chan error)
			go func() {
				done <- scheduledAtMost(ctx, a, func(ctx context.Context) error {
					select {
					case <-ctx.Done():
					case <-time.After(time.Hour):
					}
					ended = time.Now()
					return nil
				})
			}()
			synctest.Wait()
			if dies {
				link.Cut()
			}
			var again time.Time
			for again.IsZero() {
				testkit.NoErr(t, scheduledAtMost(ctx, b, func(context.Context) error { again = time.Now(); return nil }))
				time.Sleep(time.Second)
			}
			if dies {
				link.Heal()
			}
			if err := <-done; !errors.Is(err, dsync.ErrLost) {
				t.Errorf("the error is %v, want ErrLost", err)
			}
			if !ended.Before(again) {
				t.Errorf("the task ended at %v, and began again at %v", ended, again)
			}
			if after := again.Sub(began); !dies && after > 14*time.Minute+2*time.Second || dies && (after < 14*time.Minute || after > 14*time.Minute+2*time.Second) {
				t.Errorf("the task ran again after %v, want 14 minutes if its process died, and no more otherwise", after)
			}
		})
	}
}

func Example_scheduled() {
	ctx := context.Background()
	store := dsynctest.NewMemory()
	locks, others := process(store, "api-1"), process(store, "api-2")
	defer locks.Close(ctx)
	defer others.Close(ctx)
	report := func(context.Context) error {
		fmt.Println("the report is written")
		return nil
	}
	fmt.Println(scheduled(ctx, locks, report), scheduled(ctx, others, report))
	// Output:
	// the report is written
	// <nil> <nil>
}
