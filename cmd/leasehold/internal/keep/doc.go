// Package keep is the keeper: the process that runs the command of leasehold run, and stops it at a deadline, whatever
// happens to leasehold. As long as the hold lasts, leasehold extends the deadline again and again. To stay simple, the
// keeper knows nothing about stores and keys.
//
// The keeper is the same program as leasehold, with other arguments. Go initializes all packages of a program before
// main, and for MongoDB's driver and cobra that takes longer than a keeper's whole work. So the keeper runs, and exits,
// while this package is initialized. Packages are initialized in the order of their import paths, as far as their
// imports allow. So those of other modules come later, if this package imports only what is needed below package fmt:
// neither encoding/json nor os/exec nor golang.org/x. TestKeeperInitializesLittle fails if an import changes that.
//
// On systems other than Linux the package imports golang.org/x/sys/unix, so its keepers start more slowly.
package keep

// The exit statuses for a command that did not start, the same as in env(1) and shells, and for any other failure. A
// command that a signal ended has ExitSignal plus the signal's number.
const (
	ExitFailed      = 110
	ExitNotRunnable = 126
	ExitNotFound    = 127
	ExitSignal      = 128
)
