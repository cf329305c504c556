package main

import (
	"bytes"
	"context"
	"errors"
	"io"
	"log/slog"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/leasehold-go/leasehold/dsync/dsynctest"
)

// A service knows how many calls there are, and were.
type service struct {
	mu        sync.Mutex
	now, most int
	done      map[string]int
}

func (s *service) call(ctx context.Context, job string) error {
	s.mu.Lock()
	s.now++
	s.most = max(s.most, s.now)
	s.mu.Unlock()
	err := idle(ctx, job)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.now--
	if err == nil {
		s.done[job]++
	}
	return err
}

// The processes make never more calls at a time than the service allows, and at times
// as many; every job is done once.
func TestNeverMoreThanTheSize(t *testing.T) {
	for _, c := range []struct {
		size          int64
		workers, most int
	}{{3, 4, 3}, {5, 2, 5}, {7, 2, 6}} {
		synctest.Test(t, func(t *testing.T) {
			const jobs = 10
			s := &service{done: map[string]int{}}
			var out bytes.Buffer
			f := &fleet{ttl: 10 * time.Second, json: true}
			if err := run(t.Context(), f, c.size, c.workers, jobs, &out, s.call); err != nil {
				t.Error(err)
			}
			if s.most != c.most {
				t.Errorf("size %d, %d workers: up to %d calls at a time, want %d", c.size, c.workers, s.most, c.most)
			}
			done := 0
			for _, l := range lines(t, &out) {
				switch {
				case l.Msg == "done":
					done++
				case l.Msg == "lost", l.Level == "ERROR":
					t.Errorf("%+v", l)
				}
			}
			if done != 3*jobs || len(s.done) != 3*jobs {
				t.Errorf("%d jobs logged as done, %d calls succeeded, want %d", done, len(s.done), 3*jobs)
			}
			for job, n := range s.done {
				if n != 1 {
					t.Errorf("job %s was done %d times", job, n)
				}
			}
		})
	}
}

// A call that fails ends the pool.
func TestCallFails(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		broken := errors.New("broken")
		f := &fleet{ttl: 10 * time.Second}
		err := run(t.Context(), f, 3, 4, 10, io.Discard, func(context.Context, string) error { return broken })
		if !errors.Is(err, broken) {
			t.Errorf("got %v, want the call's error", err)
		}
	})
}

// A worker that loses its slot ends its call before another has the slot, and does the
// job with the next.
func TestLostSlot(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		store := dsynctest.NewMemory()
		link := dsynctest.NewFaulty(store, nil)
		defer link.Close()
		var mu sync.Mutex
		var calls []string
		note := func(what string) (n int) {
			mu.Lock()
			defer mu.Unlock()
			calls = append(calls, what)
			return len(calls)
		}
		first := &worker{process: newProcess(t, "first", link, slog.New(slog.DiscardHandler)), size: 1, call: func(ctx context.Context, job string) error {
			if note("first") > 1 {
				return nil
			}
			link.Cut()
			<-ctx.Done()
			note("first ends")
			return ctx.Err()
		}}
		second := &worker{process: newProcess(t, "second", store, slog.New(slog.DiscardHandler)), size: 1, call: func(context.Context, string) error {
			note("second")
			link.Heal()
			return nil
		}}
		var wg sync.WaitGroup
		wg.Go(func() {
			if err := first.do(ctx, "a"); err != nil {
				t.Error(err)
			}
		})
		synctest.Wait()
		if err := second.do(ctx, "b"); err != nil {
			t.Error(err)
		}
		wg.Wait()
		want := []string{"first", "first ends", "second", "first"}
		if !slices.Equal(calls, want) {
			t.Errorf("calls %q, want %q", calls, want)
		}
	})
}
