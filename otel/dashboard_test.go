package otel_test

import (
	"encoding/json"
	"maps"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/prometheus/otlptranslator"
)

// prometheusSeries returns two maps from the names of the series in Prometheus: to the labels, and to the metric that
// the series comes from.
func prometheusSeries(t *testing.T) (labels map[string][]string, of map[string]string) {
	t.Helper()
	labels, of = make(map[string][]string), make(map[string]string)
	metrics := otlptranslator.NewMetricNamer("", otlptranslator.UnderscoreEscapingWithSuffixes)
	label := otlptranslator.LabelNamer{}
	for _, m := range everything(t) {
		names, kind, translated := attributes(t, m)
		name, err := metrics.Build(otlptranslator.Metric{Name: m.Name, Unit: m.Unit, Type: translated})
		noErr(t, err)
		all := []string{"job", "instance"}
		for _, n := range names {
			l, err := label.Build(n)
			noErr(t, err)
			all = append(all, l)
		}
		if kind == "histogram" {
			labels[name+"_count"], labels[name+"_sum"], labels[name+"_bucket"] = all, all, append(all, "le")
			of[name+"_count"], of[name+"_sum"], of[name+"_bucket"] = m.Name, m.Name, m.Name
		} else {
			labels[name], of[name] = all, m.Name
		}
	}
	return labels, of
}

type panel struct {
	ID      int
	Type    string
	Title   string
	GridPos struct{ X, Y, W, H int }
	Targets []struct{ Expr, RefID, LegendFormat string }
}

type dashboard struct {
	Title, UID    string
	SchemaVersion int
	Templating    struct {
		List []struct {
			Name, Definition string
		}
	}
	Panels []panel
}

func readDashboard(t *testing.T) (d dashboard) {
	t.Helper()
	text, err := os.ReadFile("grafana/leasehold.json")
	noErr(t, err)
	noErr(t, json.Unmarshal(text, &d))
	return d
}

// Every query uses one existing metric and only that metric's labels, and every metric is on the dashboard.
func TestDashboardShowsTheMetrics(t *testing.T) {
	labels, of := prometheusSeries(t)
	selector := regexp.MustCompile(`([a-z_:][a-z0-9_:]*)\{([^}]*)\}`)
	label := regexp.MustCompile(`([a-z_]+) *(?:=|!=|=~|!~) *"`)
	by := regexp.MustCompile(`by \(([^)]*)\)`)
	legend := regexp.MustCompile(`\{\{([^}]*)\}\}`)
	word := regexp.MustCompile(`\bleasehold_[a-z_]+`)

	shown := make(map[string]bool)
	check := func(where, expr, legendFormat string) {
		t.Helper()
		metrics := selector.FindAllStringSubmatch(expr, -1)
		if len(metrics) != 1 {
			t.Errorf("%s: %d metrics are in %q, want 1 of the form name{…}", where, len(metrics), expr)
			return
		}
		name := metrics[0][1]
		has, ok := labels[name]
		if !ok {
			t.Errorf("%s: there is no metric %q", where, name)
			return
		}
		shown[of[name]] = true
		var used []string
		for _, m := range label.FindAllStringSubmatch(metrics[0][2], -1) {
			used = append(used, m[1])
		}
		for _, m := range by.FindAllStringSubmatch(expr, -1) {
			used = append(used, strings.Split(m[1], ", ")...)
		}
		for _, m := range legend.FindAllStringSubmatch(legendFormat, -1) {
			if strings.Contains(expr, " by (") && !slices.Contains(used, m[1]) {
				t.Errorf("%s: the legend names %q, which the query sums away", where, m[1])
			}
			used = append(used, m[1])
		}
		for _, l := range used {
			if !slices.Contains(has, l) {
				t.Errorf("%s: %q has no label %q, it has %v", where, name, l, has)
			}
		}
		for _, w := range word.FindAllString(expr, -1) {
			if w != name && !slices.Contains(used, w) {
				t.Errorf("%s: %q is neither the metric nor a label of it", where, w)
			}
		}
	}
	d := readDashboard(t)
	for _, p := range d.Panels {
		for _, target := range p.Targets {
			check(p.Title, target.Expr, target.LegendFormat)
		}
	}
	for name := range maps.Values(of) {
		if !shown[name] {
			t.Errorf("%s is on no panel", name)
		}
	}
	for _, v := range d.Templating.List {
		if name, _, ok := strings.Cut(strings.TrimPrefix(v.Definition, "label_values("), ","); ok {
			name, _, _ = strings.Cut(name, "{")
			if labels[name] == nil {
				t.Errorf("variable %s: there is no metric %q", v.Name, name)
			}
		}
	}
}

// Valid JSON is not enough for Grafana. It needs unique ids, and panels of known types that do not overlap on
// a grid 24 units wide.
func TestDashboardCanBeLoaded(t *testing.T) {
	d := readDashboard(t)
	if d.Title == "" || d.UID == "" || d.SchemaVersion < 36 {
		t.Errorf("title %q, uid %q, schemaVersion %d", d.Title, d.UID, d.SchemaVersion)
	}
	ids := make(map[int]bool)
	cells := make(map[[2]int]string)
	for _, p := range d.Panels {
		if p.Title == "" || p.ID == 0 || ids[p.ID] {
			t.Errorf("panel %q has the id %d, which must be its own", p.Title, p.ID)
		}
		ids[p.ID] = true
		if !slices.Contains([]string{"row", "stat", "timeseries"}, p.Type) || (p.Type == "row") != (len(p.Targets) == 0) {
			t.Errorf("panel %q is a %q with %d targets", p.Title, p.Type, len(p.Targets))
		}
		refs := make(map[string]bool)
		for _, target := range p.Targets {
			if target.RefID == "" || refs[target.RefID] {
				t.Errorf("panel %q has a target with the refId %q, which must be its own", p.Title, target.RefID)
			}
			refs[target.RefID] = true
		}
		g := p.GridPos
		if g.W < 1 || g.H < 1 || g.X < 0 || g.X+g.W > 24 {
			t.Errorf("panel %q is at %+v, off the grid", p.Title, g)
		}
		for x := g.X; x < g.X+g.W; x++ {
			for y := g.Y; y < g.Y+g.H; y++ {
				if other, taken := cells[[2]int{x, y}]; taken {
					t.Fatalf("panels %q and %q overlap", other, p.Title)
				}
				cells[[2]int{x, y}] = p.Title
			}
		}
	}
}
