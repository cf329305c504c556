package leader_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/leasehold-go/leasehold/dsync/dsynctest"
	"github.com/leasehold-go/leasehold/leader"
)

// slowRelease delays the arrival of a Release by a second.
func slowRelease(r dsynctest.Request) dsynctest.Fault {
	if r.Method == dsynctest.MethodRelease {
		return dsynctest.Fault{Delay: time.Second}
	}
	return dsynctest.Fault{}
}

// begin campaigns or, if run is true, calls Run with a function that takes half the grace to stop.
func begin(t *testing.T, e *leader.Election, run bool) {
	t.Helper()
	if !run {
		campaign(t, e)
		return
	}
	ctx, cancel := context.WithCancel(background)
	go e.Run(ctx, func(ctx context.Context) error {
		<-ctx.Done()
		cancel()
		time.Sleep(grace / 2)
		return nil
	})
	time.Sleep(time.Second)
}

// Resign and Pause return nil only when the store has released the leadership. This holds even if the release takes a
// second, and even if several goroutines call them.
func TestResignReturnsAfterTheRelease(t *testing.T) {
	for name, resign := range map[string]func(*leader.Election) error{
		"Resign": func(e *leader.Election) error { return e.Resign(background) },
		"Pause":  func(e *leader.Election) error { return e.Pause(background) },
	} {
		for _, run := range []bool{false, true} {
			t.Run(fmt.Sprint(name, " of ", map[bool]string{false: "Campaign", true: "Run"}[run]), func(t *testing.T) {
				bubble(t, func(t *testing.T) {
					store := dsynctest.NewMemory()
					e := newElection(t, newFaulty(t, store, slowRelease), nil)
					begin(t, e, run)
					done := make(chan error)
					for range 2 {
						go func() {
							err := resign(e)
							if st, lerr := store.Load(background, "e", 1000); lerr != nil || len(st.Holders) != 0 {
								t.Errorf("%s has returned %v, and the leadership is held by %+v (%v)", name, err, st.Holders, lerr)
							}
							done <- err
						}()
					}
					for range 2 {
						if err := <-done; err != nil {
							t.Errorf("%s: %v", name, err)
						}
					}
					start := time.Now()
					if err := resign(e); err != nil || time.Since(start) != 0 {
						t.Errorf("%s again: %v after %v", name, err, time.Since(start))
					}
				})
			})
		}
	}
}

// Resign returns ctx's error if ctx ends before the release. The release continues.
func TestResignWithinItsContext(t *testing.T) {
	for _, run := range []bool{false, true} {
		for _, limit := range []time.Duration{grace / 4, 3 * grace / 4} { // within the grace, and during the release
			t.Run(fmt.Sprint("run ", run, " within ", limit), func(t *testing.T) {
				bubble(t, func(t *testing.T) {
					store := dsynctest.NewMemory()
					e := newElection(t, newFaulty(t, store, slowRelease), nil)
					begin(t, e, run)
					ctx, cancel := context.WithTimeout(background, limit)
					defer cancel()
					start := time.Now()
					wantErr(t, "Resign", e.Resign(ctx), context.DeadlineExceeded)
					if d := time.Since(start); d != limit {
						t.Errorf("Resign returned after %v, want %v", d, limit)
					}
					time.Sleep(2 * time.Second)
					if st, err := store.Load(background, "e", 1000); err != nil || len(st.Holders) != 0 {
						t.Errorf("after the release the leadership is held by %+v (%v)", st.Holders, err)
					}
				})
			})
		}
	}
}

// Resign also waits for the release if Run's function returns late: its grace is over, and the release is under way.
func TestResignReturnsAfterTheReleaseOfALateFunction(t *testing.T) {
	bubble(t, func(t *testing.T) {
		store := dsynctest.NewMemory()
		e := newElection(t, newFaulty(t, store, slowRelease), nil)
		ctx, cancel := context.WithCancel(background)
		ran := make(chan error)
		go func() {
			ran <- e.Run(ctx, func(ctx context.Context) error {
				<-ctx.Done()
				cancel()
				time.Sleep(grace + grace/2)
				return nil
			})
		}()
		time.Sleep(time.Second)
		start := time.Now()
		if err := e.Resign(background); err != nil {
			t.Errorf("Resign: %v", err)
		}
		if d, want := time.Since(start), grace+time.Second; d != want {
			t.Errorf("Resign returned after %v, want %v", d, want)
		}
		if st, err := store.Load(background, "e", 1000); err != nil || len(st.Holders) != 0 {
			t.Errorf("Resign has returned, and the leadership is held by %+v (%v)", st.Holders, err)
		}
		wantErr(t, "Run", <-ran, context.Canceled)
	})
}
