// Leasehold runs commands under distributed locks and elections that are kept in MongoDB, and shows
// and breaks such locks.
//
//	leasehold run KEY -- command args…      run a command while holding a lock
//	leasehold once KEY -- command args…     run a command until it has succeeded once
//	leasehold elect NAME -- command args…   run a command while being the leader
//	leasehold agent                         hold locks for programs in other languages, over HTTP
//	leasehold status [PREFIX]               show the holders and waiters of keys
//	leasehold break KEY                     make the holders of a key release it
//	leasehold forget KEY                    forget a key that nobody uses
//	leasehold members [NAME]                show the live processes, or those in an election
//	leasehold serve                         serve a page that shows all of this
//	leasehold clock                         measure how far the clocks are apart
//	leasehold doctor                        check the server, the rights and the connection string
//	leasehold completion SHELL              print a script that completes commands, flags and keys
//
// --uri or MONGODB_URI names the server. See each command's --help for details.
//
// # Commands under a lock
//
// leasehold run waits for KEY (not at all with --try, for a limited time with --timeout), runs the command, and exits
// with its status. leasehold elect runs the command while this process leads, and campaigns again when the leadership
// is lost. The command's environment has LEASEHOLD_KEY, LEASEHOLD_TOKEN and, in an election, LEASEHOLD_TERM. The
// command runs in a process group of its own. When leasehold gets a signal, it forwards the signal to the command.
// While no command runs, the second signal ends leasehold at once. The command inherits leasehold's open descriptors.
// It can use the terminal, if there is one, and take part in the shell's job control. No process of the group outlives
// the hold.
//
// When the hold is lost, the group gets SIGTERM, and SIGKILL after its grace (--grace). The grace is part of the lease,
// so the group is dead before the server gives the key to anyone else. Two processes enforce this independently:
// leasehold has the session, and its keeper runs the command and receives the new deadline after each heartbeat. So the
// keeper stops the command in time if leasehold is frozen (SIGSTOP), starved or cut off, and at once if leasehold is
// killed. Leasehold kills the group if the keeper is frozen or killed. If both are frozen for longer than the lease,
// for example because their virtual machine is paused, the keeper kills the group as soon as they resume. Until then
// only the fencing token can protect the command's data: see leasehold run --help.
//
// # Exit status
//
// The exit status is that of the command, 128+n if signal n ended it, or one of leasehold's own:
// 110 failed, 111 usage, 112 held by another, 113 time-out, 114 lost, 115 unreachable, 116 refused
// by the server, 117 a clock is off, 118 no such key, 119 the doctor has found something, 126 and 127 as in a shell. See leasehold help
// exit-status.
package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"runtime"
	"runtime/debug"
	"strings"
	"time"

	"github.com/leasehold-go/leasehold/dsync/driver"
	"github.com/spf13/cobra"
)

func main() {
	a := &app{stdin: os.Stdin, stdout: os.Stdout, stderr: os.Stderr, getenv: os.Getenv}
	os.Exit(a.main(context.Background(), os.Args[1:]))
}

// An app is leasehold with its inputs and outputs, which tests replace.
type app struct {
	stdin          io.Reader
	stdout, stderr io.Writer
	getenv         func(string) string
	store          driver.Store // nil: MongoDB; tests use a store in memory
	target         target       // from the flags
	trace          string       // from the flags: a file name, or ""
	frame          *display     // if not nil, stdout is a buffer whose text will be shown on this display
	noKeeper       bool         // for tests in bubbles, whose time stands still while a goroutine reads from a process
}

// main runs the command line and returns the exit status.
func (a *app) main(ctx context.Context, args []string) int {
	root := newRoot(a)
	root.SetArgs(args)
	err := root.ExecuteContext(ctx)
	var f *failure
	if err != nil && !errors.As(err, &f) {
		f = usage(err) // from cobra; the commands return failures: see newRoot
	}
	switch {
	case f == nil:
		return 0
	case f.err != nil:
		a.say(f)
	}
	return f.status
}

// say prints err on one line, even if its message has several lines.
func (a *app) say(err error) {
	fmt.Fprintf(a.stderr, "leasehold: %s\n", oneLine(err))
}

// newRoot returns the root command with all its subcommands.
func newRoot(a *app) *cobra.Command {
	root := &cobra.Command{
		Use:   "leasehold",
		Short: "Distributed locks and leader election on MongoDB, for shells, cron and Kubernetes",
		Long: `leasehold runs commands under locks that a whole fleet respects, or on the one
machine that is elected, and shows the holders. It needs a MongoDB, and the rights
to find, insert, update and remove on one collection. With readWrite on the database it
can also notify waiters at once; without readWrite they poll.

All processes that share locks must use the same --uri, --db and --collection.`,
		Example: `  export MONGODB_URI=mongodb://db1,db2,db3/app?replicaSet=rs0
  leasehold run invoices -- ./invoices.sh        # one at a time in the fleet
  leasehold run --try nightly -- ./backup.sh     # or not at all
  leasehold elect reports -- ./reportd           # on one machine, and on another if it dies
  leasehold status                               # the holders and waiters of all keys`,
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) == 0 {
				return nil
			}
			return unknownCommand(cmd, args[0])
		},
		RunE:                       func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
		Version:                    version(),
		PersistentPreRunE:          refuseNegative,
		SilenceErrors:              true,
		SilenceUsage:               true,
		SuggestionsMinimumDistance: 2,
	}
	root.SetIn(a.stdin)
	root.SetOut(a.stdout)
	root.SetErr(a.stderr)
	root.SetFlagErrorFunc(flagError)
	root.SetVersionTemplate("{{.Name}} {{.Version}}\n")
	root.Flags().Bool("version", false, "print the version, and the Go version and platform of the build")

	f := root.PersistentFlags()
	f.StringVar(&a.target.uri, "uri", "", "MongoDB connection string (default $MONGODB_URI)")
	f.StringVar(&a.target.db, "db", "", `database (default: that of the connection string, else "leasehold")`)
	f.StringVar(&a.target.collection, "collection", "leasehold", "collection that holds the locks")
	f.DurationVar(&a.target.ttl, "ttl", 30*time.Second, "time after its last heartbeat until the locks of a crashed process become free; at least 1s")
	f.StringVar(&a.target.name, "name", "", "this process's name, as shown to others (default: the host's name)")
	f.DurationVar(&a.target.timeout, "connect-timeout", 10*time.Second, "how long to try to reach the server at startup")
	f.StringVar(&a.trace, "trace", "", "file to write the session's events to, for a bug report")
	f.MarkHidden("trace")

	root.AddCommand(newStatus(a), newMembers(a), newServe(a), newAgent(a), newBreak(a), newForget(a), newClock(a), newDoctor(a), newMan())
	root.AddCommand(runners(a)...)
	for _, c := range root.Commands() {
		run := c.RunE
		c.RunE = func(cmd *cobra.Command, args []string) error { return failed(run(cmd, args)) }
	}
	root.AddCommand(&cobra.Command{Use: "exit-status", Short: "The exit statuses", Long: exitHelp})
	root.InitDefaultHelpCmd()
	root.InitDefaultCompletionCmd()
	for _, c := range root.Commands() {
		switch c.Name() {
		case "help":
			c.Args = helpTopic
		case "completion":
			// For an unknown shell cobra would print its help and exit with 0.
			c.Args, c.RunE = arguments(1, 1, "one of the shells bash, zsh, fish and powershell"), func(_ *cobra.Command, args []string) error {
				return usagef("completion has no script for %q, only for bash, zsh, fish and powershell", args[0])
			}
		}
	}
	return root
}

// unknownCommand returns the error for the name of a command that does not exist.
func unknownCommand(root *cobra.Command, name string) error {
	hint := "see leasehold --help"
	if near := root.SuggestionsFor(name); len(near) > 0 {
		hint = "did you mean " + strings.Join(near, ", ") + "?"
	}
	return fmt.Errorf("unknown command %q; %s", name, hint)
}

// helpTopic returns an error if there is no help on the topic that args name. For such a topic, cobra
// would print other help.
func helpTopic(help *cobra.Command, args []string) error {
	switch topic, rest, err := help.Root().Find(args); {
	case topic == help.Root() && len(rest) > 0:
		return unknownCommand(topic, rest[0])
	case err != nil, len(rest) > 0:
		return fmt.Errorf("there is no help on %q; see %s --help", strings.Join(args, " "), topic.CommandPath())
	}
	return nil
}

// arguments returns a check that the number of arguments is between least and most. The error quotes the parameter
// what, which describes the arguments that the command takes.
func arguments(least, most int, what string) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		if len(args) >= least && len(args) <= most {
			return nil
		}
		return fmt.Errorf("%s takes %s and nothing else, not %d arguments; see %s --help", cmd.Name(), what, len(args), cmd.CommandPath())
	}
}

// version describes this build: the module's version, the Go version and the platform. The go
// command sets the module's version; in a repository it derives the version from the commit (unless
// -buildvcs=false).
func version() string {
	var module string
	if info, ok := debug.ReadBuildInfo(); ok {
		module = info.Main.Version
	}
	return fmt.Sprintf("%s (%s, %s/%s)", cmp.Or(module, "(devel)"), runtime.Version(), runtime.GOOS, runtime.GOARCH)
}
