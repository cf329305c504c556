package dsync_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"runtime"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/leasehold-go/leasehold/dsync"
	"github.com/leasehold-go/leasehold/dsync/dsynctest"
	"github.com/leasehold-go/leasehold/internal/testkit"
)

// sealed seals o with a run that returns value.
func sealed(t testing.TB, o *dsync.Once, value string) {
	t.Helper()
	got, err := o.DoValue(background, func(context.Context) ([]byte, error) { return []byte(value), nil })
	if err != nil || string(got) != value {
		t.Fatalf("DoValue: %.20q, %v; want %.20q", got, err, value)
	}
}

// unwanted returns a function that must not be called.
func unwanted(t testing.TB) func(context.Context) error {
	return func(context.Context) error {
		t.Error("a function ran that must not be called")
		return nil
	}
}

// wantDone checks that o is done, with value.
func wantDone(t testing.TB, o *dsync.Once, value string) {
	t.Helper()
	got, err := o.DoValue(background, func(context.Context) ([]byte, error) {
		t.Error("a second run began")
		return nil, nil
	})
	if err != nil || got == nil || string(got) != value {
		t.Errorf("DoValue: %.20q, %v; want %.20q", got, err, value)
	}
	got, done, err := o.Value(background)
	if err != nil || !done || got == nil || string(got) != value {
		t.Errorf("Value: %.20q, %t, %v; want %.20q", got, done, err, value)
	}
}

// If many goroutines in many processes call DoValue, only one of them runs its function. All the other goroutines
// wait for this run and get its result.
func TestOnceRunsOnce(t *testing.T) {
	for name, polling := range deliveries {
		inBubble(t, name, func(t *testing.T) {
			store := dsynctest.NewMemory()
			store.Polling = polling
			const processes, goroutines = 20, 5
			var (
				mu   sync.Mutex
				runs int
				done bool
				wg   sync.WaitGroup
			)
			for range processes {
				s := newSession(t, store, nil)
				shared := s.Once("k")
				for g := range goroutines {
					o := shared
					if g%2 == 0 {
						o = s.Once("k")
					}
					wg.Go(func() {
						value, err := o.DoValue(background, func(ctx context.Context) ([]byte, error) {
							mu.Lock()
							runs++
							mu.Unlock()
							time.Sleep(3 * ttl)
							mu.Lock()
							done = true
							mu.Unlock()
							return []byte("v"), ctx.Err()
						})
						mu.Lock()
						defer mu.Unlock()
						if err != nil || string(value) != "v" || !done {
							t.Errorf("DoValue: %q, %v, with the run done: %t", value, err, done)
						}
					})
				}
			}
			wg.Wait()
			if runs != 1 {
				t.Errorf("%d runs, want 1", runs)
			}
			wantFree(t, store, "k")
		})
	}
}

// Promise 5: waiters return when the Once is done, without delay if the store can notify. In each process only one
// waiter sends requests.
func TestOnceWakesWaiters(t *testing.T) {
	for name, polling := range deliveries {
		inBubble(t, name, func(t *testing.T) {
			store := dsynctest.NewMemory()
			store.Polling = polling
			runner := newSession(t, store, nil)
			run, sealedAt := make(chan struct{}), time.Time{}
			go runner.Once("k").Do(background, func(context.Context) error {
				<-run
				sealedAt = time.Now()
				return nil
			})
			synctest.Wait()
			const processes, goroutines = 10, 100
			var wg sync.WaitGroup
			for i := range processes + 1 {
				s := runner
				if i > 0 {
					s = newSession(t, store, nil)
				}
				for range goroutines {
					wg.Go(func() {
						if err := s.Once("k").Do(background, unwanted(t)); err != nil {
							t.Errorf("Do: %v", err)
						}
						if d := time.Since(sealedAt); !polling && d > 0 || d > 1500*time.Millisecond {
							t.Errorf("a waiter returned %v after the Once was done", d)
						}
					})
				}
			}
			synctest.Wait()
			before := store.Counts()
			close(run)
			wg.Wait()
			d := store.Counts().Since(before)
			if n := d.Commands[dsynctest.MethodAcquire]; !polling && n > processes+1 || n > 5*(processes+1) {
				t.Errorf("%d processes, each with %d waiters, sent %d requests", processes+1, goroutines, n)
			}
			if n := d.Commands[dsynctest.MethodRelease]; n != 1 {
				t.Errorf("%d releases, want 1", n)
			}
		})
	}
}

// Promise 7: if a Once is already done, the first call of Do costs one command, and later calls cost none.
func TestDoneOnceCost(t *testing.T) {
	bubble(t, func(t *testing.T) {
		store := dsynctest.NewMemory()
		sealed(t, newSession(t, store, nil).Once("k"), "v")
		s := newSession(t, store, nil)
		lock(t, s.Mutex("warm"))
		o := s.Once("k")
		for want := 1; want >= 0; want-- {
			before := store.Counts()
			wantDone(t, o, "v")
			if d := store.Counts().Since(before); d.Total() != want || d.Writes != 0 {
				t.Errorf("Do of a Once that is done: %v and %d writes, want %d commands", d.Commands, d.Writes, want)
			}
		}
		viaValue := s.Once("k")
		before := store.Counts()
		if _, done, err := viaValue.Value(background); !done || err != nil {
			t.Errorf("Value: %t, %v; want true and no error", done, err)
		}
		wantDone(t, viaValue, "v")
		if d := store.Counts().Since(before); d.Total() != 1 {
			t.Errorf("Value, then Do: %v, want 1 command", d.Commands)
		}
	})
}

// A run that ends with an error, a panic or Goexit does not count. The next waiter runs its own function, with a
// greater token.
func TestFailedRunIsFollowed(t *testing.T) {
	failed := errors.New("failed")
	fails := map[string]func() error{
		"error":  func() error { return failed },
		"panic":  func() error { panic("boom") },
		"Goexit": func() error { runtime.Goexit(); return nil },
	}
	for name, fail := range fails {
		for _, same := range []bool{false, true} {
			inBubble(t, fmt.Sprintf("%s same process %t", name, same), func(t *testing.T) {
				store := dsynctest.NewMemory()
				a, b := newSession(t, store, nil), newSession(t, store, nil)
				if same {
					b = a
				}
				run := make(chan struct{})
				var token int64
				first := make(chan error, 1)
				go func() {
					err, finished := error(nil), false
					defer func() {
						if r := recover(); r != nil {
							err = fmt.Errorf("panic: %v", r)
						} else if !finished {
							err = errors.New("Goexit")
						}
						first <- err
					}()
					err = a.Once("k").Do(background, func(ctx context.Context) error {
						token = dsync.HoldFrom(ctx).Token()
						<-run
						return fail()
					})
					finished = true
				}()
				synctest.Wait()
				second := make(chan error, 1)
				ran := false
				go func() {
					second <- b.Once("k").Do(within(t), func(ctx context.Context) error {
						ran = true
						if next := dsync.HoldFrom(ctx).Token(); token == 0 || next <= token {
							t.Errorf("token %d after %d", next, token)
						}
						return nil
					})
				}()
				synctest.Wait()
				if ran {
					t.Fatal("two runs at once")
				}
				close(run)
				err := <-first
				if name == "error" {
					wantErr(t, "Do", err, failed)
					if errors.Is(err, dsync.ErrLost) || !strings.Contains(err.Error(), `"k"`) {
						t.Errorf("Do: %v, want an error that names the key, without ErrLost", err)
					}
				} else if err == nil {
					t.Error("the panic or Goexit did not reach the caller")
				}
				if err := <-second; err != nil || !ran {
					t.Errorf("the next Do returned %v, ran %t; want nil, and a run", err, ran)
				}
				if err := a.Once("k").Do(background, unwanted(t)); err != nil {
					t.Errorf("Do: %v", err)
				}
			})
		}
	}
}

// The store keeps a result of up to 64 KiB, of any bytes, for later sessions, and sweeps do not delete it. Callers
// cannot change the result.
func TestOnceKeepsItsResult(t *testing.T) {
	testkit.Large(t)
	for name, value := range map[string][]byte{
		"nil": nil, "empty": {}, "bytes": []byte("a\x00\xff"), "64 KiB": bytes.Repeat([]byte("x"), 64<<10),
	} {
		inBubble(t, name, func(t *testing.T) {
			store := dsynctest.NewMemory()
			first, err := dsync.New(store, nil)
			noErr(t, err)
			o := first.Once("k")
			want := string(value)
			got, err := o.DoValue(background, func(context.Context) ([]byte, error) { return value, nil })
			if err != nil || got == nil || string(got) != want {
				t.Fatalf("DoValue: %d bytes, %v, want %d", len(got), err, len(want))
			}
			for _, b := range [][]byte{got, value} {
				if len(b) > 0 {
					b[0] = 'y'
				}
			}
			wantDone(t, o, want)
			if err := first.Close(background); err != nil {
				t.Error(err)
			}
			s := newSession(t, store, &dsync.Options{Retention: 2 * ttl})
			lock(t, s.Mutex("warm"))
			time.Sleep(time.Hour)
			if records := store.Records(); len(records) != 2 {
				t.Errorf("the store has records of %q, want two", records)
			}
			o = s.Once("k")
			if got, _, err := o.Value(background); err != nil || string(got) != want {
				t.Errorf("Value: %d bytes, %v", len(got), err)
			} else if len(got) > 0 {
				got[0] = 'z'
			}
			wantDone(t, o, want)
			wantDone(t, s.Once("k"), want)
		})
	}
}

// If the result is too big, the run does not count, and the error says why.
func TestOnceResultTooBig(t *testing.T) {
	bubble(t, func(t *testing.T) {
		store := dsynctest.NewMemory()
		o := newSession(t, store, nil).Once("k")
		value, err := o.DoValue(background, func(context.Context) ([]byte, error) { return make([]byte, 64<<10+1), nil })
		if err == nil || value != nil || !strings.Contains(err.Error(), "65537 bytes; it may have at most 65536") {
			t.Errorf("DoValue: %d bytes, %v", len(value), err)
		}
		if _, done, err := o.Value(background); done || err != nil {
			t.Errorf("Value: %t, %v", done, err)
		}
		if h := holders(t, store, "k"); len(h) != 0 {
			t.Errorf("the key is held by %v", h)
		}
		sealed(t, o, "v")
	})
}

// Value returns false if the Once is not done yet, or if the key does not belong to a Once.
func TestOnceValueBefore(t *testing.T) {
	bubble(t, func(t *testing.T) {
		store := dsynctest.NewMemory()
		s := newSession(t, store, nil)
		o := s.Once("k")
		check := func(when string) {
			t.Helper()
			if value, done, err := o.Value(background); value != nil || done || err != nil {
				t.Errorf("%s: %q, %t, %v", when, value, done, err)
			}
		}
		check("never used")
		mu := s.Mutex("k")
		lock(t, mu)
		check("a mutex")
		mu.Unlock()
		err := o.Do(background, func(context.Context) error {
			check("running")
			return errors.New("failed")
		})
		if err == nil {
			t.Error("Do returned nil, want the function's error")
		}
		check("failed")
		s.Close(background)
		_, _, err = o.Value(background)
		wantErr(t, "Value", err, dsync.ErrClosed)
	})
}

// In a run, HoldFrom returns the run's hold. After the run, the hold has no token, and the run's context has ended.
func TestHoldFrom(t *testing.T) {
	bubble(t, func(t *testing.T) {
		store := dsynctest.NewMemory()
		type own struct{}
		parent, cancel := context.WithCancel(context.WithValue(background, own{}, "v"))
		defer cancel()
		if dsync.HoldFrom(parent) != nil {
			t.Error("HoldFrom returned a hold outside a run")
		}
		var kept context.Context
		err := newSession(t, store, nil).Once("k").Do(parent, func(ctx context.Context) error {
			kept = ctx
			if h := holders(t, store, "k"); len(h) != 1 || dsync.HoldFrom(ctx).Token() != h[0].Token {
				t.Errorf("token %d, holders %v; want one holder, with this token", dsync.HoldFrom(ctx).Token(), h)
			}
			if ctx.Value(own{}) != "v" {
				t.Error("the run's context lacks the caller's values")
			}
			return ctx.Err()
		})
		if err != nil {
			t.Error(err)
		}
		if dsync.HoldFrom(kept).Token() != 0 || kept.Err() == nil {
			t.Error("after the run, the hold still has a token or the context has not ended")
		}
		// A sealed key still has a token.
		if st, _ := store.Load(background, "k", 1000); st.Token == 0 {
			t.Error("a sealed key has no token")
		}
	})
}
