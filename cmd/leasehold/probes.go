package main

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/leasehold-go/leasehold/dsync/admin"
)

const (
	healthTime     = 2 * time.Second // how long /healthz waits for the store
	metricsTime    = 8 * time.Second // Prometheus waits for 10 s by default
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

// metrics are gauges of the whole store. The zero value means that the store could not be read.
type metrics struct {
	up, truncated bool
	keys          map[[2]string]int // by kind and state
	waiters       map[string]int    // by kind
	oldest        map[string]time.Duration
	members       map[string]int // by version
	deadlocks     int
	took          time.Duration
}

// readMetrics reads the store.
func readMetrics(ctx context.Context, inspector *admin.Inspector) metrics {
	began := time.Now()
	m := metrics{up: true, keys: make(map[[2]string]int), waiters: make(map[string]int), oldest: make(map[string]time.Duration), members: make(map[string]int)}
	var contended []admin.Status
	read := 0
	for st, err := range inspector.List(ctx, "") {
		if err != nil {
			return metrics{}
		}
		if read == maxMetricsKeys {
			m.truncated = true
			break
		}
		read++
		kind, state := string(st.Kind), "free"
		switch {
		case st.Held():
			state = "held"
		case st.Sealed:
			state = "done"
		case len(st.Holders) > 0:
			state = "lapsed"
		}
		m.keys[[2]string{kind, state}]++
		m.waiters[kind] += st.Waiting
		for _, h := range st.Holders {
			m.oldest[kind] = max(m.oldest[kind], st.Now.Sub(h.Since))
		}
		if st.Waiting > 0 {
			contended = append(contended, st)
		}
	}
	members, _, err := inspector.Members(ctx)
	if err != nil {
		return metrics{}
	}
	for _, o := range members {
		m.members[o.Settings.Version]++
	}
	m.deadlocks = len(admin.FindDeadlocks(contended, contended))
	m.took = time.Since(began)
	return m
}

// String returns the metrics in the text format of Prometheus.
func (m metrics) String() string {
	var b strings.Builder
	family := func(name, help string, samples ...string) {
		fmt.Fprintf(&b, "# HELP leasehold_fleet_%s %s\n# TYPE leasehold_fleet_%[1]s gauge\n", name, help)
		slices.Sort(samples)
		for _, s := range samples {
			fmt.Fprintf(&b, "leasehold_fleet_%s%s\n", name, s)
		}
	}
	bit := func(is bool) string {
		if is {
			return " 1"
		}
		return " 0"
	}
	family("up", "Whether the store could be read.", bit(m.up))
	if !m.up {
		return b.String()
	}
	var keys, waiters, oldest, members []string
	for of, n := range m.keys {
		keys = append(keys, fmt.Sprintf("{kind=%s,state=%s} %d", label(of[0]), label(of[1]), n))
	}
	for kind, n := range m.waiters {
		waiters = append(waiters, fmt.Sprintf("{kind=%s} %d", label(kind), n))
	}
	for kind, d := range m.oldest {
		oldest = append(oldest, fmt.Sprintf("{kind=%s} %g", label(kind), d.Seconds()))
	}
	for version, n := range m.members {
		members = append(members, fmt.Sprintf("{version=%s} %d", label(version), n))
	}
	family("keys", "Keys in the store.", keys...)
	family("waiters", "Requests waiting for a key.", waiters...)
	family("oldest_hold_seconds", "Age of the oldest hold.", oldest...)
	family("members", "Processes that are alive.", members...)
	family("deadlocks", "Possible deadlocks.", fmt.Sprintf(" %d", m.deadlocks))
	family("truncated", "Whether there are keys that were not counted.", bit(m.truncated))
	family("read_duration_seconds", "How long this reading took.", fmt.Sprintf(" %g", m.took.Seconds()))
	return b.String()
}

// label quotes the value of a label. The format escapes only three characters, and allows no
// invalid UTF-8.
func label(value string) string {
	return `"` + strings.NewReplacer(`\`, `\\`, `"`, `\"`, "\n", `\n`).Replace(strings.ToValidUTF8(value, "\ufffd")) + `"`
}
