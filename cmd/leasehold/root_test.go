package main

import (
	"regexp"
	"runtime"
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

// Too few or too many arguments: what is right, and where to read on.
func TestWrongArguments(t *testing.T) {
	for _, c := range []struct {
		args []string
		want string
	}{
		{[]string{"break"}, "leasehold: break takes one KEY and nothing else, not 0 arguments; see leasehold break --help\n"},
		{[]string{"break", "a", "b"}, "leasehold: break takes one KEY and nothing else, not 2 arguments; see leasehold break --help\n"},
		{[]string{"status", "a", "b"}, "leasehold: status takes one PREFIX at most and nothing else, not 2 arguments; see leasehold status --help\n"},
		{[]string{"members", "a", "b"}, "leasehold: members takes one NAME at most and nothing else, not 2 arguments; see leasehold members --help\n"},
		{[]string{"clock", "a"}, "leasehold: clock takes flags and nothing else, not 1 arguments; see leasehold clock --help\n"},
		{[]string{"man"}, "leasehold: man takes one DIR and nothing else, not 0 arguments; see leasehold man --help\n"},
	} {
		if got := command(t, nil, c.args...); got != (result{exitUsage, "", c.want}) {
			t.Errorf("%q: %+v, want %q", c.args, got, c.want)
		}
	}
}

func TestVersion(t *testing.T) {
	got := command(t, nil, "--version")
	want := regexp.MustCompile(`^leasehold \S+ \(` + regexp.QuoteMeta(runtime.Version()) + `, \w+/\w+\)\n$`)
	if got.status != 0 || got.err != "" || !want.MatchString(got.out) {
		t.Errorf("%+v, want the output %q", got, want)
	}
}
