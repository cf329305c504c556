package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"strconv"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/leasehold-go/leasehold/internal/statusjson"
)

// none is what a table shows for a missing value.
const none = "-"

// stamp formats a time for people, as in JSON: UTC, with milliseconds.
func stamp(t time.Time) string { return statusjson.Time{Time: t}.String() }

// span formats d for people, with a few significant digits.
func span(d time.Duration) string {
	switch a := d.Abs(); {
	case a < time.Millisecond:
		return d.Round(time.Microsecond).String()
	case a < time.Second:
		return d.Round(100 * time.Microsecond).String()
	case a < 10*time.Second:
		return d.Round(time.Millisecond).String()
	case a < time.Minute:
		return d.Round(100 * time.Millisecond).String()
	}
	return d.Round(time.Second).String()
}

// plain formats text from the store for a terminal. It quotes text that has spaces or
// characters that could control the terminal.
func plain(s string) string {
	if s == "" {
		return none
	}
	for _, r := range s {
		if r == '"' || r == unicode.ReplacementChar || unicode.IsSpace(r) || !unicode.IsPrint(r) {
			return strconv.Quote(s)
		}
	}
	return s
}

// oneLine returns err's message in one line.
func oneLine(err error) string { return strings.Join(strings.Fields(err.Error()), " ") }

// short formats a value for a table, cut if it is long.
func short(value []byte) string {
	const most = 40
	if len(value) <= most {
		return plain(string(value))
	}
	cut := most
	for cut > 0 && !utf8.RuneStart(value[cut]) {
		cut--
	}
	return fmt.Sprintf("%s… (%d bytes)", plain(string(value[:cut])), len(value))
}

// printJSON prints v in one line.
func printJSON(w io.Writer, v any) error {
	e := json.NewEncoder(w)
	e.SetEscapeHTML(false)
	return e.Encode(v)
}

// A table prints rows in columns as they arrive. The widths are those of the first block
// of rows, and grow if wider cells follow. text/tabwriter would need all rows at once.
type table struct {
	w      io.Writer
	rows   [][]string
	widths []int
}

// tableBlock is the number of rows that a table collects before it prints them: as many
// keys as are read from a store at once.
const tableBlock = 100

func newTable(w io.Writer, header ...string) *table {
	return &table{w: w, rows: [][]string{header}, widths: make([]int, len(header))}
}

func (t *table) add(cells ...string) error {
	t.rows = append(t.rows, cells)
	if len(t.rows) < tableBlock {
		return nil
	}
	return t.flush()
}

func (t *table) flush() error {
	for _, row := range t.rows {
		for i, cell := range row {
			t.widths[i] = max(t.widths[i], utf8.RuneCountInString(cell))
		}
	}
	var b bytes.Buffer
	for _, row := range t.rows {
		pad := 0
		for i, cell := range row {
			b.Write(bytes.Repeat([]byte{' '}, pad))
			b.WriteString(cell)
			pad = t.widths[i] - utf8.RuneCountInString(cell) + 2
		}
		b.WriteByte('\n')
	}
	t.rows = nil
	_, err := t.w.Write(b.Bytes())
	return err
}
