package main

import (
	"encoding/json"
	"io"
	"testing"
	"testing/synctest"
	"time"
)

// A line is what a process has logged in JSON. Fields that the line does not have are
// zero.
type line struct {
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

// lines decodes what was logged. Call it in the bubble: a session logs on a goroutine of
// its own, and Close does not wait for the last message.
func lines(t testing.TB, log io.Reader) []line {
	t.Helper()
	synctest.Wait()
	var all []line
	for d := json.NewDecoder(log); ; {
		var l line
		if err := d.Decode(&l); err == io.EOF {
			return all
		} else if err != nil {
			t.Fatal(err)
		}
		all = append(all, l)
	}
}
