//go:build linux || darwin || freebsd

package main

// A report is what the keeper tells leasehold: a line of JSON. The first says that
// the command was started, the last one that it has ended or did not start.
type report struct {
	Started int    // the command's process id, which is that of its group
	Failed  string // why it did not start
	Status  int    // to exit with
	Stopped bool   // the keeper stopped it, since the deadline had passed
}
