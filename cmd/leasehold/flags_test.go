package main

import (
	"testing"

	"github.com/spf13/pflag"
)

// The errors about flags say what is wrong, and what would be right.
func TestFlagErrors(t *testing.T) {
	for _, c := range []struct {
		args []string
		want string
	}{
		{[]string{"--frobnicate"}, "leasehold has no flag --frobnicate; see leasehold --help"},
		{[]string{"status", "--frobnicate"}, "leasehold status has no flag --frobnicate; see leasehold status --help"},
		{[]string{"status", "-xyz"}, "leasehold status has no flag -x; see leasehold status --help"},
		{[]string{"status", "--=x"}, "bad flag syntax: --=x; see leasehold status --help"},
		{[]string{"break", "k", "--timeout"}, "--timeout needs a value; see leasehold break --help"},
		{[]string{"--ttl", "soon"}, `--ttl is "soon"; it must be a duration, such as 30s or 1m30s`},
		{[]string{"bench", "--count", "1k"}, `--count is "1k"; it must be a number`},
		{[]string{"status", "--json=maybe"}, `--json is "maybe"; it must be true or false`},
	} {
		if got := command(t, nil, c.args...); got != (result{exitUsage, "", "leasehold: " + c.want + "\n"}) {
			t.Errorf("%q: %+v, want %q", c.args, got, c.want)
		}
	}
}

// No command takes a negative duration, be it that the flag has no meaning for it.
func TestNegativeDurations(t *testing.T) {
	checked := 0
	for _, c := range newRoot(&app{}).Commands() {
		if c.Hidden || c.RunE == nil {
			continue
		}
		args := map[string][]string{"break": {"k"}, "man": {t.TempDir()}, "run": {"k", "--", "true"}, "elect": {"k", "--", "true"}}[c.Name()]
		check := func(f *pflag.Flag) {
			if f.Value.Type() != "duration" {
				return
			}
			checked++
			want := "leasehold: --" + f.Name + " is -1ns; it must not be negative\n"
			if got := command(t, nil, append([]string{c.Name(), "--" + f.Name, "-1ns"}, args...)...); got != (result{exitUsage, "", want}) {
				t.Errorf("%s: %+v, want %q", c.Name(), got, want)
			}
		}
		c.InheritedFlags().VisitAll(check)
		c.LocalNonPersistentFlags().VisitAll(check)
	}
	if checked < 20 {
		t.Errorf("%d flags were checked, want all of them", checked)
	}
}
