//go:build linux || darwin || freebsd

package main

import (
	"time"

	"github.com/leasehold-go/leasehold/dsync/admin"
	"github.com/leasehold-go/leasehold/dsync/driver"
	"github.com/leasehold-go/leasehold/internal/engine"
	"github.com/spf13/cobra"
)

func newRun(a *app) *cobra.Command {
	j := &job{kind: driver.KindMutex, weight: 1, limit: 1}
	var shared, exclusive bool
	var atMost int64
	var tick string
	c := &cobra.Command{
		Use:   "run [flags] KEY -- COMMAND [ARG...]",
		Short: "Run a command while holding a lock: flock(1) for a fleet",
		Long: `run waits until KEY is free in the whole fleet, runs the command while it holds KEY,
and exits with the command's status. Waiters are served in FIFO order.

With --at-least the key stays held for that long, by the server's clock, even if the
command ends sooner. Then a crontab line with --try and --at-least on many hosts runs once
each time, if the hosts' clocks differ by less than that.

A tick is one time of a schedule. With --tick, a command that has succeeded for a tick is
not run again, on any host, for that tick or an earlier one: run says so and exits with 0
at once. While the command runs on another host, run waits; if it fails there, or that
host dies, run runs it here. If it fails on all hosts, the tick is over when the next one
has succeeded.

Give the tick in RFC 3339, or give the interval of the schedule, which must divide a day
evenly. With an interval, the tick is the last one that is due: the last multiple of the
interval since midnight UTC, by this host's clock. So a late run, by hand or after a
restart, is for the tick that is due and not for the next one. A tick is due a tenth of
the interval early, 30s at most, for hosts whose clocks are a little behind. run prints the
tick that it runs for. KEY is a dsync.Periodic; use it only with --tick.

The ticks of an interval are counted in UTC, so they do not move when clocks change in
spring and autumn: with --tick 1h every hour has its tick. With --tick 24h a daily crontab
line in local time runs once a day, unless its time is within two hours of midnight UTC:
then two local days can fall into one UTC day. In that case name the day:
--tick "$(date +%F)T00:00:00Z" is one tick for each local date, even where 02:30 comes
twice. In a crontab write \%F: cron takes a bare % for the end of the line.

With -n N up to N commands run at the same time in the whole fleet: KEY is a dsync.Semaphore
of size N. With --shared the command runs at the same time as others with --shared, with
--exclusive alone: KEY is a dsync.RWMutex. Use a key in only one of these ways.

The command's environment has

  LEASEHOLD_KEY    the key
  LEASEHOLD_TOKEN  the fencing token: greater than that of every earlier holder
  LEASEHOLD_TICK   with --tick: the tick, in RFC 3339
` + commandHelp,
		Example: `  leasehold run invoices -- ./invoices.sh
  leasehold run --try nightly -- ./backup.sh || echo "somebody else does it"
  leasehold run --try --at-least 50s report -- ./report.sh  # from crontab, on ten hosts
  leasehold run --quiet --tick 5m sync -- ./sync.sh  # every five minutes, from crontab, on ten hosts
  leasehold run --tick "$(date +%F)T02:00:00Z" nightly -- ./backup.sh  # each day, by the local date; \%F in a crontab
  leasehold run -n 3 thumbnails -- ./thumbnail.sh "$1"
  leasehold run --timeout 5m --ttl 1m --grace 10s db -- make migrate
  leasehold run deploy -- sh -c 'kubectl apply -f . && echo "token $LEASEHOLD_TOKEN"'`,
		Args:                  j.parse,
		ValidArgsFunction:     a.completeKeys(cobra.ShellCompDirectiveDefault, isLock),
		DisableFlagsInUseLine: true,
		RunE: func(cmd *cobra.Command, _ []string) error {
			n, ticks := cmd.Flags().Changed("at-most"), cmd.Flags().Changed("tick")
			switch {
			case ticks && (n || shared || exclusive || j.atLeast > 0):
				return usagef("--tick can't be used with -n, --shared, --exclusive or --at-least")
			case ticks:
				at, err := tickOf(tick, time.Now())
				if err != nil {
					return err
				}
				j.kind, j.tick = driver.KindPeriodic, at
			case shared && exclusive, n && (shared || exclusive):
				return usagef("-n, --shared and --exclusive are three ways to use a key; choose one")
			case n && atMost < 1:
				return usagef("-n is %d; it must be at least 1", atMost)
			case n:
				j.kind, j.limit = driver.KindSemaphore, atMost
			case shared:
				j.kind, j.limit = driver.KindRWMutex, engine.RWLimit
			case exclusive:
				j.kind, j.weight, j.limit = driver.KindRWMutex, engine.RWLimit, engine.RWLimit
			}
			return j.run(cmd.Context(), a)
		},
	}
	c.Flags().Int64VarP(&atMost, "at-most", "n", 0, "run up to this many commands at the same time; all must give the same number")
	c.Flags().BoolVar(&shared, "shared", false, "run at the same time as others with --shared")
	c.Flags().BoolVar(&exclusive, "exclusive", false, "run alone, while others use --shared")
	c.Flags().DurationVar(&j.atLeast, "at-least", 0, "keep the key held for this long, even if the command ends sooner")
	c.Flags().StringVar(&tick, "tick", "", "run only once in the fleet for this tick of a schedule: a time in RFC 3339, or the schedule's interval, such as 5m")
	c.Flags().BoolVar(&j.quiet, "quiet", false, "don't print which tick the command runs for, or that it is not run because it has already succeeded")
	j.flagsWait(c)
	j.flagGrace(c)
	return c
}

// tickOf returns the tick for the value of --tick, in milliseconds: the given time, or the last multiple of the given
// interval that is due. A multiple counts as due a little early, because the clock of the host that started the command
// may be ahead of this host's clock. tickOf does not round to the nearest multiple, because a late run would then take
// the next run's tick.
func tickOf(flag string, now time.Time) (int64, error) {
	at, err := time.Parse(time.RFC3339, flag)
	if d, bad := time.ParseDuration(flag); bad == nil {
		if d < time.Second || 24*time.Hour%d != 0 {
			return 0, usagef("--tick is %v; an interval must be at least 1s and divide a day evenly, as 5m does", d)
		}
		at = now.Add(min(d/10, 30*time.Second)).Truncate(d)
	} else if err != nil {
		return 0, usagef("--tick is %q; it must be a time such as 2026-11-01T02:00:00Z, or an interval such as 5m", flag)
	}
	t, err := engine.TickAt(at)
	if err != nil {
		return 0, usagef("--tick is %s; it must be after 1970, in whole milliseconds", at.Format(time.RFC3339Nano))
	}
	return t, nil
}

// flagsWait defines the flags that limit the wait for the key.
func (j *job) flagsWait(c *cobra.Command) {
	c.Flags().BoolVar(&j.try, "try", false, "don't wait: exit with 112 if another process holds the key or waits for it")
	c.Flags().DurationVar(&j.timeout, "timeout", 0, "give up after waiting for this long, with exit status 113; 0s: never")
}

func newOnce(a *app) *cobra.Command {
	j := &job{kind: driver.KindOnce, weight: 1, limit: 1, tick: engine.OnceTick}
	c := &cobra.Command{
		Use:   "once [flags] KEY -- COMMAND [ARG...]",
		Short: "Run a command until it has succeeded once in the whole fleet",
		Long: `once runs the command while it holds KEY, unless it has already succeeded on any machine:
then once says so and exits with 0 at once. If the command fails, or its machine dies, the
next once with that KEY runs it. Go programs that use a dsync.Once of that key take part.

The store remembers that KEY is done until you call leasehold forget.

The command's environment has

  LEASEHOLD_KEY    the key
  LEASEHOLD_TOKEN  the fencing token: greater than that of every earlier attempt
` + commandHelp,
		Example: `  leasehold once migrate-2026-11 -- ./migrate.sh
  leasehold once --try "report-$(date +%F)" -- ./report.sh`,
		Args: j.parse,
		ValidArgsFunction: a.completeKeys(cobra.ShellCompDirectiveDefault, func(st admin.Status) bool {
			return st.Kind == driver.KindOnce && !st.Sealed
		}),
		DisableFlagsInUseLine: true,
		RunE:                  func(cmd *cobra.Command, _ []string) error { return j.run(cmd.Context(), a) },
	}
	c.Flags().BoolVar(&j.quiet, "quiet", false, "don't print that the command is not run because it has already succeeded")
	j.flagsWait(c)
	j.flagGrace(c)
	return c
}

// commandHelp is the part of the help that run, once and elect share.
const commandHelp = `
The command runs in a process group of its own. leasehold forwards SIGINT, SIGTERM and
SIGQUIT to the group, and SIGHUP, SIGUSR1 and SIGUSR2 to the command alone. It holds
the key until the command has ended, and then kills what is left of the group.
Processes that leave the group (setsid(1), daemons) are not killed. While there is no
command, before it and after it, the first signal makes leasehold release the key or leave the
queue, which takes longer if the server does not answer. The second signal ends leasehold
at once, with status 128+n, and the key becomes free when the TTL runs out.

The command has all open descriptors of leasehold, such as those of make's job server and
of systemd's sockets.

The command has the controlling terminal of leasehold, if there is one: it can read
from it and from /dev/tty, Ctrl-C interrupts it, and Ctrl-Z, fg and bg stop and continue
it. But while leasehold is stopped it sends no heartbeats: if it is not continued before
the lease runs out, the hold is lost.

The hold is lost if no heartbeat got through in time, or if somebody used leasehold
break. Then the group gets SIGTERM, and SIGKILL after its grace (--grace). The
grace is part of the lease, so the group is dead before the server gives the key to
anyone else. A second process, the keeper, runs the command and
enforces the deadline, which it receives after each heartbeat:

  - leasehold is killed with SIGKILL: the keeper kills the group at once; the key is
    free when the TTL runs out;
  - leasehold is frozen (SIGSTOP) or starved: the keeper sends SIGTERM at the
    deadline, and SIGKILL when the grace is over;
  - the keeper is killed: the command dies with it (on Linux), and leasehold kills the
    rest of the group before it releases the key;
  - the keeper is frozen: leasehold kills both when the hold is lost.

If both are frozen together, as when a virtual machine is stopped, neither can stop a
command that keeps running. When the keeper resumes, also after the machine slept, it
kills the group first. Until then only the fencing token can protect the command's data. If both are killed together, the command dies,
but its children may live on. A process that hangs in the kernel, on a dead NFS server
say, dies when the kernel returns; only root can kill one that runs as another user
(sudo).

On systems other than Linux a command whose keeper is killed lives until leasehold
has killed the group.
`

func newElect(a *app) *cobra.Command {
	j := &job{kind: driver.KindElection}
	c := &cobra.Command{
		Use:   "elect [flags] NAME -- COMMAND [ARG...]",
		Short: "Run a command on the one machine that is elected",
		Long: `elect campaigns in the election NAME and runs the command while this process is
the leader. Start it on every machine: the command runs on one of them, and on
another when that machine dies or is cut off, or the command ends.

When the command ends by itself, elect resigns and exits with the command's status:
the next candidate leads at once. Let systemd or Kubernetes restart elect to campaign
again. When the leadership is lost, elect stops the command and campaigns again by
itself.

Of the processes that wait, the one with the greatest --preference is elected: give the
machine that should lead a greater one than the others. It leads when the present leader
has ended.

Go programs that use package leader with the same name take part in the same election.
The command's environment has

  LEASEHOLD_KEY    the election's name
  LEASEHOLD_TERM   the number of the term, which grows by one with each leader
  LEASEHOLD_TOKEN  the fencing token: greater than that of every earlier leader
` + commandHelp,
		Example: `  leasehold elect reports -- ./reportd
  leasehold elect --name "$POD_NAME" --ttl 15s --grace 2s scheduler -- ./scheduler --port 8080`,
		Args:                  j.parse,
		ValidArgsFunction:     a.completeKeys(cobra.ShellCompDirectiveDefault, isElection),
		DisableFlagsInUseLine: true,
		RunE:                  func(cmd *cobra.Command, _ []string) error { return j.run(cmd.Context(), a) },
	}
	j.flagGrace(c)
	c.Flags().IntVar(&j.preference, "preference", 0, "rank among the candidates: the greatest of those who wait is elected")
	return c
}

// runners returns the subcommands that run a command under a lock.
func runners(a *app) []*cobra.Command {
	return []*cobra.Command{newRun(a), newOnce(a), newElect(a)}
}
