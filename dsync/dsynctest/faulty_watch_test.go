package dsynctest_test

import (
	"context"
	"errors"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/leasehold-go/leasehold/dsync"
	"github.com/leasehold-go/leasehold/dsync/dsynctest"
)

func TestFaultyWatch(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := dsynctest.NewMemory()
		f := dsynctest.NewFaulty(m, on(dsynctest.MethodEvent, 3, dsynctest.Fault{Again: time.Second}))
		ctx, cancel := context.WithCancel(t.Context())
		var got []string
		done := make(chan error)
		start := func() {
			go func() {
				done <- f.Watch(ctx, "a", nil, func(e dsync.Event) { got = append(got, e.Claim) })
			}()
			synctest.Wait()
		}
		grant := func(n int) {
			c := claim("k", "a", n)
			m.Acquire(ctx, c, true, nil, soon())
			m.Release(ctx, c, dsync.Outcome{})
			time.Sleep(10 * time.Second)
			synctest.Wait()
		}
		start()
		grant(1)
		grant(2) // twice
		f.Cut()
		grant(3) // lost
		f.Heal()
		grant(4)
		if want := []string{"", "a.1", "a.2", "a.2", "a.4"}; !slices.Equal(got, want) {
			t.Errorf("events %q, want %q", got, want)
		}
		cancel()
		if err := <-done; !errors.Is(err, context.Canceled) {
			t.Errorf("Watch = %v, want context.Canceled", err)
		}

		// One that is opened while the store is cut off waits.
		ctx, cancel = context.WithCancel(t.Context())
		got = nil
		f.Cut()
		start()
		grant(5)
		if got != nil {
			t.Errorf("events while cut off: %q", got)
		}
		f.Heal()
		synctest.Wait()
		grant(6)
		if want := []string{"", "a.6"}; !slices.Equal(got, want) {
			t.Errorf("events %q, want %q", got, want)
		}
		cancel()
		<-done
	})
}

func TestFaultyWatchFaults(t *testing.T) {
	for _, tt := range []struct {
		name   string
		decide func(dsynctest.Request) dsynctest.Fault
		want   []string
	}{
		{"lost", on(dsynctest.MethodWatch, 0, dsynctest.Fault{LoseRequest: true}), nil},
		{"silent", on(dsynctest.MethodWatch, 0, dsynctest.Fault{LoseReply: true}), nil},
		{"opens late", on(dsynctest.MethodWatch, 0, dsynctest.Fault{Delay: time.Second}), []string{"", "a.2"}},
		{"event lost", on(dsynctest.MethodEvent, 2, dsynctest.Fault{LoseReply: true}), []string{"", "a.2"}},
		{"event late", on(dsynctest.MethodEvent, 2, dsynctest.Fault{Delay: 30 * time.Second}), []string{"", "a.1", "a.2"}},
		{"hang", on(dsynctest.MethodWatch, 0, dsynctest.Fault{Hang: 2 * time.Minute}), []string{"", "a.1", "a.2"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				m := dsynctest.NewMemory()
				f := dsynctest.NewFaulty(m, tt.decide)
				ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
				defer cancel()
				var got []string
				done := make(chan error, 1)
				start := time.Now()
				go func() {
					done <- f.Watch(ctx, "a", nil, func(e dsync.Event) { got = append(got, e.Claim) })
				}()
				synctest.Wait()
				for i := range 2 {
					c := claim("k", "a", i+1)
					m.Acquire(ctx, c, true, nil, soon())
					m.Release(ctx, c, dsync.Outcome{})
					time.Sleep(2 * time.Second)
				}
				err := <-done
				want := time.Minute
				if tt.name == "hang" {
					want = 2 * time.Minute
				}
				if took := time.Since(start); !errors.Is(err, context.DeadlineExceeded) || took != want {
					t.Errorf("Watch = %v after %v, want context.DeadlineExceeded after %v", err, took, want)
				}
				if !slices.Equal(got, tt.want) {
					t.Errorf("events %q, want %q", got, tt.want)
				}
			})
		})
	}
}
