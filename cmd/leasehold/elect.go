//go:build linux || darwin || freebsd

package main

import (
	"github.com/leasehold-go/leasehold/dsync"
	"github.com/spf13/cobra"
)

func newElect(a *app) *cobra.Command {
	j := &job{kind: dsync.KindElection}
	c := &cobra.Command{
		Use:   "elect [flags] NAME -- COMMAND [ARG...]",
		Short: "Run a command on the one machine that is elected",
		Long: `elect campaigns in the election NAME and runs the command while this process is
the leader. Start it on every machine: the command runs on one of them, and on
another when that one dies, is cut off, or its command has ended.

When the command has ended by itself, whichever way, elect resigns and exits with
its status: whoever is next leads at once, and what restarts programs (systemd,
Kubernetes) has this one campaign again. When the leadership is lost, the command
is stopped and elect campaigns again by itself.

The election is the one that Go programs take part in with package leader, under the
same name. The command finds in its environment

  LEASEHOLD_KEY    the election's name
  LEASEHOLD_TERM   the number of the term: grows by one with each leader
  LEASEHOLD_TOKEN  the fencing token: greater than that of every earlier leader
` + commandHelp,
		Example: `  leasehold elect reports -- ./reportd
  leasehold elect --name "$POD_NAME" --ttl 15s --drain 2s scheduler -- ./scheduler --port 8080`,
		Args:                  j.parse,
		DisableFlagsInUseLine: true,
		RunE:                  func(cmd *cobra.Command, _ []string) error { return j.run(cmd.Context(), a) },
	}
	j.flagDrain(c)
	return c
}
