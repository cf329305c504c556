package main

import (
	"errors"
	"fmt"
	"html"
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// plotName is the name of the plot's file, which is in the README's directory.
const plotName = "lock-unlock.svg"

// plotRow is the row of the table that the plot shows.
const plotRow = "Lock and Unlock, uncontended: median; p99"

// plotted holds the two lines of text beside each column's bar.
var plotted = [columns][2]string{
	one:       {"leasehold, one member", "majority writes"},
	three:     {"leasehold, three members", "majority writes"},
	mongoLock: {"square/mongo-lock, one member", "majority writes; no lease, no fencing"},
	etcd:      {"etcd", "syncs every write"},
	postgres:  {"PostgreSQL, advisory lock", "in memory; no lease, no fencing"},
	redis:     {"Redis, redislock", "syncs once a second; no fencing"},
}

// drawPlot draws the plot from the table in the README and stores it in the README's directory.
func drawPlot(readme string) error {
	text, err := os.ReadFile(readme)
	if err != nil {
		return err
	}
	svg, err := plot(string(text))
	if err != nil {
		return fmt.Errorf("%s: %w", readme, err)
	}
	return os.WriteFile(filepath.Join(filepath.Dir(readme), plotName), []byte(svg), 0o644)
}

// plot returns an SVG with a bar for each column that has a figure in the row plotRow of the text. The
// bar shows the median time of Lock and Unlock, relative to two raw writes. The 99th percentiles are
// not shown, because they are relative to another figure.
func plot(text string) (string, error) {
	_, table, ok := strings.Cut(text, tableBegin)
	table, _, end := strings.Cut(table, tableEnd)
	if !ok || !end {
		return "", errors.New("the text has no table between the bench:begin and bench:end lines")
	}
	medians, err := figures(table, plotRow)
	if err != nil {
		return "", err
	}

	const (
		width, top, step, bottom = 760, 62, 40, 44
		left, unit               = 250, 220 // x of the bars' left end; the width, in pixels, that stands for two raw writes
		height                   = top + step*int(columns) + bottom
	)
	x := func(v float64) float64 { return left + v*unit }
	var b strings.Builder
	fmt.Fprintf(&b, `<svg xmlns="http://www.w3.org/2000/svg" width="%[1]d" height="%[2]d" viewBox="0 0 %[1]d %[2]d" font-family="sans-serif" font-size="13" role="img">`+"\n", width, height)
	b.WriteString("<title>Lock and Unlock of a free key, relative to two plain majority writes</title>\n")
	fmt.Fprintf(&b, `<rect width="%d" height="%d" rx="6" fill="#fff"/>`+"\n", width, height)
	b.WriteString(`<text x="16" y="26" font-size="15" font-weight="bold" fill="#1f2328">Lock and Unlock of a free key: median time relative to two plain majority writes</text>` + "\n")
	b.WriteString(`<text x="16" y="46" fill="#59636e">Shorter is faster. leasehold: writes to the same server. Other systems: writes to the one-member set.</text>` + "\n")
	fmt.Fprintf(&b, `<line x1="%.1[1]f" y1="%[2]d" x2="%.1[1]f" y2="%[3]d" stroke="#59636e" stroke-dasharray="4 3"/>`+"\n", x(1), top, height-bottom+4)
	fmt.Fprintf(&b, `<text x="%.1f" y="%d" text-anchor="middle" fill="#59636e">1 = two plain majority writes</text>`+"\n", x(1), height-bottom+20)
	for c := range columns {
		y := top + step*int(c)
		fmt.Fprintf(&b, `<text x="16" y="%d" fill="#1f2328">%s</text>`+"\n", y+18, html.EscapeString(plotted[c][0]))
		fmt.Fprintf(&b, `<text x="16" y="%d" font-size="11" fill="#59636e">%s</text>`+"\n", y+32, html.EscapeString(plotted[c][1]))
		if medians[c] == "" {
			continue
		}
		median, err := strconv.ParseFloat(medians[c], 64)
		if err != nil {
			return "", fmt.Errorf("%q, %v: %w", plotRow, c, err)
		}
		color := "#8c959f"
		if c == one || c == three {
			color = "#0969da"
		}
		fmt.Fprintf(&b, `<rect x="%d" y="%d" width="%.1f" height="20" fill="%s"/>`+"\n", left, y+10, median*unit, color)
		fmt.Fprintf(&b, `<text x="%.1f" y="%d" fill="#1f2328" stroke="#fff" stroke-width="4" paint-order="stroke">%s</text>`+"\n", x(median)+8, y+25, medians[c])
	}
	b.WriteString("</svg>\n")
	return b.String(), nil
}

// figures returns the first figure in each cell of the named row of the table, "" for a cell without one.
func figures(table, name string) (cells [columns]string, err error) {
	for line := range strings.Lines(table) {
		parts := strings.Split(strings.Trim(strings.TrimSpace(line), "|"), "|")
		if strings.TrimSpace(parts[0]) != name {
			continue
		}
		if len(parts) != 2+int(columns) {
			return cells, fmt.Errorf("the row %q has %d cells, want %d", name, len(parts), 2+int(columns))
		}
		for c := range cells {
			if text := strings.TrimSpace(parts[2+c]); text != "–" && text != "not here" {
				cells[c], _, _ = strings.Cut(text, ";")
			}
		}
		return cells, nil
	}
	return cells, fmt.Errorf("the table has no row %q", name)
}
