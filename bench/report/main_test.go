package main

import (
	"log/slog"
	"testing"
)

// TestMain lets this binary be the children of the report that it makes.
func TestMain(m *testing.M) {
	slog.SetLogLoggerLevel(slog.LevelError)
	childMain()
	m.Run()
}
