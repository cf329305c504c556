package main

import (
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/leasehold-go/leasehold/dsync"
)

// An app is the command with what it has around it, which in tests is not the
// process's own.
type app struct {
	stdin          io.Reader
	stdout, stderr io.Writer
	getenv         func(string) string
	store          dsync.Store // in tests: instead of a server. Nil: MongoDB
	target         target      // as the flags say
}

// main runs the command line and returns the exit status.
func (a *app) main(ctx context.Context, args []string) int {
	root := newRoot(a)
	root.SetArgs(args)
	err := root.ExecuteContext(ctx)
	var f *failure
	if err != nil && !errors.As(err, &f) {
		f = usage(err) // a command's own errors are failures already: see newRoot
	}
	switch {
	case f == nil:
		return 0
	case f.err != nil:
		a.say(f)
	}
	return f.status
}

// say tells people of err, in one line, whatever a driver has to say.
func (a *app) say(err error) {
	fmt.Fprintf(a.stderr, "leasehold: %s\n", oneLine(err))
}
