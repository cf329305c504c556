package main

import (
	"cmp"
	"fmt"
	"os"
	"runtime"
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

// ratios returns the table for the README, and the note below it.
func (r *report) ratios() string {
	var b strings.Builder
	r.table(&b, func(c cell) string { return c.ratio })
	fmt.Fprintf(&b, "\n%s. %s, %s/%s, %d CPUs, everything on one machine, the servers' data in %s.\n",
		r.here(), runtime.Version(), runtime.GOOS, runtime.GOARCH, runtime.NumCPU(), os.TempDir())
	b.WriteString(note)
	return b.String()
}

const note = `A raw write is one majority ` + "`update {$inc}`" + ` of one document by RunCommand of the same driver.
Figures are ratios of medians (p99: of 99th percentiles) of operations that ran in turn in one loop.
Those of other systems are relative to raw writes on the one-member set. The systems promise
different things. The locks of mongo-lock (square/mongo-lock on the one-member set, with its
indexes and majority writes) have no token and, by default, no lease. etcd syncs every write. Redis
syncs its log once a second, and its library (redislock) retries every 100 ms, as in its example.
PostgreSQL's advisory locks are only in memory and have neither a lease nor a token. In hand-offs
and contention, "processes" are sessions in one process, each with its own client; the killed
processes are real ones.
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

func (r *report) table(b *strings.Builder, text func(cell) string) {
	b.WriteString("| | relative to |")
	for c := range columns {
		fmt.Fprintf(b, " %s |", r.lab.head(c))
	}
	b.WriteString("\n|---|---|")
	b.WriteString(strings.Repeat("---|", int(columns)))
	b.WriteString("\n")
	for _, row := range r.rows {
		fmt.Fprintf(b, "| %s | %s |", row.name, row.unit)
		for _, c := range row.cells {
			fmt.Fprintf(b, " %s |", cmp.Or(strings.ReplaceAll(text(c), "\n", " "), "–"))
		}
		b.WriteString("\n")
	}
}

// The table in the README is between these lines.
const (
	tableBegin = "<!-- bench:begin -->\n"
	tableEnd   = "<!-- bench:end -->\n"
)

// replaceTable replaces the table in the file.
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
