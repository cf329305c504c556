package main

import (
	"cmp"
	"fmt"
	"runtime"
	"runtime/debug"
)

// version describes this build: the module's version, and what it was built with and for.
// The go command sets the module's version, from the commit if it builds a repository (unless
// -buildvcs=false).
func version() string {
	var module string
	if info, ok := debug.ReadBuildInfo(); ok {
		module = info.Main.Version
	}
	return fmt.Sprintf("%s (%s, %s/%s)", cmp.Or(module, "(devel)"), runtime.Version(), runtime.GOOS, runtime.GOARCH)
}
