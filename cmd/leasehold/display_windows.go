package main

import (
	"os"

	"golang.org/x/sys/windows"
)

// takesEscapes reports whether a console understands escape sequences. It first enables them.
func takesEscapes(console *os.File) bool {
	var mode uint32
	h := windows.Handle(console.Fd())
	return windows.GetConsoleMode(h, &mode) == nil &&
		windows.SetConsoleMode(h, mode|windows.ENABLE_VIRTUAL_TERMINAL_PROCESSING) == nil
}
