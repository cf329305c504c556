package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"regexp"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/leasehold-go/leasehold/dsync/driver"
	"github.com/leasehold-go/leasehold/dsync/dsynctest"
)

// on runs a command line whose standard output is the display d.
func on(ctx context.Context, d display, out io.Writer, store *dsynctest.Memory, args ...string) int {
	a := &app{stdin: strings.NewReader(""), stdout: out, stderr: out, getenv: func(string) string { return "" }, store: store, frame: &d}
	return a.main(ctx, args)
}

// No line is wider than the terminal. If not all columns fit, the most important ones are shown;
// --wide shows all.
func TestTablesFitTheTerminal(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newScene(t)
		s.allKinds()
		s.acquire(claim("customers/4711/invoices/export/a-key-that-is-long/2026-11", "a.30", driver.KindMutex, 1, 1))
		s.acquire(claim("顧客/請求書/顧客/請求書/顧客/請求書/顧客/請求書/顧客/請求書/顧客/請求書", "a.31", driver.KindMutex, 1, 1))
		for _, args := range [][]string{{"status"}, {"members"}, {"members", "elected"}} {
			for width := 1; width < 220; width++ {
				var out bytes.Buffer
				if status := on(t.Context(), display{width: width}, &out, s.Memory, args...); status != 0 {
					t.Fatalf("%q: exit status %d", args, status)
				}
				for line := range strings.Lines(out.String()) {
					if n := textWidth(strings.TrimSuffix(line, "\n")); n > width {
						t.Fatalf("%q: a line is %d columns wide on a terminal of %d: %q", args, n, width, line)
					}
				}
			}
			var piped, wide bytes.Buffer
			on(t.Context(), display{}, &piped, s.Memory, args...)
			on(t.Context(), display{width: 80}, &wide, s.Memory, append(args, "--wide")...)
			if piped.String() != wide.String() || strings.Contains(piped.String(), "…t") {
				t.Errorf("%q: --wide prints\n%s\nwant the same as in a pipe,\n%s", args, wide.String(), piped.String())
			}
		}
		for _, c := range []struct {
			width int
			file  string
		}{{80, "status-80.txt"}, {120, "status-120.txt"}, {40, "status-40.txt"}} {
			var out bytes.Buffer
			on(t.Context(), display{width: c.width}, &out, s.Memory, "status")
			golden(t, c.file, out.String())
		}
		var out bytes.Buffer
		on(t.Context(), display{width: 80}, &out, s.Memory, "members")
		golden(t, "members-80.txt", out.String())
	})
}

var sgr = regexp.MustCompile("\x1b\\[[0-9]*m")

// Without its escape sequences, coloured output equals plain output. Held keys differ in colour
// from lapsed ones.
func TestColours(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newScene(t)
		s.allKinds()
		for _, args := range [][]string{{"status"}, {"members", "elected"}} {
			var plain, coloured bytes.Buffer
			on(t.Context(), display{width: 100}, &plain, s.Memory, args...)
			on(t.Context(), display{width: 100, colours: true}, &coloured, s.Memory, args...)
			if got := sgr.ReplaceAllString(coloured.String(), ""); got != plain.String() {
				t.Errorf("%q: without its colours the output is\n%s\nwant\n%s", args, got, plain.String())
			}
			if strings.Contains(plain.String(), "\x1b") {
				t.Errorf("%q: escape sequences in output without colours:\n%q", args, plain.String())
			}
			for text, s := range map[string]style{"held": good, "lapsed": bad, "waits #1": warning, "free": faint, "leader": good} {
				if strings.Contains(plain.String(), text+" ") && !strings.Contains(coloured.String(), "\x1b["+string(s)+"m"+text+"\x1b[0m") {
					t.Errorf("%q: %q is not in style %s:\n%q", args, text, s, coloured.String())
				}
			}
		}
	})
}

// In a pipe, only COLUMNS limits the width, and nothing has colours.
func TestDisplayOfAPipe(t *testing.T) {
	for columns, want := range map[string]display{"": {}, "100": {width: 100}, "-1": {}, "x": {}} {
		a := &app{stdout: new(bytes.Buffer), getenv: func(name string) string {
			return map[string]string{"COLUMNS": columns, "TERM": "xterm"}[name]
		}}
		if got := a.display(); got != want {
			t.Errorf("COLUMNS=%s: %+v, want %+v", columns, got, want)
		}
	}
}

// A watch overwrites the previous frame, and never prints more than fits on the terminal. It continues when keys are
// created, and exits with 0 when it is interrupted.
func TestWatch(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := newScene(t)
		before := s.Counts()
		ctx, cancel := context.WithCancel(t.Context())
		out := new(screen)
		end := make(chan int)
		go func() {
			end <- on(ctx, display{width: 60, height: 10, cursor: true}, out, s.Memory, "status", "k", "--watch", "--interval", "5s")
		}()
		time.Sleep(time.Second)
		if got := out.take(); !strings.HasPrefix(got, "\x1b[2J\x1b[Hleasehold status k, every 5s, 00:00:00 UTC\x1b[K\n") || !strings.Contains(got, "no such key") {
			t.Errorf("the first frame is %q", got)
		}
		s.wrote(before)
		for i := range 20 {
			s.acquire(claim(fmt.Sprintf("k%02d", i), fmt.Sprintf("a.%d", i), driver.KindMutex, 1, 1))
		}
		time.Sleep(5 * time.Second)
		got := out.take()
		if !strings.HasPrefix(got, "\x1b[Hleasehold") || !strings.Contains(got, "k00 ") || strings.Count(got, "\n") != 9 ||
			!strings.Contains(got, "and 15 more lines\x1b[K\n\x1b[J") {
			t.Errorf("the next frame is %q", got)
		}
		for line := range strings.Lines(got) {
			if n := textWidth(strings.NewReplacer("\x1b[H", "", "\x1b[K", "", "\x1b[J", "").Replace(strings.TrimSuffix(line, "\n"))); n > 60 {
				t.Errorf("the watch printed a line of %d columns: %q", n, line)
			}
		}
		cancel()
		if status := <-end; status != 0 {
			t.Errorf("the interrupted watch ended with exit status %d, want 0", status)
		}
	})
}

// In a pipe, a watch prints its frames one below the other; with --json, it prints one object per
// line.
func TestWatchInAPipe(t *testing.T) {
	for _, c := range []struct {
		flag, want string
	}{{"--wide", "KEY "}, {"--json", `{"key":"k",`}} {
		bubble(t, func(t *testing.T) {
			s := newScene(t)
			s.acquire(claim("k", "a.1", driver.KindMutex, 1, 1))
			ctx, cancel := context.WithCancel(t.Context())
			out, end := start(ctx, s.Memory, "status", c.flag, "--watch")
			time.Sleep(5 * time.Second) // readings after 0, 2 and 4 s
			got := out.take()
			if strings.Count(got, c.want) != 3 || strings.Contains(got, "\x1b") || c.flag == "--json" && strings.Contains(got, "\n\n") {
				t.Errorf("%s: the watch printed %q, want three frames", c.flag, got)
			}
			cancel()
			if got := <-end; got.status != 0 || got.err != "" {
				t.Errorf("the watch in a pipe: %+v, want status 0", got)
			}
		})
	}
}

// If the first reading fails, the watch ends with the exit status of that error.
func TestWatchWithoutServer(t *testing.T) {
	got := command(t, nil, "status", "--watch", "--uri", "mongodb://127.0.0.1:9/", "--connect-timeout", "100ms")
	if got.status != exitUnreachable || strings.Count(got.err, "\n") != 1 {
		t.Errorf("the watch without a server: %+v, want status %d", got, exitUnreachable)
	}
	for _, args := range [][]string{{"--interval", "1s"}, {"--watch", "--interval", "1ms"}} {
		if got := command(t, nil, append([]string{"status"}, args...)...); got.status != exitUsage {
			t.Errorf("%q: %+v, want status %d", args, got, exitUsage)
		}
	}
}

func TestAge(t *testing.T) {
	for d, want := range map[time.Duration]string{
		-time.Second: "0.0s", 1234 * time.Millisecond: "1.2s", 9999 * time.Millisecond: "9.9s", 13 * time.Second: "13s", 119 * time.Second: "119s",
		587 * time.Second: "9m47s", 47*time.Hour + 59*time.Minute: "47h59m", 50 * time.Hour: "2d2h", 400 * 24 * time.Hour: "400d",
	} {
		if got := age(d); got != want {
			t.Errorf("%v is %q, want %q", d, got, want)
		}
	}
}

// break and forget print one object, which contains the key's status in the format of status
// --json.
func TestJSONOfBreakAndForget(t *testing.T) {
	type status struct {
		Key, Kind string
		Held      bool
		Sealed    bool
		Waiting   int
		Holders   []map[string]any
	}
	type answer struct {
		Key       string
		Took      *float64 `json:"took_ms"`
		Forgotten *bool
		Former    []struct{ Session, Host, Outcome, Since string }
		Status    status
	}
	for _, c := range []struct {
		name     string
		args     []string
		status   int
		check    func(answer) bool
		released bool
	}{
		{"released", []string{"break", "k"}, 0, func(a answer) bool {
			return a.Key == "k" && *a.Took > 0 && len(a.Former) == 1 && a.Former[0].Outcome == "released" && a.Former[0].Host == "here" &&
				a.Former[0].Since == "2000-01-01T00:00:00.000Z" && a.Status.Key == "k" && !a.Status.Held
		}, true},
		{"holds", []string{"break", "k", "--timeout", "1ms"}, exitTimeout, func(a answer) bool {
			return len(a.Former) == 1 && a.Former[0].Outcome == "holds" && a.Status.Held && len(a.Status.Holders) == 1
		}, false},
		{"expired", []string{"break", "dead"}, 0, func(a answer) bool {
			return len(a.Former) == 1 && a.Former[0].Session == "c" && a.Former[0].Outcome == "expired" && a.Status.Holders != nil
		}, false},
		{"free", []string{"break", "once"}, 0, func(a answer) bool {
			return *a.Took == 0 && a.Former != nil && len(a.Former) == 0 && a.Status.Sealed
		}, false},
		{"forgotten", []string{"forget", "once"}, 0, func(a answer) bool {
			return a.Key == "once" && *a.Forgotten && a.Status.Sealed && a.Status.Kind == "once"
		}, false},
		{"not there", []string{"forget", "x"}, 0, func(a answer) bool {
			return a.Key == "x" && !*a.Forgotten && a.Status.Kind == ""
		}, false},
	} {
		inBubble(t, c.name, func(t *testing.T) {
			s := newScene(t)
			holder, h := holding(t, s.Memory, "k")
			defer holder.Close(t.Context())
			s.acquire(claim("dead", "c.1", driver.KindMutex, 1, 1))
			s.release(s.acquire(claim("once", "a.1", driver.KindOnce, 1, 1)), driver.Release{Seal: 1})
			time.Sleep(time.Second)
			if c.released {
				go func() {
					<-h.Lost()
					time.Sleep(time.Millisecond)
					h.Release(t.Context())
				}()
			}
			got := command(t, s.Memory, slices.Concat(c.args, []string{"--json"})...)
			var a answer
			if err := json.Unmarshal([]byte(got.out), &a); err != nil || got.status != c.status || !c.check(a) {
				t.Errorf("got %+v, %v, want status %d", got, err, c.status)
			}
		})
	}
}
