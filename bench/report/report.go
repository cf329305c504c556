package main

import (
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

// A measurement adds rows to the report; only the given columns can have figures in them.
type measurement struct {
	name    string
	columns []column
	f       func(*report, context.Context) ([]row, error)
}

var (
	everywhere = []column{one, three, etcd, postgres, redis}
	inMemory   = []column{}

	measurements = []measurement{
		{"memory", inMemory, (*report).memory}, // first, while the process's memory is still empty
		{"Lock and Unlock", everywhere, (*report).lockUnlock},
		{"hand-off", everywhere, (*report).handOff},
		{"contended", everywhere, (*report).contended},
		{"hand-off of leadership", []column{one, three, etcd}, (*report).leadership},
		{"fleet", []column{one}, (*report).fleet},
	}
)

// measure runs only the measurements whose names match the pattern. For a measurement that fails,
// measure adds a row that reports the failure. It returns the errors of all measurements, joined.
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

// A row is one figure for each column.
type row struct {
	measure string // the name of the measurement
	name    string
	unit    string   // the unit by which the times are divided
	can     []column // columns that can have a figure; nil: all columns of the measurement
	cells   [columns]cell
}

// A cell is one result: a ratio or count, and the times behind it.
type cell struct{ ratio, raw string }

// joined returns the rows, of one unit and column one, as one row, in which their names and figures stand one after the
// other.
func joined(name string, rows ...row) row {
	var names, ratios, raws []string
	for _, r := range rows {
		c := r.cells[one]
		names, ratios, raws = append(names, r.name), append(ratios, c.ratio), append(raws, c.raw)
	}
	return row{name: name + ": " + strings.Join(names, "; "), unit: rows[0].unit}.
		put(one, strings.Join(ratios, "; "), strings.Join(raws, "; "))
}

// put returns a copy of the row in which column c has the given cell.
func (r row) put(c column, ratio, raw string) row {
	r.cells[c] = cell{ratio, raw}
	return r
}
