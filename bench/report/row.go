package main

// A row is one figure, on each column.
type row struct {
	measure string // the name of the measurement
	name    string
	unit    string   // what the ratios are of
	can     []column // those that can have a figure, nil: those of the measurement
	cells   [columns]cell
}

// A cell is what came out: a ratio or count, and the raw figures behind it.
type cell struct{ ratio, raw string }

// put returns the row with a cell.
func (r row) put(c column, ratio, raw string) row {
	r.cells[c] = cell{ratio, raw}
	return r
}
