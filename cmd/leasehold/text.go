package main

import (
	"encoding/json"
	"fmt"
	"io"
	"strconv"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"
)

// none is what a table shows where there is nothing.
const none = "-"

// stamp is t for people and programs: UTC, and it says so.
func stamp(t time.Time) string {
	if t.IsZero() {
		return ""
	}
	return t.UTC().Format("2006-01-02T15:04:05.000Z07:00")
}

// span is d for people, with as many digits as they read.
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

// plain is text from the store for a terminal: as it is if it can be told where it
// begins and ends and does nothing to the terminal, else quoted.
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

// oneLine is what err says, in one line.
func oneLine(err error) string { return strings.Join(strings.Fields(err.Error()), " ") }

// short is value for a line.
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

// milliseconds is d for programs.
func milliseconds(d time.Duration) float64 {
	return float64(d.Round(time.Microsecond).Microseconds()) / 1000
}

// printJSON prints v in one line.
func printJSON(w io.Writer, v any) error {
	e := json.NewEncoder(w)
	e.SetEscapeHTML(false)
	return e.Encode(v)
}
