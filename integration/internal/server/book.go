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

// A book keeps what ran where.
type book struct {
	mu     sync.Mutex
	suites []string // in the order of their beginning
	cells  map[string]map[string]string
	ranOn  map[string]bool
	notes  []string
}

func (b *book) put(suite, server, cell string) {
	if b.cells == nil {
		b.cells = make(map[string]map[string]string)
	}
	if b.cells[suite] == nil {
		b.cells[suite] = make(map[string]string)
		b.suites = append(b.suites, suite)
	}
	b.cells[suite][server] = cell
}

func (b *book) ran(suite, server, outcome string, took time.Duration) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.put(suite, server, fmt.Sprintf("%s %.1fs", outcome, took.Seconds()))
	if outcome != "skip" {
		if b.ranOn == nil {
			b.ranOn = make(map[string]bool)
		}
		b.ranOn[server] = true
	}
}

func (b *book) leftOut(suite, server, why string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.put(suite, server, "- ("+why+")")
}

func (b *book) note(line string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.notes = append(b.notes, line)
}

func (b *book) touched() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return len(b.ranOn) > 0
}

// table shows servers, suites and what was measured.
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
				fmt.Fprintf(w, "\t%s", b.cells[suite][s.Name])
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

// writeLog writes the log of the run. A path that is a directory gets a file
// named after the day and the servers.
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

// flags are those of the command line that say what was run.
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
