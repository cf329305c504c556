package main

import (
	"testing"
)

// TestMain lets this binary be the children of the report that it makes.
func TestMain(m *testing.M) {
	childMain()
	m.Run()
}
