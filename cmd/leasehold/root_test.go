package main

import (
	"strings"
	"testing"
)

func TestUsageIsOneLine(t *testing.T) {
	for _, c := range []struct {
		args []string
		want string
	}{
		{[]string{"frobnicate"}, `unknown command "frobnicate"; see leasehold --help`},
		{[]string{"completio"}, `unknown command "completio"; did you mean completion?`},
		{[]string{"--frobnicate"}, "unknown flag: --frobnicate"},
		{[]string{"--ttl", "soon"}, "invalid argument \"soon\" for \"--ttl\" flag"},
	} {
		got := command(t, nil, c.args...)
		if got.status != exitUsage {
			t.Errorf("%q: exit status %d, want %d", c.args, got.status, exitUsage)
		}
		if !strings.HasPrefix(got.err, "leasehold: "+c.want) || strings.Count(got.err, "\n") != 1 {
			t.Errorf("%q: %q on standard error, want one line that begins with %q", c.args, got.err, "leasehold: "+c.want)
		}
		if got.out != "" {
			t.Errorf("%q: %q on standard output, want nothing", c.args, got.out)
		}
	}
}

func TestHelpAndCompletion(t *testing.T) {
	for _, c := range []struct {
		args []string
		want string
	}{
		{[]string{}, "--collection"},
		{[]string{"--help"}, "--collection"},
		{[]string{"help", "exit-status"}, "112  held"},
		{[]string{"completion", "bash"}, "bash completion V2 for leasehold"},
		{[]string{"completion", "zsh"}, "#compdef leasehold"},
		{[]string{"completion", "fish"}, "fish completion for leasehold"},
	} {
		got := command(t, nil, c.args...)
		if got.status != 0 || got.err != "" || !strings.Contains(got.out, c.want) {
			t.Errorf("%q: exit status %d, %q on standard error, want %q in\n%s", c.args, got.status, got.err, c.want, got.out)
		}
	}
}
