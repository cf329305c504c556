//go:build linux || darwin || freebsd

package main

import (
	"os"
	"testing"
)

// The test binary is its own leasehold: what starts a keeper runs it again.
func TestMain(m *testing.M) {
	if len(os.Args) > 1 && os.Args[1] == keepName {
		main()
	}
	os.Exit(m.Run())
}
