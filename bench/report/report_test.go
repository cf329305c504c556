package main

import (
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/leasehold-go/leasehold/bench/internal/measure"
	"github.com/leasehold-go/leasehold/internal/testkit"
)

// TestQuickReport makes the quick report and checks that every measurement has a row, and that
// every cell that needs a server has a figure or says "not here". It starts servers only in long
// tests: go test runs other packages at the same time, and the load could make the leases in their
// tests expire.
func TestQuickReport(t *testing.T) {
	if testing.Short() {
		t.Skip("takes ten seconds")
	}
	l := &lab{}
	if testkit.Long() {
		l = findLab(t.Context())
	}
	defer l.stop()
	r := &report{lab: l, effort: few, log: t.Output()}
	if err := r.measure(t.Context(), ""); err != nil {
		t.Error(err)
	}
	text := r.markdown()
	t.Log("\n" + text)
	if len(r.rows) < len(measurements) {
		t.Errorf("%d rows for %d measurements, want at least one each", len(r.rows), len(measurements))
	}
	figure := regexp.MustCompile(`^\d`)
	for _, m := range measurements {
		rows := 0
		for _, row := range r.rows {
			if row.measure != m.name {
				continue
			}
			rows++
			for _, c := range row.can {
				cell := row.cells[c]
				switch {
				case !l.here[c] && cell.ratio != "not here":
					t.Errorf("%s, %v: got %q, want \"not here\"", row.name, c, cell.ratio)
				case l.here[c] && cell.ratio == "":
					t.Errorf("%s, %v: no figure, though the server is available", row.name, c)
				case l.here[c] && cell.ratio != "" && !figure.MatchString(cell.raw):
					t.Errorf("%s, %v: %q is not a figure", row.name, c, cell.raw)
				}
			}
		}
		if rows == 0 {
			t.Errorf("%s has no row", m.name)
		}
	}
}

func TestReplaceTable(t *testing.T) {
	path := filepath.Join(t.TempDir(), "README.md")
	write := func(text string) {
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	read := func() string {
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		return string(text)
	}
	write("before\n" + tableBegin + tableEnd + "after\n")
	for _, table := range []string{"| a |\n", "| b |\n"} {
		if err := replaceTable(path, table); err != nil {
			t.Fatal(err)
		}
		if got, want := read(), "before\n"+tableBegin+"\n"+table+"\n"+tableEnd+"after\n"; got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
	for _, text := range []string{"", tableBegin, tableEnd + tableBegin} {
		write(text)
		if err := replaceTable(path, "| a |\n"); err == nil {
			t.Errorf("no error for %q, which has no place for a table", text)
		}
		if got := read(); got != text {
			t.Errorf("got %q, want %q unchanged", got, text)
		}
	}
}

// The README has two marker lines; -readme writes the table between them.
func TestREADMEHasThePlace(t *testing.T) {
	text, err := os.ReadFile("../README.md")
	if err != nil {
		t.Fatal(err)
	}
	_, rest, ok := strings.Cut(string(text), tableBegin)
	if !ok || !strings.Contains(rest, tableEnd) {
		t.Errorf("the README has no line %q followed by %q", tableBegin, tableEnd)
	}
}

func TestFill(t *testing.T) {
	r := &report{lab: &lab{here: [columns]bool{one: true}}}
	got := r.fill(row{can: []column{one, etcd}}.put(one, "1.00", "2 ms"))
	want := [columns]cell{one: {"1.00", "2 ms"}, etcd: {"not here", "not here"}}
	if got.cells != want {
		t.Errorf("got %v, want %v", got.cells, want)
	}
}

// Each statistic of a column's sample is divided by the same statistic of the unit's sample. A
// column of another system has no unit, so column one's unit is used.
func TestCompared(t *testing.T) {
	sample := func(usual, rare time.Duration) (s measure.Sample) {
		for range 98 {
			s = append(s, usual)
		}
		return append(s, rare, rare)
	}
	const ms = time.Millisecond
	u := units{one: sample(2*ms, 20*ms), three: sample(4*ms, 10*ms)}
	took := map[column]measure.Sample{one: sample(3*ms, 30*ms), three: sample(4*ms, 40*ms), etcd: sample(1*ms, 40*ms)}
	for _, tt := range []struct {
		stat statistic
		want [columns]cell
	}{
		{median, [columns]cell{one: {"1.50", "3 ms / 2 ms"}, three: {"1.00", "4 ms / 4 ms"}, etcd: {"0.50", "1 ms"}}},
		{p99, [columns]cell{one: {"1.50", "30 ms / 20 ms"}, three: {"4.00", "40 ms / 10 ms"}, etcd: {"2.00", "40 ms"}}},
	} {
		if got := (row{}).compared(tt.stat, took, u).cells; got != tt.want {
			t.Errorf("got %v, want %v", got, tt.want)
		}
	}
}

// A row with figures only in column one is in a table that has no other columns.
func TestTables(t *testing.T) {
	r := &report{lab: &lab{here: [columns]bool{one: true, etcd: true}}}
	r.rows = []row{
		row{name: "alone", unit: "u", can: []column{one}}.put(one, "1.00", ""),
		row{name: "beside", unit: "u", can: []column{one, etcd}}.put(etcd, "2.00", ""),
		row{name: "in memory", unit: "u", can: inMemory}.put(one, "3.00", ""),
	}
	var b strings.Builder
	r.table(&b, func(c cell) string { return c.ratio })
	first, second, _ := strings.Cut(b.String(), "\n\n")
	if want := "| beside | u | – | – | – | 2.00 | – | – |"; !strings.HasSuffix(first, "|\n"+want) {
		t.Errorf("got %q, want it to end with the row %q", first, want)
	}
	if want := "|\n| alone | u | 1.00 |\n| in memory | u | 3.00 |\n"; !strings.HasSuffix(second, want) {
		t.Errorf("got %q, want it to end with the rows %q", second, want)
	}
}

func TestJoined(t *testing.T) {
	held := row{name: "held", unit: "bytes", can: []column{one, three}}.put(one, "1", "1 B").put(three, "3", "3 B")
	waiting := row{name: "waiting", unit: "bytes", can: []column{one, three}}.put(one, "2", "2 B")
	got := joined("locks", held, waiting)
	want := []row{row{name: "locks: held; waiting", unit: "bytes", can: []column{one, three}}.
		put(one, "1; 2", "1 B; 2 B").put(three, "3; –", "3 B; –")}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
	if got := joined("nothing"); got != nil {
		t.Errorf("got %v of no rows, want none", got)
	}
}
