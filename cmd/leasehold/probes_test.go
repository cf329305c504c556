package main

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/leasehold-go/leasehold/dsync"
	"github.com/leasehold-go/leasehold/dsync/admin"
	"github.com/leasehold-go/leasehold/dsync/driver"
	"github.com/leasehold-go/leasehold/dsync/dsynctest"
)

// get returns the response to a GET of path from serve's handler on store.
func get(t *testing.T, store driver.Store, path string) *httptest.ResponseRecorder {
	t.Helper()
	s, err := dsync.New(store, nil)
	noErr(t, err)
	defer s.Close(context.Background())
	w := httptest.NewRecorder()
	withProbes(http.NotFoundHandler(), admin.New(s)).ServeHTTP(w, httptest.NewRequest("GET", path, nil))
	return w
}

// /metrics counts what is in the store, in the text format of Prometheus, without writing to the
// store.
func TestMetrics(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newScene(t)
		s.allKinds()
		if _, err := s.Register(t.Context(), driver.Member{ID: "odd", TTL: time.Hour, Settings: driver.Settings{Version: "a\"b\\\n\xff"}}); err != nil {
			t.Fatal(err)
		}
		before := s.Counts()
		w := get(t, s.Memory, "/metrics")
		s.wrote(before)
		if got := w.Header().Get("Content-Type"); w.Code != 200 || got != "text/plain; version=0.0.4; charset=utf-8" {
			t.Errorf("/metrics: status %d, %q", w.Code, got)
		}
		golden(t, "metrics.txt", w.Body.String())
	})
}

// If the store does not answer, serve soon reports itself as unhealthy, and the only metric is up,
// with the value 0.
func TestProbesWithoutStore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		healthy := get(t, dsynctest.NewMemory(), "/healthz")
		if healthy.Code != 200 || healthy.Body.String() != "ok\n" {
			t.Errorf("with a store that answers: status %d, %q", healthy.Code, healthy.Body)
		}
		f := dsynctest.NewFaulty(dsynctest.NewMemory(), nil)
		defer f.Close()
		f.Cut()
		for path, c := range map[string]struct {
			status int
			within time.Duration
		}{"/healthz": {503, 2 * time.Second}, "/metrics": {200, 8 * time.Second}} {
			began := time.Now()
			w := get(t, f, path)
			if took := time.Since(began); w.Code != c.status || took > c.within {
				t.Errorf("%s: status %d after %v, want %d within %v", path, w.Code, took, c.status, c.within)
			}
			want := "the store does not answer: "
			if path == "/metrics" {
				want = "# HELP leasehold_fleet_up Whether the store could be read.\n# TYPE leasehold_fleet_up gauge\nleasehold_fleet_up 0\n"
			}
			if got := w.Body.String(); !strings.HasPrefix(got, want) || path == "/metrics" && got != want || path == "/healthz" && strings.Count(got, "\n") != 1 {
				t.Errorf("%s: got %q, want %q", path, got, want)
			}
		}
	})
}

// If there are too many keys, the metrics show that not all of them were counted.
func TestMetricsOfManyKeys(t *testing.T) {
	for _, n := range []int{maxMetricsKeys, maxMetricsKeys + 1} {
		synctest.Test(t, func(t *testing.T) { // in a bubble, reading takes no time even on a slow machine
			got := get(t, manyKeys(t, n), "/metrics").Body.String()
			for _, want := range []string{
				fmt.Sprintf("leasehold_fleet_keys{kind=\"mutex\",state=\"held\"} %d\n", maxMetricsKeys),
				fmt.Sprintf("leasehold_fleet_truncated %d\n", n-maxMetricsKeys),
			} {
				if !strings.Contains(got, want) {
					t.Errorf("with %d keys the metrics\n%s\ndo not contain %q", n, got, want)
				}
			}
		})
	}
}

// The help of serve names all metrics.
func TestMetricsAreDocumented(t *testing.T) {
	help := newServe(&app{}).Long
	for _, f := range families {
		if name := "leasehold_fleet_" + f[0]; !strings.Contains(help, name) {
			t.Errorf("the help does not mention %s", name)
		}
	}
}
