// Package fleettest reads what the examples log.
package fleettest

import (
	"encoding/json"
	"io"
	"testing"
	"testing/synctest"
	"time"
)

// A Line is what a process of a fleet has logged in JSON. Fields that the line does
// not have are zero.
type Line struct {
	Time    time.Time
	Level   string
	Msg     string
	Process string
	Err     string

	Tick      string // of cron
	Migration string // of migrate
	Singleton string // of singletons
	Term      int64
	Token     int64
}

// Lines decodes all lines. It is for bubbles: a session logs on a goroutine of its own,
// for the last of which, that says that the session is closed, Close does not wait.
func Lines(t testing.TB, log io.Reader) []Line {
	t.Helper()
	synctest.Wait()
	var all []Line
	for d := json.NewDecoder(log); ; {
		var l Line
		if err := d.Decode(&l); err == io.EOF {
			return all
		} else if err != nil {
			t.Fatal(err)
		}
		all = append(all, l)
	}
}
