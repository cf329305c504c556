package main

import (
	"log/slog"
	"testing"
)

// TestMain lets the test binary run as a child of the report.
func TestMain(m *testing.M) {
	slog.SetLogLoggerLevel(slog.LevelError)
	childMain()
	lockerMain()
	m.Run()
}
