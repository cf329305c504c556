package main

import (
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"
)

// newRoot returns the command with all its commands.
func newRoot(a *app) *cobra.Command {
	root := &cobra.Command{
		Use:   "leasehold",
		Short: "Distributed locks and leader election on MongoDB, for shells, cron and Kubernetes",
		Long: `leasehold runs commands under locks that a whole fleet respects, or on the one
machine that is elected, and shows who holds what. All it needs is a MongoDB, and
find, insert, update and remove on one collection of it; with changeStream, too, who
waits is told at once.

Every process that is to share locks names the same --uri, --db and --collection.`,
		Example: `  export MONGODB_URI=mongodb://db1,db2,db3/app?replicaSet=rs0
  leasehold run invoices -- ./invoices.sh        # one at a time in the fleet
  leasehold run --try nightly -- ./backup.sh     # or not at all
  leasehold elect reports -- ./reportd           # on one machine, and on another if it dies
  leasehold status                               # who holds what, and who waits`,
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) == 0 {
				return nil
			}
			hint := "see leasehold --help"
			if near := cmd.SuggestionsFor(args[0]); len(near) > 0 {
				hint = "did you mean " + strings.Join(near, ", ") + "?"
			}
			return fmt.Errorf("unknown command %q; %s", args[0], hint)
		},
		RunE:                       func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
		SilenceErrors:              true,
		SilenceUsage:               true,
		SuggestionsMinimumDistance: 2,
	}
	root.SetIn(a.stdin)
	root.SetOut(a.stdout)
	root.SetErr(a.stderr)

	f := root.PersistentFlags()
	f.StringVar(&a.target.uri, "uri", "", "connection string of the MongoDB (default $MONGODB_URI)")
	f.StringVar(&a.target.db, "db", "", `database (default: that of the connection string, else "leasehold")`)
	f.StringVar(&a.target.collection, "collection", "leasehold", "collection that everything is kept in")
	f.DurationVar(&a.target.ttl, "ttl", 30*time.Second, "how long after its last heartbeat a process that died holds what it held; at least 1s")
	f.StringVar(&a.target.name, "name", "", "identity that is shown to others (default: the host's name)")
	f.DurationVar(&a.target.timeout, "connect-timeout", 10*time.Second, "how long to try to reach the server at first")

	root.AddCommand(newStatus(a), newWatch(a), newMembers(a), newBreak(a), newClock(a), newBench(a), newMan())
	root.AddCommand(runners(a)...)
	for _, c := range root.Commands() {
		run := c.RunE
		c.RunE = func(cmd *cobra.Command, args []string) error { return failed(run(cmd, args)) }
	}
	root.AddCommand(&cobra.Command{Use: "exit-status", Short: "The exit statuses", Long: exitHelp})
	return root
}
