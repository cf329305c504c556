package main

import (
	"io"
	"slices"
	"strings"
	"unicode"

	"golang.org/x/text/width"
)

// A column describes one column of a table.
type column struct {
	name string
	keep int // on a narrow display, columns with the highest keep are omitted first; columns with 0 are never omitted
	cut  int // cells may be cut to this width; 0: never
}

// A cell is the text of one cell of a table, with its style.
type cell struct {
	text  string
	style style
}

// cells returns a row without styles.
func cells(texts ...string) []cell {
	row := make([]cell, len(texts))
	for i, text := range texts {
		row[i].text = text
	}
	return row
}

// A table prints rows as they arrive, aligned in columns. The first block of rows sets the widths of the columns, which
// grow if wider cells follow. text/tabwriter would need all rows at once.
//
// No line is wider than the display. The first block decides which columns fit.
type table struct {
	w       io.Writer
	display display
	columns []column
	rows    [][]cell
	widths  []int // the widths needed by the cells so far
	shown   []int // indexes of the columns that fit; nil: not decided
}

// tableBlock is the number of rows, header included, that a table collects before it prints. It equals the number of
// keys in the first page of a list of keys.
const tableBlock = 100

// columnGap is the number of spaces between two columns.
const columnGap = 2

func newTable(w io.Writer, d display, columns ...column) *table {
	t := &table{w: w, display: d, columns: columns, widths: make([]int, len(columns))}
	header := make([]cell, len(columns))
	for i, c := range columns {
		header[i] = cell{c.name, faint}
	}
	t.rows = append(t.rows, header)
	return t
}

func (t *table) add(row ...cell) error {
	t.rows = append(t.rows, row)
	if len(t.rows) < tableBlock {
		return nil
	}
	return t.flush()
}

func (t *table) flush() error {
	for _, row := range t.rows {
		for i, c := range row {
			t.widths[i] = max(t.widths[i], textWidth(c.text))
		}
	}
	if t.shown == nil {
		t.choose()
	}
	widths := t.fit()
	var b strings.Builder
	for _, row := range t.rows {
		pad, room := 0, t.display.width
		for _, i := range t.shown {
			text := cutMiddle(row[i].text, widths[i])
			if t.display.width > 0 {
				if room -= pad; room <= 0 {
					break
				}
				text = cutMiddle(text, room)
				room -= textWidth(text)
			}
			b.WriteString(strings.Repeat(" ", pad))
			b.WriteString(t.display.paint(row[i].style, text))
			pad = widths[i] - textWidth(text) + columnGap
		}
		b.WriteByte('\n')
	}
	t.rows = nil
	_, err := io.WriteString(t.w, b.String())
	return err
}

// choose decides which columns fit if cells are cut in all columns that allow it.
func (t *table) choose() {
	for i := range t.columns {
		t.shown = append(t.shown, i)
	}
	for t.display.width > 0 && t.least() > t.display.width {
		last := slices.MaxFunc(t.shown, func(i, j int) int { return t.columns[i].keep - t.columns[j].keep })
		if t.columns[last].keep == 0 {
			return
		}
		t.shown = slices.DeleteFunc(t.shown, func(i int) bool { return i == last })
	}
}

// leastOf returns the smallest width that column i may have.
func (t *table) leastOf(i int) int {
	if cut := t.columns[i].cut; cut > 0 {
		return min(cut, t.widths[i])
	}
	return t.widths[i]
}

// least returns the smallest total width that the shown columns need, including the gaps between
// them.
func (t *table) least() int {
	sum := columnGap * (len(t.shown) - 1)
	for _, i := range t.shown {
		sum += t.leastOf(i)
	}
	return sum
}

// fit returns the widths of the columns. Each shown column gets its smallest width. Then, from left to right, each
// column gets as much of the remaining width as its cells need.
func (t *table) fit() []int {
	if t.display.width == 0 {
		return t.widths
	}
	widths := slices.Clone(t.widths)
	room := t.display.width - t.least()
	for _, i := range t.shown {
		least := t.leastOf(i)
		widths[i] = least + min(max(0, room), t.widths[i]-least)
		room -= widths[i] - least
	}
	return widths
}

// cutMiddle shortens text to a width. It cuts the middle, because keys and hosts differ at their
// ends.
func cutMiddle(text string, most int) string {
	if textWidth(text) <= most {
		return text
	}
	if most < 1 {
		return ""
	}
	head, tail := most/2, (most-1)/2
	var front strings.Builder
	for _, r := range text {
		if head -= runeWidth(r); head < 0 {
			break
		}
		front.WriteRune(r)
	}
	runes := []rune(text)
	from := len(runes)
	for from > 0 && tail >= runeWidth(runes[from-1]) {
		from--
		tail -= runeWidth(runes[from])
	}
	return front.String() + "…" + string(runes[from:])
}

// textWidth returns how many terminal columns text needs. The text must have no control characters.
func textWidth(text string) (n int) {
	for _, r := range text {
		n += runeWidth(r)
	}
	return n
}

func runeWidth(r rune) int {
	if unicode.In(r, unicode.Mn, unicode.Me, unicode.Cf) {
		return 0
	}
	switch width.LookupRune(r).Kind() {
	case width.EastAsianWide, width.EastAsianFullwidth:
		return 2
	}
	return 1
}
