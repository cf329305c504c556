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
command ends sooner. On many hosts whose clocks differ by less than that, a crontab line
with --try and --at-least runs once each time.

With --tick a command that has succeeded for a tick is not run for it again, nor for an
earlier tick, by whatever host: then run says so and exits with 0 at once. While it runs
elsewhere, run waits, and if it fails there, or that host dies, runs it here. If it fails
on all hosts, the tick is over when the next one has succeeded. A tick is the time of a
schedule. Say it in RFC 3339, or say the interval of the schedule, which must divide a
day: then it is the last tick that is due, that is, the last multiple of the interval since
midnight UTC by this host's clock. So a run that comes late, by hand or after a restart,
is for what is due and not for what comes next. A tick counts as due a tenth of the interval
before its time, 30s at most, for hosts whose clocks are a little behind. run says which
tick it runs for. KEY is a dsync.Periodic; use it with --tick only.

The ticks of an interval are counted in UTC, so they do not move when clocks change in
spring and autumn: with --tick 1h every hour that passes has its tick. With --tick 24h a
daily crontab line in local time runs once a day, unless its time is within two hours
of midnight UTC: there two of its days can fall into one day of UTC. Then name the day:
--tick "$(date +%F)T00:00:00Z" is one tick for each local date, also where 02:30 comes
twice. In a crontab write \%F: cron takes a bare % for the end of the line.

With -n N up to N commands run at the same time in the whole fleet: KEY is a dsync.Semaphore
of N. With --shared the command runs beside others with --shared, with --exclusive alone: KEY
is a dsync.RWMutex. Use a key in one of these ways only.

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
	c.Flags().Int64VarP(&atMost, "at-most", "n", 0, "run up to this many commands at the same time; all must say the same number")
	c.Flags().BoolVar(&shared, "shared", false, "run beside others with --shared")
	c.Flags().BoolVar(&exclusive, "exclusive", false, "run alone, where others use --shared")
	c.Flags().DurationVar(&j.atLeast, "at-least", 0, "keep the key held for this long, even if the command ends sooner")
	c.Flags().StringVar(&tick, "tick", "", "run once for this tick: a time in RFC 3339, or the interval of the schedule, such as 5m")
	c.Flags().BoolVar(&j.quiet, "quiet", false, "don't say which tick the command runs for, or that it has succeeded before and is not run")
	j.flagsWait(c)
	j.flagGrace(c)
	return c
}

// tickOf returns the tick that a flag says, in milliseconds: a time, or the last multiple of an interval that
// is due by now. A multiple counts as due a little before its time: what starts the command, another host's
// clock say, may be ahead of this one. It is not the nearest, or a run that is late would be the next one's.
func tickOf(flag string, now time.Time) (int64, error) {
	at, err := time.Parse(time.RFC3339, flag)
	if d, bad := time.ParseDuration(flag); bad == nil {
		if d < time.Second || 24*time.Hour%d != 0 {
			return 0, usagef("--tick is %v; an interval must be at least 1s, and a day a multiple of it, as of 5m", d)
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

// flagsWait defines the flags of those that may not wait.
func (j *job) flagsWait(c *cobra.Command) {
	c.Flags().BoolVar(&j.try, "try", false, "don't wait: exit with 112 if somebody else holds the key or waits for it")
	c.Flags().DurationVar(&j.timeout, "timeout", 0, "give up waiting after this time, with exit status 113; 0s: never")
}

func newOnce(a *app) *cobra.Command {
	j := &job{kind: driver.KindOnce, weight: 1, limit: 1, tick: 1}
	c := &cobra.Command{
		Use:   "once [flags] KEY -- COMMAND [ARG...]",
		Short: "Run a command until it has succeeded once in the whole fleet",
		Long: `once runs the command while it holds KEY, unless it has succeeded before, on whatever
machine: then once says so and exits with 0 at once. If the command fails, or its machine dies, the
next once with that KEY runs it. Go programs that use a dsync.Once of that key take part.

That KEY was done is remembered until it is forgotten: see leasehold forget.

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
	c.Flags().BoolVar(&j.quiet, "quiet", false, "don't say that the command has succeeded before and is not run")
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
command, before it and after it, the first signal makes leasehold give up the key or its
place in the queue, which takes longer if the server does not answer; the second ends it
at once, with 128+n, and the key is free when the TTL runs out.

The command has all open descriptors of leasehold, such as those of make's job server and
of systemd's sockets.

The command has the controlling terminal of leasehold, if there is one: it can read
from it and from /dev/tty, Ctrl-C interrupts it, and Ctrl-Z, fg and bg stop and continue
it. But while leasehold is stopped it sends no heartbeats: if it is not continued before
the lease runs out, the hold is lost.

The hold is lost if no heartbeat got through in time, or if somebody used leasehold
break. Then the group gets SIGTERM, and SIGKILL when its grace (--grace) is over. The
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
kills the group first. What the command does in that moment is refused only where its
data is protected by the fencing token. If both are killed together, the command dies,
but its children may live on. A process that hangs in the kernel, on a dead NFS server
say, dies when the kernel returns; only root can kill one that runs as another user
(sudo).

On systems other than Linux a command whose keeper is killed lives until leasehold
has killed the group.
`

func newElect(a *app) *cobra.Command {
	j := &job{kind: driver.KindElection, weight: 1, limit: 1}
	c := &cobra.Command{
		Use:   "elect [flags] NAME -- COMMAND [ARG...]",
		Short: "Run a command on the one machine that is elected",
		Long: `elect campaigns in the election NAME and runs the command while this process is
the leader. Start it on every machine: the command runs on one of them, and on
another when that one dies, is cut off, or its command has ended.

When the command ends by itself, elect resigns and exits with the command's status:
the next candidate leads at once. Let systemd or Kubernetes restart elect to campaign
again. When the leadership is lost, elect stops the command and campaigns again by
itself.

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
	return c
}

// runners returns the commands that run commands.
func runners(a *app) []*cobra.Command {
	return []*cobra.Command{newRun(a), newOnce(a), newElect(a), newKeep()}
}
