package server

import (
	"os"
	"path/filepath"
	"strconv"
	"testing"
	"time"
)

// NoFakeClock says why a test of clocks is skipped.
const NoFakeClock = "no libfaketime on this machine (Debian's package faketime)"

// FakeClock returns what is added to a server's environment to have its clock ahead of
// this host's; ok is false where libfaketime is missing.
func FakeClock(ahead time.Duration) (env []string, ok bool) {
	return preload("FAKETIME=" + offset(ahead))
}

// preload returns the environment of a server whose clock, but not the monotonic one, is
// faked as the settings say.
func preload(settings ...string) (env []string, ok bool) {
	libs, _ := filepath.Glob("/usr/lib/*/faketime/libfaketimeMT.so.1")
	if len(libs) == 0 {
		return nil, false
	}
	return append(settings, "LD_PRELOAD="+libs[0], "DONT_FAKE_MONOTONIC=1", "FAKETIME_DONT_FAKE_MONOTONIC=1"), true
}

// offset is how libfaketime is told to be ahead.
func offset(ahead time.Duration) string {
	sign := ""
	if ahead >= 0 {
		sign = "+" // without it, it would be a date
	}
	return sign + strconv.FormatFloat(ahead.Seconds(), 'f', -1, 64)
}

// A SteppedClock is a server's clock that can be set while the server runs.
type SteppedClock struct {
	t    testing.TB
	file string // that libfaketime reads each time
}

// NewSteppedClock returns a clock that agrees with this host's, and what is added to a server's
// environment to have it; ok is false where libfaketime is missing.
func NewSteppedClock(t testing.TB) (c *SteppedClock, env []string, ok bool) {
	t.Helper()
	c = &SteppedClock{t, filepath.Join(t.TempDir(), "ahead")}
	c.Set(0)
	env, ok = preload("FAKETIME_TIMESTAMP_FILE="+c.file, "FAKETIME_NO_CACHE=1")
	return c, env, ok
}

// Set steps the clock: it is ahead of this host's from now on.
func (c *SteppedClock) Set(ahead time.Duration) {
	c.t.Helper()
	next := c.file + ".next" // or the server could read half of it
	err := os.WriteFile(next, []byte(offset(ahead)+"\n"), 0o600)
	if err == nil {
		err = os.Rename(next, c.file)
	}
	if err != nil {
		c.t.Fatal(err)
	}
}
