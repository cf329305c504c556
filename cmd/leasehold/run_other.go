//go:build !linux && !darwin && !freebsd

package main

import "github.com/spf13/cobra"

// runners returns nothing: these systems have no process groups, or leasehold has not been tested
// on them.
func runners(*app) []*cobra.Command { return nil }
