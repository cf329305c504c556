package main

import (
	"cmp"
	"fmt"
	"os"
	"runtime"
	"slices"
	"strings"
	"time"
)

// markdown returns the whole report.
func (r *report) markdown() string {
	var b strings.Builder
	b.WriteString(r.ratios())
	b.WriteString("\nThe times behind the ratios, each followed by that of its unit:\n\n")
	r.table(&b, func(c cell) string { return c.raw })
	fmt.Fprintf(&b, "\nThe report took %v.\n", r.took.Round(time.Second))
	return b.String()
}

// ratios returns the tables for the README, and the note below them.
func (r *report) ratios() string {
	var b strings.Builder
	r.table(&b, func(c cell) string { return c.ratio })
	fmt.Fprintf(&b, "\n%s. %s, %s/%s, %d CPUs, everything on one machine, the servers' data in %s.\n",
		r.here(), runtime.Version(), runtime.GOOS, runtime.GOARCH, runtime.NumCPU(), os.TempDir())
	b.WriteString(note)
	return b.String()
}

const note = `A raw write is one majority ` + "`update {$inc}`" + ` of one document. Figures are ratios of medians (p99: of 99th
percentiles) of operations that ran in turn in one loop; those of other systems are relative to raw writes on the
one-member set. mongo-lock has its indexes and majority writes; its locks have no token and, by default, no lease.
etcd syncs every write. Redis syncs its log once a second, and its library (redislock) retries every 100 ms.
PostgreSQL's advisory locks are in memory, without a lease or a token. In hand-offs and contention, "processes" are
sessions of one process, each with its own client.
`

func (r *report) here() string {
	var parts []string
	for c := range columns {
		if r.lab.here[c] {
			parts = append(parts, r.lab.about[c])
		} else {
			parts = append(parts, fmt.Sprintf("%s: not here (%s)", r.lab.head(c), r.lab.about[c]))
		}
	}
	return strings.Join(parts, "; ")
}

// table writes two tables: one with all columns, for the rows that compare them, and one with column one alone, for the
// other rows.
func (r *report) table(b *strings.Builder, text func(cell) string) {
	for _, part := range []struct {
		last column
		has  func(row) bool
	}{
		{columns - 1, row.compares},
		{one, func(row row) bool { return !row.compares() }},
	} {
		b.WriteString("| | relative to |")
		for c := range part.last + 1 {
			fmt.Fprintf(b, " %s |", r.lab.head(c))
		}
		b.WriteString("\n|---|---|")
		b.WriteString(strings.Repeat("---|", int(part.last)+1))
		b.WriteString("\n")
		for _, row := range r.rows {
			if !part.has(row) {
				continue
			}
			fmt.Fprintf(b, "| %s | %s |", row.name, row.unit)
			for _, c := range row.cells[:part.last+1] {
				fmt.Fprintf(b, " %s |", cmp.Or(strings.ReplaceAll(text(c), "\n", " "), "–"))
			}
			b.WriteString("\n")
		}
		if part.last != one {
			b.WriteString("\n")
		}
	}
}

// compares reports whether a column other than the first can have a figure.
func (r row) compares() bool {
	return slices.ContainsFunc(r.can, func(c column) bool { return c != one })
}

// The tables in the README are between these lines.
const (
	tableBegin = "<!-- bench:begin -->\n"
	tableEnd   = "<!-- bench:end -->\n"
)

// replaceTable replaces the text between tableBegin and tableEnd in the file at path.
func replaceTable(path, table string) error {
	text, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	before, rest, ok := strings.Cut(string(text), tableBegin)
	_, after, end := strings.Cut(rest, tableEnd)
	if !ok || !end {
		return fmt.Errorf("%s has no line %q followed by one %q", path, strings.TrimSpace(tableBegin), strings.TrimSpace(tableEnd))
	}
	return os.WriteFile(path, []byte(before+tableBegin+"\n"+table+"\n"+tableEnd+after), 0o644)
}
