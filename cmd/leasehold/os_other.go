//go:build darwin || freebsd

package main

import "os"

func executable() (string, error) { return os.Executable() }

// reapOrphans does nothing: leasehold's only children are its keepers, which it waits for.
func reapOrphans() {}
