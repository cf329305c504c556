package integration_test

import (
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/leasehold-go/leasehold/integration/internal/history"
)

// judge checks the history. If the test has failed or -nemesis.dir is set, it stores the history so that people can
// inspect it.
func (n *nemesis) judge(took time.Duration) {
	t := n.t
	h, err := history.Read(n.dir)
	if err != nil {
		t.Fatal(err)
	}
	found := history.Check(h, n.ttl/10, n.room.Skew)
	for _, v := range found {
		t.Error(v)
	}
	table := n.table(h, took, len(found))
	t.Log("\n" + table)
	lab.Note(t, "seed %d, %v: %s", n.seed, took.Round(time.Second), n.summary(h, len(found)))

	dir := *nemesisDir
	if dir == "" {
		if !t.Failed() {
			return
		}
		if dir, err = os.MkdirTemp("", "leasehold-nemesis-"); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	base := filepath.Join(dir, fmt.Sprintf("nemesis-%s-%d", n.name, n.seed))
	files := map[string]func(io.Writer) error{
		".jsonl": h.Write,
		".html":  func(w io.Writer) error { return h.Page(w, n.ttl/10, found) },
		".txt":   func(w io.Writer) error { _, err := io.WriteString(w, table); return err },
	}
	for suffix, write := range files {
		if err := writeFile(base+suffix, write); err != nil {
			t.Error(err)
		}
	}
	t.Logf("%s.html, .jsonl and .txt", base)
}

func writeFile(name string, write func(io.Writer) error) error {
	f, err := os.Create(name)
	if err != nil {
		return err
	}
	return errors.Join(write(f), f.Close())
}

// faults returns the number of faults. A message that a lossy link did not pass unchanged counts as a fault.
func (n *nemesis) faults() int {
	sum := int(n.messages.Load())
	for _, c := range n.counts {
		sum += c
	}
	return sum
}

func (n *nemesis) summary(h *history.History, violations int) string {
	c := h.Counts()
	return fmt.Sprintf("%d faults, %d calls, %d grants, %d lost, %d violations", n.faults(), c.Calls, c.Grants, c.Lost, violations)
}

// table returns a table of what the clients did and what happened to them.
func (n *nemesis) table(h *history.History, took time.Duration, violations int) string {
	var b strings.Builder
	w := tabwriter.NewWriter(&b, 0, 0, 2, ' ', 0)
	row := func(what string, n any) { fmt.Fprintf(w, "%s\t%v\n", what, n) }
	row("server", n.room.Server)
	row("seed", n.seed)
	row("lasted", took.Round(time.Second))
	for _, what := range slices.Sorted(maps.Keys(n.counts)) {
		row("fault: "+what, n.counts[what])
	}
	row("fault: message lost or late", n.messages.Load())
	row("faults", n.faults())
	row("rollbacks", n.rollbacks)
	c := h.Counts()
	row("calls that request", c.Calls)
	row("grants", c.Grants)
	row("hand-offs to another process", c.HandOffs)
	row("leaderships transferred", c.Transfers)
	row("holds lost", c.Lost)
	row("fenced writes", c.Writes)
	row("fenced writes refused", c.Refused)
	row("violations", violations)
	w.Flush()
	return b.String()
}
