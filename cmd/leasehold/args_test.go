package main

import "testing"

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
