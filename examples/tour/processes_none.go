//go:build !mongodb

package main

import "errors"

// errNoDriver is what -uri gets in a tour for a store in memory, whose first run need not compile the driver.
var errNoDriver = errors.New("for -uri, build the tour with MongoDB's driver: go run -tags mongodb ./examples/tour -uri …")

func newProcesses(string) (crew, error) { return nil, errNoDriver }

func runWorker(string, string, part) error { return errNoDriver }
