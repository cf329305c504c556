package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"regexp"
	"strings"
	"time"
)

// A report is the result of all measurements.
type report struct {
	lab    *lab
	effort effort
	log    io.Writer

	began time.Time
	took  time.Duration
	rows  []row
}

// A measurement adds rows to the report.
type measurement struct {
	name    string
	columns []column // the default of row.can
	f       func(*report, context.Context) ([]row, error)
}

var (
	everywhere = []column{one, three, etcd, postgres, redis}
	inMemory   = []column{} // only column one has figures, and they need no server

	measurements = []measurement{
		{"memory", inMemory, (*report).memory}, // first, while the process's memory is still empty
		{"Lock and Unlock", everywhere, (*report).lockUnlock},
		{"agent", []column{one, three}, (*report).overAgent},
		{"keys", []column{one, three, mongoLock}, (*report).keys},
		{"short program", []column{one, three, etcd}, (*report).shortProgram},
		{"hand-off", everywhere, (*report).handOff},
		{"apart", []column{one, three}, (*report).handOffApart},
		{"contended", everywhere, (*report).contended},
		{"hand-off of leadership", []column{one, three, etcd}, (*report).leadership},
		{"fleet", []column{one}, (*report).fleet},
	}
)

// measure runs the measurements whose names match the given regular expression. For a measurement
// that fails, it adds a row that reports the failure. It returns the errors of all measurements,
// joined, or only ctx.Err() if ctx ends.
func (r *report) measure(ctx context.Context, only string) error {
	wanted, err := regexp.Compile(only)
	if err != nil {
		return err
	}
	r.began = time.Now()
	var errs []error
	for _, m := range measurements {
		if !wanted.MatchString(m.name) {
			continue
		}
		begin := time.Now()
		rows, err := m.f(r, ctx)
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if err != nil {
			errs = append(errs, fmt.Errorf("%s: %w", m.name, err))
			rows = append(rows, row{name: m.name}.put(one, "failed", err.Error()))
		}
		for _, row := range rows {
			row.measure = m.name
			if row.can == nil {
				row.can = m.columns
			}
			r.rows = append(r.rows, r.fill(row))
		}
		fmt.Fprintf(r.log, "report: %s: %.1f s\n", m.name, time.Since(begin).Seconds())
	}
	r.took = time.Since(r.began)
	return errors.Join(errs...)
}

// fill writes "not here" into the cells that have no figure because the column's server is not
// available.
func (r *report) fill(row row) row {
	for _, c := range row.can {
		if row.cells[c] == (cell{}) && !r.lab.here[c] {
			row = row.put(c, "not here", "not here")
		}
	}
	return row
}

// A column is one locking system on one kind of server.
type column int

const (
	one column = iota // this library, on one member or on the server at MONGODB_URI
	three
	mongoLock // github.com/square/mongo-lock, on the same server as column one
	etcd
	postgres
	redis
	columns
)

func (c column) String() string {
	return [columns]string{"one member", "three members", "mongo-lock", "etcd", "PostgreSQL", "Redis"}[c]
}

// A row is a line of the tables. It has a cell for each column.
type row struct {
	measure string // the name of the measurement
	name    string
	unit    string   // what the times are divided by, or the unit of the figures
	can     []column // columns that have a figure if their server is available; nil: those of the measurement
	cells   [columns]cell
}

// A cell is one result: a ratio or count, and the figures behind it. If there is no result, the two
// texts say why, or are empty.
type cell struct{ ratio, raw string }

// joined returns one row that lists the names of all the rows, and in each column their figures. It has the unit and the
// columns of the first row. If there are no rows, it returns none.
func joined(name string, rows ...row) []row {
	if len(rows) == 0 {
		return nil
	}
	all := row{unit: rows[0].unit, can: rows[0].can}
	var names []string
	for _, r := range rows {
		names = append(names, r.name)
	}
	all.name = name + ": " + strings.Join(names, "; ")
	for c := range columns {
		var ratios, raws []string
		has := false
		for _, r := range rows {
			has = has || r.cells[c] != (cell{})
			ratios, raws = append(ratios, cmp.Or(r.cells[c].ratio, "–")), append(raws, cmp.Or(r.cells[c].raw, "–"))
		}
		if has {
			all = all.put(c, strings.Join(ratios, "; "), strings.Join(raws, "; "))
		}
	}
	return []row{all}
}

// put returns a copy of the row in which column c has the given cell.
func (r row) put(c column, ratio, raw string) row {
	r.cells[c] = cell{ratio, raw}
	return r
}
