package otel_test

import (
	"maps"
	"os"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/otlptranslator"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"

	"github.com/leasehold-go/leasehold/dsync"
	"github.com/leasehold-go/leasehold/dsync/dsynctest"
	"github.com/leasehold-go/leasehold/leader"
	dsyncotel "github.com/leasehold-go/leasehold/otel"
)

// everything returns all metrics with all their attributes, as recorded in a process in which
// every event occurs.
func everything(t *testing.T) (all []metricdata.Metrics) {
	synctest.Test(t, func(t *testing.T) {
		store := dsynctest.NewMemory()
		faulty := dsynctest.NewFaulty(store, nil)
		defer faulty.Close()
		r := record(t, dsyncotel.Options{Key: func(key string) string { return key }})
		s := r.session(faulty)
		if _, err := r.ObserveQueues(s, "k"); err != nil {
			t.Fatal(err)
		}
		polls := dsynctest.NewMemory()
		polls.Polling = true
		for _, s := range []*dsync.Session{s, newSession(t, polls, nil)} {
			if _, err := r.ObserveSession(s); err != nil {
				t.Fatal(err)
			}
			turn(s.Mutex("k"))
			mu := s.Mutex("held for long enough to listen, and to sweep")
			mu.Lock()
			time.Sleep(time.Hour)
			mu.Unlock()
		}
		r.RecordClockSpread(background, time.Millisecond)
		e, err := leader.New(s, "e", &leader.Options{Hooks: r.LeaderHooks(nil)})
		noErr(t, err)
		term, err := e.Campaign(background)
		noErr(t, err)
		mu := s.Mutex("k")
		mu.Lock()
		time.Sleep(ttl)
		store.Skew(2 * time.Second)
		time.Sleep(ttl)
		faulty.Cut()
		<-mu.Lost()
		<-term.Done()
		faulty.Heal()
		mu.Unlock()
		var wg sync.WaitGroup
		mu.Lock()
		wg.Go(func() { turn(s.Mutex("k")) })
		synctest.Wait()
		mu.Unlock()
		wg.Wait()
		deadlock(s, newSession(t, store, nil))
		synctest.Wait()
		all = r.metrics()
	})
	return all
}

// attributes returns the names of m's attributes, and m's type as the package's documentation
// calls it.
func attributes(t *testing.T, m metricdata.Metrics) (names []string, kind string, translated otlptranslator.MetricType) {
	var sets []attribute.Set
	switch data := m.Data.(type) {
	case metricdata.Histogram[float64]:
		kind, translated = "histogram", otlptranslator.MetricTypeHistogram
		for _, p := range data.DataPoints {
			sets = append(sets, p.Attributes)
		}
	case metricdata.Sum[int64]:
		kind, translated = "counter", otlptranslator.MetricTypeMonotonicCounter
		if !data.IsMonotonic {
			kind, translated = "up-down counter", otlptranslator.MetricTypeNonMonotonicCounter
		}
		for _, p := range data.DataPoints {
			sets = append(sets, p.Attributes)
		}
	case metricdata.Gauge[float64]:
		kind, translated = "gauge", otlptranslator.MetricTypeGauge
		for _, p := range data.DataPoints {
			sets = append(sets, p.Attributes)
		}
	case metricdata.Gauge[int64]:
		kind, translated = "gauge", otlptranslator.MetricTypeGauge
		for _, p := range data.DataPoints {
			sets = append(sets, p.Attributes)
		}
	default:
		t.Fatalf("%s is a %T", m.Name, data)
	}
	all := make(map[string]bool)
	for _, set := range sets {
		for _, a := range set.ToSlice() {
			all[string(a.Key)] = true
		}
	}
	return slices.Sorted(maps.Keys(all)), kind, translated
}

// The table in the documentation lists exactly the existing metrics, with their types and
// attributes.
func TestDocumentationNamesTheMetrics(t *testing.T) {
	text, err := os.ReadFile("doc.go")
	noErr(t, err)
	full := map[string]string{
		"kind": "leasehold.kind", "source": "leasehold.grant.source", "key": "leasehold.key", "error.type": "error.type",
		"operation": "leasehold.store.operation", "direction": "leasehold.clock.direction",
	}
	line := regexp.MustCompile(`(?m)^//\t(leasehold\.[a-z.]+) +(histogram|counter|up-down counter|gauge) +\S+(?: \S+)*(?:  +([a-z., ]+))?$`)
	documented := make(map[string]string)
	for _, m := range line.FindAllStringSubmatch(string(text), -1) {
		var names []string
		for name := range strings.SplitSeq(m[3], ", ") {
			if name != "" {
				names = append(names, full[name])
			}
		}
		slices.Sort(names)
		documented[m[1]] = m[2] + " " + strings.Join(names, " ")
	}
	for _, m := range everything(t) {
		names, kind, _ := attributes(t, m)
		if got, want := documented[m.Name], kind+" "+strings.Join(names, " "); got != want {
			t.Errorf("%s is documented as %q, want %q", m.Name, got, want)
		}
		delete(documented, m.Name)
	}
	if len(documented) > 0 {
		t.Errorf("these metrics are documented but do not exist: %v", documented)
	}
}
