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

	"github.com/leasehold-go/leasehold/internal/statusjson"
)

// none is what a table shows for a missing value.
const none = "-"

// stamp formats a time as the JSON output does: in UTC, with milliseconds.
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

// age formats d for tables, in at most six characters if d is less than 10,000 days.
func age(d time.Duration) string {
	const day = 24 * time.Hour
	switch d = max(0, d); {
	case d < 10*time.Second:
		return fmt.Sprintf("%.1fs", d.Truncate(100*time.Millisecond).Seconds())
	case d < 2*time.Minute:
		return fmt.Sprintf("%ds", d/time.Second)
	case d < time.Hour:
		return fmt.Sprintf("%dm%ds", d/time.Minute, d%time.Minute/time.Second)
	case d < 2*day:
		return fmt.Sprintf("%dh%dm", d/time.Hour, d%time.Hour/time.Minute)
	case d < 100*day:
		return fmt.Sprintf("%dd%dh", d/day, d%day/time.Hour)
	}
	return fmt.Sprintf("%dd", d/day)
}

// plain formats text from the store for a terminal. It quotes text with spaces, quotation marks, or characters that
// could control the terminal.
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

// oneLine returns err's message on one line.
func oneLine(err error) string { return strings.Join(strings.Fields(err.Error()), " ") }

// short formats a value for a table, and cuts it if it is long.
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

// printJSON prints v on one line.
func printJSON(w io.Writer, v any) error {
	e := json.NewEncoder(w)
	e.SetEscapeHTML(false)
	return e.Encode(v)
}
