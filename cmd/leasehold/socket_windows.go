package main

import (
	"os"
	"syscall"
)

// lockFolder does nothing: Windows has no such lock.
func lockFolder(string) (unlock func(), err error) { return func() {}, nil }

// modeBeforeName does nothing: on Windows a socket has the rights of its folder.
func modeBeforeName(os.FileMode) func(network, address string, c syscall.RawConn) error { return nil }
