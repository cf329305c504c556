//go:build linux || darwin || freebsd

package main

import "github.com/spf13/cobra"

// runners returns the commands that run commands.
func runners(a *app) []*cobra.Command { return []*cobra.Command{newRun(a), newElect(a), newKeep()} }
