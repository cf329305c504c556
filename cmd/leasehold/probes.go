package main

import (
	"context"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/leasehold-go/leasehold/dsync/admin"
)

const (
	healthTime     = 2 * time.Second // how long /healthz waits for the store
	metricsTime    = 8 * time.Second // how long /metrics waits for the store; Prometheus waits 10 s by default
	maxMetricsKeys = 10_000          // as many as the page reads for a search
)

// withProbes returns a handler for the page, /healthz and /metrics.
func withProbes(page http.Handler, inspector *admin.Inspector) http.Handler {
	mux := http.NewServeMux()
	mux.Handle("/", page)
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, r *http.Request) {
		ctx, cancel := context.WithTimeout(r.Context(), healthTime)
		defer cancel()
		w.Header().Set("Cache-Control", "no-store")
		if _, err := inspector.Status(ctx, "healthz"); err != nil { // any key would do
			http.Error(w, "the store does not answer: "+oneLine(err), http.StatusServiceUnavailable)
			return
		}
		fmt.Fprintln(w, "ok")
	})
	reading := make(chan struct{}, 1) // a semaphore: one scrape at a time reads the store
	mux.HandleFunc("GET /metrics", func(w http.ResponseWriter, r *http.Request) {
		ctx, cancel := context.WithTimeout(r.Context(), metricsTime)
		defer cancel()
		w.Header().Set("Content-Type", "text/plain; version=0.0.4; charset=utf-8")
		w.Header().Set("Cache-Control", "no-store")
		var m metrics
		select {
		case reading <- struct{}{}:
			m = readMetrics(ctx, inspector)
			<-reading
		case <-ctx.Done():
		}
		fmt.Fprint(w, m.String())
	})
	return mux
}

// families are the names of the metrics, without the prefix "leasehold_fleet_", and their help texts.
var families = [][2]string{
	{"up", "Whether the store could be read."},
	{"keys", "Keys in the store."},
	{"waiters", "Requests waiting for a key."},
	{"oldest_hold_seconds", "Age of the oldest hold."},
	{"members", "Processes that are alive."},
	{"deadlocks", "Possible deadlocks."},
	{"truncated", "Whether there are keys that were not counted."},
	{"read_duration_seconds", "How long this reading took."},
}

// metrics are gauges of the whole store, by family and labels. They are empty if the store could not be read.
type metrics map[string]map[string]float64

// readMetrics returns the metrics of the store, or nil if the store could not be read.
func readMetrics(ctx context.Context, inspector *admin.Inspector) metrics {
	began := time.Now()
	m := metrics{"up": {"": 1}, "keys": {}, "waiters": {}, "oldest_hold_seconds": {}, "members": {}, "truncated": {"": 0}}
	var contended []admin.Status
	read := 0
	for st, err := range inspector.List(ctx, "") {
		if err != nil {
			return nil
		}
		if read == maxMetricsKeys {
			m["truncated"][""] = 1
			break
		}
		read++
		kind, state := "kind="+label(string(st.Kind)), "free"
		switch {
		case st.Held():
			state = "held"
		case st.Sealed:
			state = "done"
		case len(st.Holders) > 0:
			state = "lapsed"
		}
		m["keys"]["{"+kind+",state="+label(state)+"}"]++
		kind = "{" + kind + "}"
		m["waiters"][kind] += float64(st.Waiting)
		for _, h := range st.Holders {
			m["oldest_hold_seconds"][kind] = max(m["oldest_hold_seconds"][kind], st.Now.Sub(h.Since).Seconds())
		}
		if st.Waiting > 0 {
			contended = append(contended, st)
		}
	}
	members, _, err := inspector.Members(ctx)
	if err != nil {
		return nil
	}
	for _, o := range members {
		m["members"]["{version="+label(o.Settings.Version)+"}"]++
	}
	m["deadlocks"] = map[string]float64{"": float64(len(admin.FindDeadlocks(contended, contended)))}
	m["read_duration_seconds"] = map[string]float64{"": time.Since(began).Seconds()}
	return m
}

// String returns the metrics in the text format of Prometheus.
func (m metrics) String() string {
	if m == nil {
		m = metrics{"up": {"": 0}}
	}
	var b strings.Builder
	for _, f := range families {
		if m[f[0]] == nil {
			continue
		}
		name := "leasehold_fleet_" + f[0]
		fmt.Fprintf(&b, "# HELP %s %s\n# TYPE %[1]s gauge\n", name, f[1])
		for _, labels := range slices.Sorted(maps.Keys(m[f[0]])) {
			fmt.Fprintf(&b, "%s%s %s\n", name, labels, strconv.FormatFloat(m[f[0]][labels], 'f', -1, 64))
		}
	}
	return b.String()
}

// label quotes the value of a label. The format escapes only three characters, and allows no
// invalid UTF-8.
func label(value string) string {
	return `"` + strings.NewReplacer(`\`, `\\`, `"`, `\"`, "\n", `\n`).Replace(strings.ToValidUTF8(value, "\ufffd")) + `"`
}
