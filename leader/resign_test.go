package leader_test

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/leasehold-go/leasehold/dsync"
	"github.com/leasehold-go/leasehold/dsync/admin"
	"github.com/leasehold-go/leasehold/dsync/driver"
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
			inBubble(t, fmt.Sprint(name, " of ", map[bool]string{false: "Campaign", true: "Run"}[run]), func(t *testing.T) {
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
		}
	}
}

// Resign returns ctx's error if ctx ends before the release. The release continues.
func TestResignWithinItsContext(t *testing.T) {
	for _, run := range []bool{false, true} {
		for _, limit := range []time.Duration{grace / 4, 3 * grace / 4} { // within the grace, and during the release
			inBubble(t, fmt.Sprint("run ", run, " within ", limit), func(t *testing.T) {
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

// B39: Resign and Pause return nil only if the store has confirmed the release.
func TestResignOnASilentStore_B39(t *testing.T) {
	for name, resign := range map[string]func(*leader.Election, context.Context) error{
		"Resign": (*leader.Election).Resign, "Pause": (*leader.Election).Pause,
	} {
		for _, run := range []bool{false, true} {
			for what, tt := range map[string]struct {
				during func(s *dsync.Session)
				want   error
			}{
				"the session is lost":   {func(*dsync.Session) {}, leader.ErrLost},
				"the session is closed": {func(s *dsync.Session) { s.Close(background) }, dsync.ErrClosed},
			} {
				inBubble(t, fmt.Sprintf("%s, run %t, %s", name, run, what), func(t *testing.T) {
					memory := dsynctest.NewMemory()
					f := dsynctest.NewFaulty(memory, nil)
					s := newSession(t, f, nil)
					e := electionOf(t, s, nil)
					begin(t, e, run)
					f.Cut()
					said := make(chan error, 1)
					go func() { said <- resign(e, background) }()
					time.Sleep(grace / 4)
					tt.during(s)
					select {
					case err := <-said:
						wantErr(t, name, err, tt.want)
					case <-time.After(2 * ttl):
						t.Fatalf("%s has not returned", name)
					}
					if err := resign(e, background); err != nil {
						t.Errorf("called again, when there is no term: %v", err)
					}
					f.Heal()
				})
			}
		}
	}
}

// A refusing store refuses releases while refuse is set.
type refusing struct {
	*dsynctest.Memory
	refuse atomic.Bool
}

func (s *refusing) Edit(ctx context.Context, e driver.Edit) (driver.Edited, error) {
	if s.refuse.Load() && e.Release != nil {
		return driver.Edited{}, driver.ErrRefused
	}
	return s.Memory.Edit(ctx, e)
}

// If the store refuses the release, Resign returns an error.
func TestResignThatIsRefused(t *testing.T) {
	bubble(t, func(t *testing.T) {
		store := &refusing{Memory: dsynctest.NewMemory()}
		e := newElection(t, store, nil)
		campaign(t, e)
		store.refuse.Store(true)
		wantErr(t, "Resign", e.Resign(background), dsync.ErrRefused)
		store.refuse.Store(false)
	})
}

// ResignAfter works even if a signal has already ended the context of Run or Campaign. It may be called by Run's
// function, with the function's own context, or by other code while the work winds down.
func TestResignAfterTheContextHasEnded(t *testing.T) {
	const d = 3 * ttl
	for name, stop := range map[string]func(t *testing.T, e *leader.Election, ctx context.Context, signal func()){
		"the function of Run, last": func(t *testing.T, e *leader.Election, ctx context.Context, signal func()) {
			ran := make(chan error, 1)
			go func() {
				ran <- e.Run(ctx, func(ctx context.Context) error {
					<-ctx.Done()
					err := e.ResignAfter(ctx, d)
					if err != nil {
						t.Errorf("ResignAfter: %v", err)
					}
					return err
				})
			}()
			time.Sleep(time.Second)
			signal()
			wantErr(t, "Run", <-ran, context.Canceled)
		},
		"beside the function of Run": func(t *testing.T, e *leader.Election, ctx context.Context, signal func()) {
			go e.Run(ctx, func(ctx context.Context) error {
				<-ctx.Done()
				time.Sleep(grace / 2)
				return nil
			})
			time.Sleep(time.Second)
			signal()
			time.Sleep(grace / 4)
			if err := e.ResignAfter(background, d); err != nil {
				t.Errorf("ResignAfter: %v", err)
			}
		},
		"after Campaign": func(t *testing.T, e *leader.Election, ctx context.Context, signal func()) {
			if _, err := e.Campaign(ctx); err != nil {
				t.Fatal(err)
			}
			signal()
			time.Sleep(grace / 4)
			if err := e.ResignAfter(background, d); err != nil {
				t.Errorf("ResignAfter: %v", err)
			}
			wantErr(t, "ResignAfter again", e.ResignAfter(background, d), leader.ErrNotLeader)
		},
	} {
		inBubble(t, name, func(t *testing.T) {
			store := dsynctest.NewMemory()
			e := newElection(t, store, nil)
			ctx, cancel := context.WithCancel(background)
			defer cancel()
			var signalled time.Time
			stop(t, e, ctx, func() { signalled = time.Now(); cancel() })
			next := candidates(t, store, "b")["b"]
			<-next.elected
			if took := time.Since(signalled); took < d || took > d+grace+time.Second {
				t.Errorf("the next leader is elected %v after the signal, want %v", took, d)
			}
		})
	}
}

// ResignAfter returns ErrNotLeader if Resign, Break or Close has already ended the term.
func TestResignAfterTheEndIsRefused(t *testing.T) {
	for name, end := range map[string]func(e *leader.Election, s *dsync.Session){
		"resigned": func(e *leader.Election, _ *dsync.Session) { go e.Resign(background) },
		"revoked":  func(e *leader.Election, s *dsync.Session) { go admin.New(s).Break(background, "e") },
		"closed":   func(_ *leader.Election, s *dsync.Session) { go s.Close(background) },
	} {
		inBubble(t, name, func(t *testing.T) {
			s := newSession(t, dsynctest.NewMemory(), nil)
			e := electionOf(t, s, nil)
			begin(t, e, true) // the work takes half the grace to stop
			end(e, s)
			time.Sleep(grace / 4)
			wantErr(t, "ResignAfter", e.ResignAfter(background, time.Hour), leader.ErrNotLeader)
		})
	}
}

// After a signal and then a Break, ResignAfter no longer delays the next election.
func TestResignAfterARevocationOfAStoppedTerm(t *testing.T) {
	bubble(t, func(t *testing.T) {
		store := dsynctest.NewMemory()
		s := newSession(t, store, nil)
		e := electionOf(t, s, nil)
		ctx, cancel := context.WithCancel(background)
		if _, err := e.Campaign(ctx); err != nil {
			t.Fatal(err)
		}
		cancel()
		time.Sleep(grace / 4)
		broken := make(chan error, 1)
		go func() { broken <- admin.New(s).Break(background, "e") }()
		time.Sleep(grace / 4)
		if err := e.ResignAfter(background, time.Hour); err != nil && !errors.Is(err, leader.ErrNotLeader) {
			t.Errorf("ResignAfter: %v", err)
		}
		next := candidates(t, store, "b")["b"]
		began := time.Now()
		<-next.elected
		if took := time.Since(began); took > ttl {
			t.Errorf("the next leader is elected after %v, want at most %v", took, ttl)
		}
		if err := <-broken; err != nil {
			t.Errorf("Break: %v", err)
		}
	})
}
