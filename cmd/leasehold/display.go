package main

import (
	"os"
	"strconv"

	"golang.org/x/term"
)

// A display describes where a command writes its text: a terminal, a pipe or a file.
type display struct {
	width, height int  // in characters; 0: unlimited
	colours       bool // it can show colours, and NO_COLOR is not set
	cursor        bool // the cursor can be moved
}

// display describes standard output. Tables are at most as wide as the terminal, or as COLUMNS if that
// is set; watch(1) sets COLUMNS for the commands that it runs. In a pipe or a file, without COLUMNS,
// tables show all columns in full.
func (a *app) display() display {
	if a.frame != nil {
		return *a.frame
	}
	var d display
	if out, ok := a.stdout.(*os.File); ok && term.IsTerminal(int(out.Fd())) {
		if width, height, err := term.GetSize(int(out.Fd())); err == nil {
			d.width, d.height = width, height
		}
		d.cursor = a.getenv("TERM") != "dumb" && takesEscapes(out)
		d.colours = d.cursor && a.getenv("NO_COLOR") == "" // see no-color.org
	}
	if n, err := strconv.Atoi(a.getenv("COLUMNS")); err == nil && n > 0 {
		d.width = n
	}
	return d
}

// A style is how a cell looks on a terminal with colours: the parameters of the SGR escape
// sequence. The styles use only the eight standard colours, which terminals adapt to their
// background.
type style string

const (
	unstyled style = ""
	faint    style = "2"
	bad      style = "31"
	good     style = "32"
	warning  style = "33"
)

// paint returns text in style s if d shows colours.
func (d display) paint(s style, text string) string {
	if !d.colours || s == unstyled {
		return text
	}
	return "\x1b[" + string(s) + "m" + text + "\x1b[0m"
}
