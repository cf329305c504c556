package otel_test

import (
	"maps"
	"regexp"
	"slices"
	"strings"
	"testing"
	"testing/synctest"

	"go.opentelemetry.io/otel/attribute"

	"github.com/leasehold-go/leasehold/dsync/dsynctest"
	"github.com/leasehold-go/leasehold/leader"
	dsyncotel "github.com/leasehold-go/leasehold/otel"
)

// Names and units follow "Naming" and "Metrics" of OpenTelemetry's semantic conventions.
func TestNamesFollowTheConventions(t *testing.T) {
	name := regexp.MustCompile(`^leasehold(\.[a-z][a-z0-9]*(_[a-z0-9]+)*)+$`)
	unit := regexp.MustCompile(`^(s|\{[a-z]+\})$`) // UCUM: seconds, or a name for what is counted
	names := spanAttributes(t)
	for _, m := range everything(t) {
		attrs, kind, _ := attributes(t, m)
		for _, a := range attrs {
			names[a] = true
		}
		if !name.MatchString(m.Name) {
			t.Errorf("%q is not a lower-case name in the namespace leasehold", m.Name)
		}
		if !unit.MatchString(m.Unit) || strings.HasSuffix(m.Unit, "s}") {
			t.Errorf("%s has the unit %q, want s or the singular of what is counted, in braces", m.Name, m.Unit)
		}
		last := m.Name[strings.LastIndexByte(m.Name, '.')+1:]
		if plural := strings.HasSuffix(last, "s"); plural != (kind == "counter") {
			t.Errorf("%s is a %s, and its name is plural: %t; only names of counters are plural", m.Name, kind, plural)
		}
		if slices.Contains([]string{"total", "seconds", "count"}, last) {
			t.Errorf("%s ends in %q, which Prometheus adds itself, or takes for a part of a histogram", m.Name, last)
		}
		for component := range strings.SplitSeq(strings.TrimSuffix(m.Name, last), ".") {
			if strings.HasSuffix(component, "s") {
				t.Errorf("%s has the namespace %q; namespaces are singular", m.Name, component)
			}
		}
	}
	delete(names, "error.type") // error.type is defined by the conventions
	all := slices.Sorted(maps.Keys(names))
	for i, a := range all {
		if !name.MatchString(a) {
			t.Errorf("the attribute %q is not a lower-case name in the namespace leasehold", a)
		}
		if i > 0 && strings.HasPrefix(a, all[i-1]+".") {
			t.Errorf("the attribute %q is also the namespace of %q", all[i-1], a)
		}
	}
}

// spanAttributes returns the names of the attributes that spans have.
func spanAttributes(t *testing.T) map[string]bool {
	names := make(map[string]bool)
	synctest.Test(t, func(t *testing.T) {
		r := record(t, dsyncotel.Options{})
		s := r.session(dsynctest.NewMemory())
		e, err := leader.New(s, "e", &leader.Options{Hooks: r.LeaderHooks(nil)})
		noErr(t, err)
		if _, err := e.Campaign(background); err != nil {
			t.Fatal(err)
		}
		e.Resign(background)
		broken(s)
		synctest.Wait()
		for _, span := range r.spans.Ended() {
			set := attribute.NewSet(span.Attributes()...)
			for _, a := range set.ToSlice() {
				names[string(a.Key)] = true
			}
		}
	})
	if len(names) < 6 {
		t.Fatalf("spans have the attributes %v, want at least 6", names)
	}
	return names
}
