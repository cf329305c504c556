package main

import (
	"bytes"
	"io"
	"unicode/utf8"
)

// A table prints rows in columns while they come. Widths are those of the first
// rows, and grow when wider cells come: text/tabwriter would need all rows at once.
type table struct {
	w      io.Writer
	rows   [][]string
	widths []int
}

// tableBlock is how many rows a table waits for before it prints: as many as a
// store is asked for at once.
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
