package main

import (
	"cmp"
	"fmt"
	"os"
	"runtime"
	"strings"
	"time"
)

// markdown is the whole report.
func (r *report) markdown() string {
	var b strings.Builder
	b.WriteString(r.ratios())
	b.WriteString("\nThe figures behind them, each by that of its unit:\n\n")
	r.table(&b, func(c cell) string { return c.raw })
	fmt.Fprintf(&b, "\nIt took %v.\n", r.took.Round(time.Second))
	return b.String()
}

// ratios is what the README has.
func (r *report) ratios() string {
	var b strings.Builder
	r.table(&b, func(c cell) string { return c.ratio })
	fmt.Fprintf(&b, "\n%s. %s, %s/%s, %d CPUs, everything on one machine, the servers' data in %s.\n",
		r.here(), runtime.Version(), runtime.GOOS, runtime.GOARCH, runtime.NumCPU(), os.TempDir())
	b.WriteString(note)
	return b.String()
}

const note = `A raw write is one majority ` + "`update {$inc}`" + ` of one document by RunCommand of the same
driver; figures are ratios of medians (p99: of 99th percentiles) of times that were taken in turn,
in one loop, those of peers by the unit of the first column. Not alike: mongo-lock's locks
(square/mongo-lock on the server of the first column, with its indexes and majority writes)
have no lease, which is its default, and no token; etcd syncs every write; Redis
syncs its log once a second, and its library (redislock) tries again every 100 ms, as in
its example; PostgreSQL's advisory locks are in memory only and have neither a lease
nor a token. "Processes" of hand-offs and contention are sessions with clients of their own
in one process; those that are killed are real ones.
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
	b.WriteString("| | by |")
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
