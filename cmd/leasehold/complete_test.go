package main

import (
	"strings"
	"testing"
	"testing/synctest"

	"github.com/leasehold-go/leasehold/dsync"
)

// Keys that make sense as an argument are completed, and nothing is written for it.
func TestCompletion(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newScene(t)
		s.allKinds()
		s.acquire(claim("l:b", "a.20", dsync.KindMutex, 1, 1))
		s.acquire(claim("l b", "a.21", dsync.KindMutex, 1, 1))
		before := s.Counts()
		for _, c := range []struct {
			args []string
			want string
		}{
			{[]string{"status", ""}, "done elected free l:b lapsed lease once rw sem :4"},
			{[]string{"status", "l"}, "l:b lapsed lease :4"},
			{[]string{"status", "rw", ""}, ":4"},
			{[]string{"watch", "rw", "se"}, "sem :4"},
			{[]string{"break", "--timeout", "1m", ""}, "elected l:b lease once rw sem :4"},
			{[]string{"members", ""}, "elected :4"},
			{[]string{"members", "elected", ""}, ":4"},
			{[]string{"run", ""}, "free l:b lapsed lease :4"},
			{[]string{"run", "--try", "le"}, "lease :4"},
			{[]string{"run", "free", "--", ""}, ":0"},
			{[]string{"elect", ""}, "elected :4"},
			{[]string{"elect", "elected", "--", "e"}, ":0"},
		} {
			got := command(t, s.Memory, append([]string{"__complete"}, c.args...)...)
			if words := strings.Join(strings.Fields(got.out), " "); got.status != 0 || words != c.want {
				t.Errorf("%q: %+v, want %q", c.args, got, c.want)
			}
		}
		s.wrote(before)
	})
}

// Where there is no server, nothing is completed: no error is printed among the
// completions, nor are files offered for keys.
func TestCompletionWithoutServer(t *testing.T) {
	for _, uri := range []string{"", "mongodb://127.0.0.1:9/"} {
		got := command(t, nil, "__complete", "--uri", uri, "--connect-timeout", "100ms", "status", "")
		if got.status != 0 || got.out != ":1\n" {
			t.Errorf("%q: %+v, want the directive for an error alone", uri, got)
		}
	}
}
