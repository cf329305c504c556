package server

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"text/tabwriter"
	"time"
)

// A book records which suite ran on which server, and the result.
type book struct {
	mu     sync.Mutex
	suites []string // in the order of their first results
	cells  map[string]map[string]cell
	notes  []string
}

// nowhere stands for the server of a test that was skipped, or failed, before it had a
// server.
const nowhere = ""

// A cell is the result of a suite on a server.
type cell struct {
	outcome string // "ok", "skip", "FAIL"; "-" if the suite was not meant to run on the server
	why     string // the reason for "skip" and "-"
	took    time.Duration
}

func (c cell) String() string {
	switch {
	case c == cell{}:
		return ""
	case c.why != "":
		return c.outcome + " (" + c.why + ")"
	}
	return fmt.Sprintf("%s %.1fs", c.outcome, c.took.Seconds())
}

// put records the result of a suite on a server. A "skip" without a reason keeps the reason that
// an earlier call recorded.
func (b *book) put(suite, server string, c cell) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.cells == nil {
		b.cells = make(map[string]map[string]cell)
	}
	if b.cells[suite] == nil {
		b.cells[suite] = make(map[string]cell)
		b.suites = append(b.suites, suite)
	}
	if c.outcome == "skip" && c.why == "" {
		c.why = b.cells[suite][server].why
	}
	b.cells[suite][server] = c
}

func (b *book) note(line string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.notes = append(b.notes, line)
}

func (b *book) touched() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, cells := range b.cells {
		for server, c := range cells {
			if server != nowhere && (c.outcome == "ok" || c.outcome == "FAIL") {
				return true
			}
		}
	}
	return false
}

// table returns the table of suites and servers, and the measurements below it.
func (b *book) table(l *Lab) string {
	b.mu.Lock()
	defer b.mu.Unlock()
	var out strings.Builder
	fmt.Fprintf(&out, "seed %d\n\n", l.Seed)
	w := tabwriter.NewWriter(&out, 0, 0, 2, ' ', 0)
	for _, s := range l.servers {
		fmt.Fprintf(w, "%s\t%s\n", s.Name, s)
	}
	for _, why := range l.looked {
		fmt.Fprintf(w, "not here\t%s\n", why)
	}
	if l.err != nil {
		fmt.Fprintf(w, "failed\t%v\n", l.err)
	}
	w.Flush()

	if len(b.suites) > 0 {
		out.WriteString("\n")
		fmt.Fprint(w, "suite")
		for _, s := range l.servers {
			fmt.Fprintf(w, "\t%s", s.Name)
		}
		fmt.Fprintln(w)
		for _, suite := range b.suites {
			fmt.Fprint(w, suite)
			for _, s := range l.servers {
				fmt.Fprintf(w, "\t%v", b.cells[suite][s.Name])
			}
			if c, ok := b.cells[suite][nowhere]; ok {
				fmt.Fprintf(w, "\t%v", c)
			}
			fmt.Fprintln(w)
		}
		w.Flush()
	}
	if len(b.notes) > 0 {
		out.WriteString("\nmeasured\n")
		for _, n := range b.notes {
			fmt.Fprintf(&out, "  %s\n", n)
		}
	}
	return trimLines(out.String())
}

func trimLines(s string) string {
	lines := strings.Split(s, "\n")
	for i := range lines {
		lines[i] = strings.TrimRight(lines[i], " ")
	}
	return strings.TrimRight(strings.Join(lines, "\n"), "\n")
}

// writeLog writes the log of the run to path. If path is a directory, it makes a file there whose
// name contains the day and the servers.
func (l *Lab) writeLog(path, table string, code int) error {
	now := time.Now().UTC()
	if info, err := os.Stat(path); err == nil && info.IsDir() {
		name := now.Format("2006-01-02")
		for _, s := range l.servers {
			name += "-" + s.Name + "-" + s.Version
		}
		path = filepath.Join(path, name+".txt")
	}
	outcome := "passed"
	if code != 0 {
		outcome = "FAILED"
	}
	head := fmt.Sprintf("integration, %s, %s %s/%s, %d CPUs%s: %s\n",
		now.Format("2006-01-02 15:04 UTC"), runtime.Version(), runtime.GOOS, runtime.GOARCH, runtime.NumCPU(),
		flags(), outcome)
	return os.WriteFile(path, []byte(head+table+"\n"), 0o644)
}

// flags returns the flags on the command line, except a few of package testing.
func flags() string {
	var b strings.Builder
	flag.Visit(func(f *flag.Flag) {
		switch f.Name {
		case "test.testlogfile", "test.paniconexit0", "test.timeout", "test.v", "test.parallel":
		default:
			fmt.Fprintf(&b, ", -%s=%s", f.Name, f.Value)
		}
	})
	return b.String()
}
