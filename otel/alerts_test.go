package otel_test

import (
	"bytes"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"go.yaml.in/yaml/v3"
)

// alertFile is a file of alert rules, in Prometheus' format.
type alertFile struct {
	Groups []struct {
		Name  string
		Rules []alert
	}
}

type alert struct {
	Alert       string
	Expr        string
	For         time.Duration
	Labels      map[string]string
	Annotations map[string]string
}

func readAlerts(t *testing.T) (all []alert) {
	t.Helper()
	text, err := os.ReadFile("prometheus/alerts.yml")
	noErr(t, err)
	var f alertFile
	d := yaml.NewDecoder(bytes.NewReader(text))
	d.KnownFields(true)
	noErr(t, d.Decode(&f))
	for _, g := range f.Groups {
		all = append(all, g.Rules...)
	}
	return all
}

var (
	alertSelector = regexp.MustCompile(`([a-z_:][a-z0-9_:]*)\{([^}]*)\}`)
	alertMatcher  = regexp.MustCompile(`([a-z_]+)(?:=|!=|=~|!~)"([^"]*)"`)
	alertBy       = regexp.MustCompile(`by \(([^)]*)\)`)
	alertTemplate = regexp.MustCompile(`\$labels\.([a-z_]+)`)
	alertWord     = regexp.MustCompile(`\bleasehold_[a-z_]+`)
)

// Every alert names only existing metrics, labels and values. If an alert's expression is a sum,
// its text names only the labels that the sum keeps.
func TestAlertsAreOfTheMetrics(t *testing.T) {
	labels, _ := prometheusSeries(t)
	// values lists the values that doc.go documents for the labels used in rules.
	values := []string{"", "expired", "session_expired", "record_deleted", "stalled", "ahead", "election"}
	names := map[string]bool{}
	for _, a := range readAlerts(t) {
		if a.Alert == "" || names[a.Alert] || a.Labels["severity"] == "" || a.Annotations["summary"] == "" || a.Annotations["description"] == "" {
			t.Errorf("%q lacks a name of its own, a severity or a text: %+v", a.Alert, a)
		}
		names[a.Alert] = true
		selectors := alertSelector.FindAllStringSubmatch(a.Expr, -1)
		if len(selectors) == 0 {
			t.Errorf("%s: no metric of the form name{…} in %q", a.Alert, a.Expr)
		}
		var known []string // the rule's metrics, and the labels of each
		for _, m := range selectors {
			has, ok := labels[m[1]]
			if !ok {
				t.Errorf("%s: there is no metric %q", a.Alert, m[1])
			}
			known = append(known, m[1])
			known = append(known, has...)
			for _, matcher := range alertMatcher.FindAllStringSubmatch(m[2], -1) {
				if !slices.Contains(has, matcher[1]) {
					t.Errorf("%s: %q has no label %q, it has %v", a.Alert, m[1], matcher[1], has)
				}
				for v := range strings.SplitSeq(matcher[2], "|") {
					if !slices.Contains(values, v) {
						t.Errorf("%s: %s is never %q", a.Alert, matcher[1], v)
					}
				}
			}
		}
		for _, w := range alertWord.FindAllString(a.Expr, -1) {
			if !slices.Contains(known, w) {
				t.Errorf("%s: %q is neither one of its metrics nor a label", a.Alert, w)
			}
		}
		// Texts may name only the labels that remain after the sum.
		left := known
		for i, m := range alertBy.FindAllStringSubmatch(a.Expr, -1) {
			by := strings.Split(m[1], ", ")
			for _, l := range by {
				if !slices.Contains(known, l) {
					t.Errorf("%s: %q is summed by %q, which none of its metrics has", a.Alert, a.Expr, l)
				}
			}
			if i > 0 && !slices.Equal(by, left) {
				t.Errorf("%s: it sums by %v and by %v, want the same labels", a.Alert, left, by)
			}
			left = by
		}
		for _, text := range a.Annotations {
			for _, m := range alertTemplate.FindAllStringSubmatch(text, -1) {
				if !slices.Contains(left, m[1]) {
					t.Errorf("%s: the text names %q, which the alert does not have", a.Alert, m[1])
				}
			}
		}
	}
	if len(names) < 5 {
		t.Errorf("%d alerts, want at least 5", len(names))
	}
}

// docs/runbook.md names each alert.
func TestAlertsAreDocumented(t *testing.T) {
	text, err := os.ReadFile("../docs/runbook.md")
	noErr(t, err)
	for _, a := range readAlerts(t) {
		if !strings.Contains(string(text), "`"+a.Alert+"`") {
			t.Errorf("docs/runbook.md does not name %s", a.Alert)
		}
	}
}
