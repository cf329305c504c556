package main

import (
	"context"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/leasehold-go/leasehold/dsync"
	"github.com/leasehold-go/leasehold/dsync/admin"
	"github.com/leasehold-go/leasehold/dsync/driver"
	"github.com/leasehold-go/leasehold/dsync/dsynctest"
	"github.com/leasehold-go/leasehold/leader"
)

func session(t *testing.T, store driver.Store) *dsync.Session {
	t.Helper()
	locks, err := dsync.New(store, &dsync.Options{TTL: 10 * time.Second})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { locks.Close(context.Background()) })
	return locks
}

// Three jobs spread over three replicas, one on each. When a replica stops, its job moves.
func TestEachOnOneReplica(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		jobs := []string{"a", "b", "c"}
		store := dsynctest.NewMemory()
		var replicas sync.WaitGroup
		defer replicas.Wait()
		var stop context.CancelFunc // stops the last replica
		for range 3 {
			locks := session(t, store)
			var ctx context.Context
			ctx, stop = context.WithCancel(t.Context())
			defer stop()
			replicas.Go(func() {
				if err := run(ctx, locks, jobs...); err != nil && ctx.Err() == nil {
					t.Error(err)
				}
			})
		}
		viewer := session(t, store)
		leaders := func() int {
			t.Helper()
			by := map[string]bool{}
			for _, job := range jobs {
				st, err := admin.New(viewer).Status(t.Context(), "singletons/"+job)
				if err != nil || len(st.Holders) != 1 {
					t.Fatalf("%s: %+v, %v, want one holder", job, st, err)
				}
				by[st.Holders[0].Session] = true
			}
			return len(by)
		}
		time.Sleep(4 * time.Minute)
		if n := leaders(); n != 3 {
			t.Errorf("the jobs are on %d replicas, want 3", n)
		}
		stop()
		time.Sleep(time.Second)
		if n := leaders(); n != 2 {
			t.Errorf("after one replica stopped, the jobs are on %d replicas, want 2", n)
		}
	})
}

// The probes succeed or fail as documented in three situations: all is well, the database is unreachable, or a job
// keeps running after its context has ended.
func TestProbes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		link := dsynctest.NewFaulty(dsynctest.NewMemory(), nil)
		defer link.Close()
		locks := session(t, link)
		probe := func(when string, ready, live int) {
			t.Helper()
			for path, want := range map[string]int{"/readyz": ready, "/livez": live, "/": http.StatusNotFound} {
				w := httptest.NewRecorder()
				probes(locks).ServeHTTP(w, httptest.NewRequest(http.MethodGet, path, nil))
				if w.Code != want {
					t.Errorf("%s: GET %s: %d %s, want %d", when, path, w.Code, w.Body, want)
				}
			}
		}
		stuck := make(chan struct{})
		ctx, stop := context.WithCancel(t.Context())
		defer stop()
		group, _, err := leader.NewGroup(ctx, locks, "singletons", nil)
		if err != nil {
			t.Fatal(err)
		}
		for name, job := range map[string]func(context.Context) error{
			"good":  func(ctx context.Context) error { <-ctx.Done(); return ctx.Err() },
			"stuck": func(context.Context) error { <-stuck; return nil },
		} {
			if _, err := group.Go(name, job); err != nil {
				t.Fatal(err)
			}
		}
		time.Sleep(time.Minute)
		probe("at work", 200, 200)
		link.Cut()
		// The last heartbeat was at most 3.7 s ago. Counted from that heartbeat, the next one is
		// overdue at 5.3 s, the lease ends at 8.5 s, and the grace ends at 9.5 s.
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
