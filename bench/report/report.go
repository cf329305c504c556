package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"regexp"
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

// A measurement is some rows, with the columns that can have a figure.
type measurement struct {
	name    string
	columns []column
	f       func(*report, context.Context) ([]row, error)
}

var (
	everywhere = []column{one, three, etcd, postgres, redis}
	inMemory   = []column{}

	measurements = []measurement{
		{"memory", inMemory, (*report).memory}, // before there is anything else in it
		{"Lock and Unlock", everywhere, (*report).lockUnlock},
		{"hand-off", everywhere, (*report).handOff},
		{"contended", everywhere, (*report).contended},
		{"hand-over of leadership", []column{one, three, etcd}, (*report).leadership},
		{"fail-over after a crash", []column{one, three, etcd}, (*report).crash},
		{"held locks", []column{one}, (*report).held},
		{"release with many waiters", []column{one}, (*report).crowd},
		{"keys", []column{one}, (*report).keys},
		{"new keys", []column{one, mongoLock}, (*report).newKeys},
		{"sweep", []column{one}, (*report).sweep},
		{"fleet", []column{one}, (*report).fleet},
		{"reconnect", []column{one}, (*report).reconnect},
	}
)

// measure measures all whose name matches. What fails is a row that says so, and part
// of the error.
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

// fill says of each cell that is empty and could have a figure why it has none.
func (r *report) fill(row row) row {
	for _, c := range row.can {
		if row.cells[c] == (cell{}) && !r.lab.here[c] {
			row = row.put(c, "not here", "not here")
		}
	}
	return row
}

// A column is one system on one kind of server.
type column int

const (
	one column = iota // this library, on one member or on MONGODB_URI
	three
	mongoLock // github.com/square/mongo-lock, on the same server as one
	etcd
	postgres
	redis
	columns
)

func (c column) String() string {
	return [columns]string{"one member", "three members", "mongo-lock", "etcd", "PostgreSQL", "Redis"}[c]
}

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
