package server

import (
	"path/filepath"
	"strconv"
	"time"
)

// NoFakeClock says why a test of clocks is skipped.
const NoFakeClock = "no libfaketime on this machine (Debian's package faketime)"

// FakeClock returns what is added to a server's environment to have its clock ahead of
// this host's; ok is false where libfaketime is missing.
func FakeClock(ahead time.Duration) (env []string, ok bool) {
	libs, _ := filepath.Glob("/usr/lib/*/faketime/libfaketimeMT.so.1")
	if len(libs) == 0 {
		return nil, false
	}
	sign := ""
	if ahead >= 0 {
		sign = "+" // without it, it would be a date
	}
	return []string{
		"LD_PRELOAD=" + libs[0],
		"FAKETIME=" + sign + strconv.FormatFloat(ahead.Seconds(), 'f', -1, 64),
		"DONT_FAKE_MONOTONIC=1", "FAKETIME_DONT_FAKE_MONOTONIC=1",
	}, true
}
