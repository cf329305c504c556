package main

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/leasehold-go/leasehold/dsync/driver"
	"github.com/spf13/cobra"
	"github.com/spf13/cobra/doc"
	"github.com/spf13/pflag"
)

func TestUsageIsOneLine(t *testing.T) {
	for _, c := range []struct {
		args []string
		want string
	}{
		{[]string{"frobnicate"}, `unknown command "frobnicate"; see leasehold --help`},
		{[]string{"completio"}, `unknown command "completio"; did you mean completion?`},
		{[]string{"help", "frobnicate"}, `unknown command "frobnicate"; see leasehold --help`},
		{[]string{"help", "rum"}, `unknown command "rum"; did you mean run?`},
		{[]string{"help", "run", "frobnicate"}, `there is no help on "run frobnicate"; see leasehold run --help`},
		{[]string{"completion", "tcsh"}, `completion has no script for "tcsh", only for bash, zsh, fish and powershell`},
		{[]string{"completion"}, "completion takes one of the shells bash, zsh, fish and powershell and nothing else, not 0 arguments; see leasehold completion --help"},
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
		{[]string{"help", "exit-status"}, "118  nothing"},
		{[]string{"help"}, "--collection"},
		{[]string{"help", "run"}, "--at-least duration"},
		{[]string{"help", "completion", "bash"}, "bash"},
		{[]string{"completion", "--help"}, "bash"},
		{[]string{"completion", "powershell"}, "Register-ArgumentCompleter"},
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

// If the number of arguments is wrong, the error says what would be right, and where to read more.
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

// Errors about flags say what is wrong and what would be right.
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
		{[]string{"clock", "--samples", "1k"}, `--samples is "1k"; it must be a number`},
		{[]string{"status", "--json=maybe"}, `--json is "maybe"; it must be true or false`},
	} {
		if got := command(t, nil, c.args...); got != (result{exitUsage, "", "leasehold: " + c.want + "\n"}) {
			t.Errorf("%q: %+v, want %q", c.args, got, c.want)
		}
	}
}

// Every command refuses negative durations, even for flags that it does not use.
func TestNegativeDurations(t *testing.T) {
	checked := 0
	for _, c := range newRoot(&app{}).Commands() {
		if c.Hidden || c.RunE == nil {
			continue
		}
		args := map[string][]string{"break": {"k"}, "forget": {"k"}, "completion": {"tcsh"}, "man": {t.TempDir()}, "run": {"k", "--", "true"}, "elect": {"k", "--", "true"}, "once": {"k", "--", "true"}}[c.Name()]
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
		t.Errorf("%d flags were checked, want at least 20", checked)
	}
}

// Completion offers the keys that make sense as an argument, and writes nothing.
func TestCompletion(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newScene(t)
		s.allKinds()
		s.acquire(claim("l:b", "a.20", driver.KindMutex, 1, 1))
		s.acquire(claim("l b", "a.21", driver.KindMutex, 1, 1))
		before := s.Counts()
		for _, c := range []struct {
			args []string
			want string
		}{
			{[]string{"status", ""}, "done elected free l:b lapsed lease nightly once rw sem :4"},
			{[]string{"status", "l"}, "l:b lapsed lease :4"},
			{[]string{"status", "rw", ""}, ":4"},
			{[]string{"break", "--timeout", "1m", ""}, "elected l:b lease nightly once rw sem :4"},
			{[]string{"members", ""}, "elected :4"},
			{[]string{"members", "elected", ""}, ":4"},
			{[]string{"run", ""}, "free l:b lapsed lease nightly rw sem :4"},
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

// Without a server, completion offers nothing, not even file names.
func TestCompletionWithoutServer(t *testing.T) {
	for _, uri := range []string{"", "mongodb://127.0.0.1:9/"} {
		got := command(t, nil, "__complete", "--uri", uri, "--connect-timeout", "100ms", "status", "")
		if got.status != 0 || got.out != ":1\n" {
			t.Errorf("%q: %+v, want only the directive for an error", uri, got)
		}
	}
}

// Every command has a manual page with the sections that cobra does not know, and tables keep their
// lines.
func TestMan(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "new")
	if got := command(t, nil, "man", dir); got != (result{}) {
		t.Fatalf("leasehold man: %+v", got)
	}
	for _, c := range newRoot(&app{}).Commands() {
		if !c.IsAvailableCommand() {
			continue // hidden, or only a help topic
		}
		page, err := os.ReadFile(filepath.Join(dir, "leasehold-"+c.Name()+".1"))
		if err != nil {
			t.Error(err)
			continue
		}
		for _, want := range []string{
			"\n.SH EXIT STATUS\n.EX\nrun, once and elect exit with", "\n  115  unreachable: no server answers",
			"\n.SH ENVIRONMENT\n.EX\nleasehold reads", "\n  MONGODB_URI  ", "\n  LEASEHOLD_TOKEN  ", "\n  LEASEHOLD_TICK   ",
		} {
			if strings.Count(string(page), want) != 1 {
				t.Errorf("%s: found %d occurrences of %q, want one", c.Name(), strings.Count(string(page), want), want)
			}
		}
		if c.Short == "" || !strings.Contains(string(page), ".SH SYNOPSIS") {
			t.Errorf("%s: the page with the summary %q has %d bytes", c.Name(), c.Short, len(page))
		}
	}
	if strings.Contains(exitHelp+environmentHelp, `\`) || strings.Contains(exitHelp+environmentHelp, "\n.") {
		t.Error("the texts contain a backslash or a line that begins with a dot, which roff takes for a command")
	}
	page, _ := os.ReadFile(filepath.Join(dir, "leasehold-status.1"))
	if !strings.Contains(string(page), ".EX\nkey, kind       kind is") {
		t.Errorf("the table's lines are not kept:\n%s", page)
	}
	page, _ = os.ReadFile(filepath.Join(dir, "leasehold-run.1"))
	if !strings.Contains(string(page), "\\fB--grace\\fP=TTL/10\n") {
		t.Errorf("the default of --grace is missing:\n%s", page)
	}
	file := filepath.Join(dir, "leasehold.1")
	got := command(t, nil, "man", filepath.Join(file, "sub"))
	if got.status != exitFailed || strings.Count(got.err, "\n") != 1 {
		t.Errorf("with a directory that can't be created: %+v", got)
	}
}

// The pages are byte for byte those of cobra/doc, with two sections of their own: see manPage.
func TestManIsCobras(t *testing.T) {
	t.Setenv("SOURCE_DATE_EPOCH", "1700000000")
	var pages func(*cobra.Command)
	pages = func(c *cobra.Command) {
		for _, sub := range c.Commands() {
			if sub.IsAvailableCommand() {
				pages(sub)
			}
		}
		got, err := manPage(c)
		noErr(t, err)
		own := ".SH EXIT STATUS\n.EX\n" + exitHelp + ".EE\n\n.SH ENVIRONMENT\n.EX\n" + environmentHelp + ".EE\n\n"
		c.DisableAutoGenTag = true                                     // no date
		c.Long = strings.ReplaceAll("\n"+c.Long, "\n  ", "\n    ")[1:] // the Markdown that cobra expects of a table
		var want bytes.Buffer
		noErr(t, doc.GenMan(c, &doc.GenManHeader{Section: "1", Manual: "Leasehold", Source: "leasehold"}, &want))
		if page := strings.Replace(string(got), own, "", 1); page != want.String() {
			t.Errorf("%s: the page is not cobra's:\n%s\nwant\n%s", c.CommandPath(), page, want.String())
		}
	}
	pages(newRoot(&app{}))
}

// Neither cobra/doc nor the parsers that it needs are in the program: their initialization would double the memory that
// is allocated before main.
func TestProgramHasNoParsers(t *testing.T) {
	out, err := exec.Command("go", "list", "-deps", ".").Output()
	if err != nil {
		t.Skip(err) // no go command
	}
	for _, p := range strings.Fields(string(out)) {
		if p == "github.com/spf13/cobra/doc" || strings.Contains(p, "yaml") || strings.Contains(p, "blackfriday") {
			t.Errorf("package %s is in the program", p)
		}
	}
}
