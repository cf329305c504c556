package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

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
