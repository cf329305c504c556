package main

import (
	"bytes"
	"context"
	"log/slog"
	"maps"
	"net/http"
	"net/http/httptest"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/leasehold-go/leasehold/dsync/dsynctest"
	"github.com/leasehold-go/leasehold/leader"
)

// Each job runs on one replica at a time, one term after the other; in the end each
// replica has one of the three.
func TestEachOnOneReplica(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var out bytes.Buffer
		f := &fleet{ttl: 10 * time.Second, json: true}
		ctx, cancel := context.WithTimeout(t.Context(), 4*time.Minute)
		defer cancel()
		if err := run(ctx, f, time.Second, nil, &out); err != nil {
			t.Error(err)
		}
		terms, at, works := map[string]int64{}, map[string]string{}, map[string]int{}
		spread := 0 // how often jobs were seen to be on a replica each
		for _, l := range lines(t, &out) {
			switch l.Msg {
			case "begins":
				if by := at[l.Singleton]; by != "" {
					t.Errorf("%v: %s begins on %s and has not ended on %s", l.Time, l.Singleton, l.Process, by)
				}
				at[l.Singleton] = l.Process
				if l.Term <= terms[l.Singleton] {
					t.Errorf("%s: term %d of %s after %d", l.Process, l.Term, l.Singleton, terms[l.Singleton])
				}
				terms[l.Singleton] = l.Term
				if len(slices.Compact(slices.Sorted(maps.Values(at)))) == len(jobs) {
					spread++
				}
			case "ends":
				delete(at, l.Singleton)
			case "works":
				works[l.Singleton]++
			}
		}
		for _, name := range jobs {
			if works[name] < 200 {
				t.Errorf("%s worked %d times in 240 s", name, works[name])
			}
		}
		if spread == 0 {
			t.Error("the jobs never were on a replica each")
		}
	})
}

// What the probes say while all is well, while the database can't be reached, and while
// a job goes on although its context has ended.
func TestProbes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		link := dsynctest.NewFaulty(dsynctest.NewMemory(), nil)
		defer link.Close()
		p := newProcess(t, "pod", link, slog.New(slog.DiscardHandler))
		probe := func(when string, ready, live int) {
			t.Helper()
			for path, want := range map[string]int{"/readyz": ready, "/livez": live, "/": http.StatusNotFound} {
				w := httptest.NewRecorder()
				probes(p.locks).ServeHTTP(w, httptest.NewRequest(http.MethodGet, path, nil))
				if w.Code != want {
					t.Errorf("%s: GET %s: %d %s, want %d", when, path, w.Code, w.Body, want)
				}
			}
		}
		probe("before the first job", 200, 200)
		ctx, stop := context.WithCancel(t.Context())
		defer stop()
		stuck := make(chan struct{})
		group, _, err := leader.NewGroup(ctx, p.locks, "singletons", nil)
		if err != nil {
			t.Fatal(err)
		}
		good := &job{process: p, singleton: jobs[0], every: time.Second}
		if _, err := group.Go(good.singleton, good.run); err != nil {
			t.Fatal(err)
		}
		if _, err := group.Go(jobs[1], func(ctx context.Context) error {
			<-stuck
			return ctx.Err()
		}); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Minute)
		probe("at work", 200, 200)
		link.Cut()
		// The last heartbeat was at most 3.7 s ago; 5.3 s after it the next is overdue,
		// at 8.5 s the lease is over, and at 9.5 s the grace.
		time.Sleep(5600 * time.Millisecond)
		probe("without the database", 503, 200)
		time.Sleep(5 * time.Second)
		probe("with a job that is stuck", 503, 503)
		close(stuck)
		synctest.Wait()
		probe("without the database, nothing running", 503, 200)
		link.Heal()
		time.Sleep(time.Minute)
		probe("at work again", 200, 200)
		stop()
		group.Wait()
	})
}
