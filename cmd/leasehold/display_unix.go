//go:build !windows

package main

import "os"

// takesEscapes reports whether a terminal understands escape sequences.
func takesEscapes(*os.File) bool { return true }
