package main

import (
	"context"
	"errors"
	"fmt"
	"os"

	"github.com/leasehold-go/leasehold/cmd/leasehold/internal/keep"
	"github.com/leasehold-go/leasehold/dsync"
)

// The exit statuses of leasehold itself. [exitHelp] explains the choice of numbers.
const (
	exitFailed      = keep.ExitFailed      // any other failure
	exitUsage       = 111                  // the command line is wrong
	exitHeld        = 112                  // another process holds the key
	exitTimeout     = 113                  // --timeout ran out
	exitLost        = 114                  // the hold was lost while the command ran, so the command was stopped
	exitUnreachable = 115                  // no server answers, or confirms writes
	exitRefused     = 116                  // the server refused a command, for example because of missing rights
	exitClock       = 117                  // from the clock command: a clock is off, or may be
	exitNothing     = 118                  // there is no such key, election or process
	exitDoctor      = 119                  // from the doctor command: a check failed
	exitNotRunnable = keep.ExitNotRunnable // the command can't be run; the same as in env(1) and shells
	exitNotFound    = keep.ExitNotFound    // the command was not found; the same as in env(1) and shells
	exitSignal      = keep.ExitSignal      // plus the number of the signal that ended the command or leasehold
	exitInterrupted = exitSignal + 2
)

const exitHelp = `run, once and elect exit with the status of the command, or 128+n if signal n ended it,
as a shell does. The other statuses are leasehold's own:

    0  done
  110  failed for a reason that is not in this list
  111  usage: a wrong flag, argument or setting, such as a key that others use as
       another kind of lock
  112  held: another process holds the key (--try)
  113  time-out: --timeout ran out before the key was free
  114  lost: the lease ran out, or the key was broken, while the command ran;
       the command was stopped
  115  unreachable: no server answers or confirms writes, or its name can't be
       looked up
  116  refused: the server answers but refuses (no rights, wrong password, …)
  117  clock: a clock is off, or may be off
  118  nothing: there is no such key, election or process to show or to break
  119  doctor: a check failed, so something must be done
  126  the command can't be run (it is not executable, say)
  127  the command was not found
  130  interrupted (128+2); 143 terminated (128+15)

A command may exit with any of these itself, but hardly any uses 110 to 119:
sysexits(3) has 64 to 78, timeout(1) and env(1) have 124 to 127, shells 126 to 165,
systemd 200 and above. If leasehold itself fails, with 110 to 119, 126 or 127, the
last line on standard error begins with "leasehold: " and says why.
`

// A failure is an error with an exit status.
type failure struct {
	status int
	err    error // nil: print nothing
}

func (f *failure) Error() string {
	if f.err == nil {
		return fmt.Sprintf("exit status %d", f.status)
	}
	return f.err.Error()
}

func (f *failure) Unwrap() error { return f.err }

// usage returns the failure for a wrong command line.
func usage(err error) *failure { return &failure{exitUsage, err} }

// usagef is usage with a format.
func usagef(format string, args ...any) *failure { return usage(fmt.Errorf(format, args...)) }

// nothing returns the failure for something that does not exist, such as a key.
func nothing(what string) *failure {
	return &failure{exitNothing, fmt.Errorf("%s; is it another --db or --collection?", what)}
}

// failed returns err as a failure with the exit status for its kind. If err is nil or a failure
// already, it is returned unchanged.
func failed(err error) error {
	var f *failure
	switch {
	case err == nil:
		return nil
	case errors.As(err, &f):
		return f
	case errors.Is(err, dsync.ErrInvalidKey), errors.Is(err, dsync.ErrMismatch):
		return usage(err)
	case errors.Is(err, dsync.ErrHeld):
		return &failure{exitHeld, err}
	case errors.Is(err, dsync.ErrLost):
		return &failure{exitLost, err}
	case errors.Is(err, dsync.ErrRefused):
		return refused(err)
	case errors.Is(err, context.DeadlineExceeded), errors.Is(err, os.ErrDeadlineExceeded):
		return &failure{exitTimeout, err}
	case errors.Is(err, context.Canceled):
		return &failure{status: exitInterrupted}
	}
	return &failure{exitFailed, err}
}
