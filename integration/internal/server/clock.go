package server

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"testing"
	"time"
)

// NoFakeClock is the reason for skipping tests that fake clocks.
const NoFakeClock = "no libfaketime on this machine (Debian's package faketime)"

// FakeClock returns the environment for a server whose clock is ahead of this host's by the given
// duration. ok is false without libfaketime.
func FakeClock(ahead time.Duration) (env []string, ok bool) {
	return preload("FAKETIME=" + offset(ahead))
}

// preload returns an environment in which libfaketime fakes a server's clocks according to the settings. The monotonic
// clock stays real. With libfaketime 0.9.10's own choice for FAKETIME_FORCE_MONOTONIC_FIX on a recent glibc, waits by that
// clock end at once, and a mongod takes two cores for nothing.
func preload(settings ...string) (env []string, ok bool) {
	libs, _ := filepath.Glob("/usr/lib/*/faketime/libfaketimeMT.so.1")
	if len(libs) == 0 {
		return nil, false
	}
	return append(settings, "LD_PRELOAD="+libs[0], "DONT_FAKE_MONOTONIC=1", "FAKETIME_DONT_FAKE_MONOTONIC=1",
		"FAKETIME_FORCE_MONOTONIC_FIX=0"), true
}

// offset returns libfaketime's setting for a clock that is ahead by this duration.
func offset(ahead time.Duration) string {
	sign := ""
	if ahead >= 0 {
		sign = "+" // without a sign libfaketime would read the number as a date
	}
	return sign + strconv.FormatFloat(ahead.Seconds(), 'f', -1, 64)
}

// A SteppedClock is a server's clock that can be set while the server runs.
type SteppedClock struct {
	t    testing.TB
	file string // libfaketime reads it once in cacheTime
}

// cacheTime is how long libfaketime does not read a [SteppedClock]'s file again, in seconds. It could read it at each call
// for the time, but a server then takes most of a core for nothing.
const cacheTime = 1

// Noticed is how long after [SteppedClock.Set] each server that runs has the new time.
const Noticed = (cacheTime + 1) * time.Second // libfaketime compares whole seconds

// NewSteppedClock returns a clock that initially agrees with this host's, and the environment
// for a server that uses it. ok is false without libfaketime.
func NewSteppedClock(t testing.TB) (c *SteppedClock, env []string, ok bool) {
	t.Helper()
	c = &SteppedClock{t, filepath.Join(t.TempDir(), "ahead")}
	c.Set(0)
	env, ok = preload("FAKETIME_TIMESTAMP_FILE="+c.file, fmt.Sprint("FAKETIME_CACHE_DURATION=", cacheTime))
	return c, env, ok
}

// Set steps the clock so that it is ahead of this host's clock by the given duration: see [Noticed].
func (c *SteppedClock) Set(ahead time.Duration) {
	c.t.Helper()
	next := c.file + ".next" // renamed below, so that the server never reads half a file
	err := os.WriteFile(next, []byte(offset(ahead)+"\n"), 0o600)
	if err == nil {
		err = os.Rename(next, c.file)
	}
	if err != nil {
		c.t.Fatal(err)
	}
}
