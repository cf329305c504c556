// Leasehold runs commands under distributed locks and elections that live in a
// MongoDB, and shows and breaks them, without a line of Go.
//
//	leasehold run KEY -- command args…      run a command while holding a lock
//	leasehold elect NAME -- command args…   run a command while being the leader
//	leasehold status [PREFIX]               show who holds which keys, and who waits
//	leasehold watch [PREFIX…]               show what happens to keys, as it happens
//	leasehold break KEY                     have those who hold a key give it up
//	leasehold members [NAME]                show the processes that are alive, or an election's members
//	leasehold clock                         measure how far the clocks are apart
//	leasehold bench                         measure whether a server is good enough
//
// The server is that of --uri or MONGODB_URI. Each command says more with --help.
//
// # Commands under a lock
//
// leasehold run waits for KEY, or with --try or --timeout not or not for ever, runs the
// command, and exits with its status. leasehold elect runs it while this process leads,
// and campaigns again when the leadership is lost. The command finds LEASEHOLD_KEY,
// LEASEHOLD_TOKEN and, of an election, LEASEHOLD_TERM in its environment, runs in a
// process group of its own, gets the signals that leasehold gets, and nothing that it
// leaves in the group outlives the hold.
//
// When the hold is lost the group gets SIGTERM, and --drain later SIGKILL: it is dead
// before the server gives the key to anyone else, since both are in the session's
// grace, which is taken out of the lease. Two processes see to that, each without the
// other: leasehold, which has the session, and its keeper, which runs the command and
// is told the deadline after each heartbeat. So the command is stopped in time also
// when leasehold is frozen (SIGSTOP), starved or cut off, and at once when it is killed;
// and leasehold kills the group when the keeper is frozen or killed. If both are
// frozen for longer than the lease, as when a virtual machine is stopped, the keeper
// kills the group when they go on, and what the command does in that moment is for the
// fencing token to refuse: see leasehold run --help.
//
// # Exit status
//
// That of the command, 128+n if signal n ended it, and of leasehold itself: 110 failed,
// 111 usage, 112 held by another, 113 time-out, 114 lost, 115 unreachable, 116 refused
// by the server, 126 and 127 as in a shell: see leasehold help exit-status.
package main

import (
	"context"
	"os"
)

func main() {
	a := &app{stdin: os.Stdin, stdout: os.Stdout, stderr: os.Stderr, getenv: os.Getenv}
	os.Exit(a.main(context.Background(), os.Args[1:]))
}
