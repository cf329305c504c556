//go:build linux || darwin || freebsd

package main

import (
	"github.com/leasehold-go/leasehold/dsync"
	"github.com/spf13/cobra"
)

func newRun(a *app) *cobra.Command {
	j := &job{kind: dsync.KindMutex}
	c := &cobra.Command{
		Use:   "run [flags] KEY -- COMMAND [ARG...]",
		Short: "Run a command while holding a lock: flock(1) for a fleet",
		Long: `run waits until KEY is free in the whole fleet, runs the command while it holds it,
and exits with the command's status. Who asks first is served first.

The command finds in its environment

  LEASEHOLD_KEY    the key
  LEASEHOLD_TOKEN  the fencing token: greater than that of every earlier holder
` + commandHelp,
		Example: `  leasehold run invoices -- ./invoices.sh
  leasehold run --try nightly -- ./backup.sh || echo "somebody else does it"
  leasehold run --timeout 5m --ttl 1m --drain 10s db -- make migrate
  leasehold run deploy -- sh -c 'kubectl apply -f . && echo "token $LEASEHOLD_TOKEN"'`,
		Args:                  j.parse,
		DisableFlagsInUseLine: true,
		RunE:                  func(cmd *cobra.Command, _ []string) error { return j.run(cmd.Context(), a) },
	}
	c.Flags().BoolVar(&j.try, "try", false, "don't wait: exit with 112 if somebody else holds the key or waits for it")
	c.Flags().DurationVar(&j.timeout, "timeout", 0, "give up waiting after this time, with exit status 113; 0s: never")
	c.MarkFlagsMutuallyExclusive("try", "timeout")
	j.flagDrain(c)
	return c
}

// commandHelp is what is to be said of the commands of run and elect alike.
const commandHelp = `
It runs in a process group of its own, without a terminal to control. SIGINT,
SIGTERM and SIGQUIT are forwarded to the group, SIGHUP, SIGUSR1 and SIGUSR2 to the
command alone; the key is held until it has ended. What it leaves behind in its
group is killed then. What leaves the group (setsid(1), daemons) is on its own.

When the hold is lost, since no heartbeat got through in time or somebody used
leasehold break, the group gets SIGTERM, and --drain later SIGKILL. Both are in the
session's grace, which is taken out of the lease: the group is dead before the
server gives the key to anyone else. A second process, the keeper, sees to that: it
runs the command, is told the deadline after each heartbeat, and needs nobody to
keep it. So

  - leasehold killed with SIGKILL: the keeper kills the group at once; the key is
    free when the TTL is over;
  - leasehold frozen (SIGSTOP) or starved: SIGTERM at the deadline, SIGKILL --drain
    later. The command runs until then and no further;
  - the keeper killed: the command dies with it (on Linux), and leasehold kills the
    rest of the group before it gives the key back;
  - the keeper frozen: leasehold kills both when the hold is lost.

If both are frozen together, as when a virtual machine is stopped, nobody is there
to stop a command that is not frozen with them. The first thing that the keeper does
when it goes on, also after the machine slept, is to kill the group. What the command
does in that moment is refused where its data is guarded with the fencing token.
If both are killed together, the command dies, and its own children may live on.
A process that hangs in the kernel, on a dead NFS say, dies when that lets go of it;
one that has made itself another user's (sudo) can be killed by root only.

On systems other than Linux the command outlives its keeper if that is killed, until
leasehold has killed the group.
`
