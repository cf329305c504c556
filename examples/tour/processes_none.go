//go:build !mongodb

package main

import "errors"

// errNoDriver is returned for -uri if the tour was built without MongoDB's driver.
var errNoDriver = errors.New("for -uri, build the tour with MongoDB's driver: go run -tags mongodb ./examples/tour -uri …")

func newProcesses(string) (crew, error) { return nil, errNoDriver }

func runWorker(string, string, part) error { return errNoDriver }
