//go:build linux || darwin || freebsd

package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os/exec"
	"sync"
	"syscall"
	"time"

	"github.com/leasehold-go/leasehold/cmd/leasehold/internal/keep"
	"github.com/leasehold-go/leasehold/dsync"
	"github.com/leasehold-go/leasehold/dsync/admin"
	"github.com/leasehold-go/leasehold/dsync/driver"
	"github.com/leasehold-go/leasehold/internal/engine"
	"github.com/spf13/cobra"
)

// A job is a command to run while a key is held.
type job struct {
	key        string
	kind       driver.Kind
	command    []string
	weight     int64 // how much of the limit the command uses
	limit      int64
	tick       int64 // run the command for this tick, unless a run for the tick has already succeeded; 0: no tick
	try        bool
	timeout    time.Duration // bounds the wait for the key; 0: unlimited
	quiet      bool          // print neither the tick nor that the command is skipped
	silence    silence       // reports when the server does not answer
	preference int           // of a candidate in an election
	atLeast    time.Duration // hold the key for at least this long, counted from its grant
	grace      time.Duration // the time from SIGTERM to SIGKILL when the hold is lost; negative: a tenth of the TTL
}

// parse reads the key and the command from the arguments of cmd.
func (j *job) parse(cmd *cobra.Command, args []string) error {
	dash := cmd.ArgsLenAtDash()
	var wrong string
	switch {
	case dash < 0:
		wrong = "there is no -- before the command"
	case dash != 1:
		wrong = fmt.Sprintf("%d arguments before --, want one", dash)
	case len(args) == 1:
		wrong = "there is no command after --"
	default:
		j.key, j.command = args[0], args[1:]
		return dsync.CheckKey(j.key)
	}
	return fmt.Errorf("%s; usage: %s", wrong, cmd.UseLine())
}

// flagGrace defines --grace.
func (j *job) flagGrace(cmd *cobra.Command) {
	cmd.Flags().DurationVar(&j.grace, "grace", -1, "time from SIGTERM to SIGKILL for the command when the hold is lost; 0s: SIGKILL at once")
	cmd.Flags().Lookup("grace").DefValue = "TTL/10" // for the help only; check computes the default
}

// notRunnable returns the failure for a command that did not start.
func notRunnable(err error) *failure {
	if errors.Is(err, exec.ErrNotFound) || errors.Is(err, fs.ErrNotExist) {
		return &failure{exitNotFound, err}
	}
	return &failure{exitNotRunnable, err}
}

// killRoom returns the part of the session's grace that is reserved for the command to die after
// SIGKILL.
func killRoom(ttl time.Duration) time.Duration { return min(ttl/20, 500*time.Millisecond) }

// check computes the default of --grace, and returns an error if the flags or the command are
// invalid. It does not contact the server.
func (j *job) check(a *app) error {
	ttl := a.target.ttl
	if ttl == 0 {
		return usagef("--ttl is 0s; it must be at least 1s") // package dsync would treat 0 as the default
	}
	if j.grace < 0 {
		j.grace = ttl / 10
	}
	room := killRoom(ttl)
	if !fits(ttl, j.grace+room) && fits(ttl, room) {
		return usagef("--grace %v is too long for --ttl %v, which must leave time for it and for two heartbeats; lower it, or raise --ttl, say to %v",
			j.grace, ttl, 4*j.grace)
	}
	if j.atLeast > driver.MaxDuration {
		return usagef("--at-least is %v; it must be at most %v", j.atLeast, driver.MaxDuration)
	}
	if j.try && j.timeout != 0 {
		return usagef("--try does not wait, so --timeout %v has no effect; use one of them", j.timeout)
	}
	if _, err := j.want(); err != nil {
		return usage(err)
	}
	if _, err := exec.LookPath(j.command[0]); err != nil {
		return notRunnable(err)
	}
	return nil
}

// connect opens the session that holds the key. The session's grace covers the time to stop the command. After each
// heartbeat, a hook sends a value to the channel named heartbeats, and reaps orphaned descendants that have exited. If
// it did not reap them, zombies would pile up while elect runs one command after another for months.
func (j *job) connect(ctx context.Context, a *app, heartbeats chan<- struct{}) (*dsync.Session, error) {
	return a.connect(ctx, dsync.Options{
		Grace: j.grace + killRoom(a.target.ttl),
		Hooks: &dsync.Hooks{
			StoreError:     j.silence.failed,
			SessionStarted: func(string) { j.silence.answered() },
			Heartbeat: func(_, _ time.Duration, err error) {
				reapOrphans()
				if err == nil {
					j.silence.answered()
				}
				select {
				case heartbeats <- struct{}{}:
				default:
				}
			},
		},
	})
}

// fits reports whether a session accepts this TTL and grace.
func fits(ttl, grace time.Duration) bool {
	_, err := dsync.New(struct{ driver.Store }{}, &dsync.Options{TTL: ttl, Grace: grace})
	return err == nil
}

// run waits for the key and runs the command while the key is held. In an election it starts over
// when the leadership is lost. If the command fails, the error is a failure with the command's exit
// status.
func (j *job) run(ctx context.Context, a *app) error {
	if err := j.check(a); err != nil {
		return err
	}
	sig := catchJobControl()
	defer sig.stop()
	return sig.untilSecond(func() error { return j.turns(ctx, a, sig) })
}

// turns connects and calls turn once. In an election it calls turn again after each loss of the
// leadership, unless a signal has asked leasehold to end. Connecting does not wait for the keeper, whose start takes
// about a millisecond. A keeper that can't be started ends the connecting, except the look-up of an SRV record.
func (j *job) turns(ctx context.Context, a *app, sig *signals) error {
	j.silence.say, j.silence.key, j.silence.ttl = a.say, j.key, a.target.ttl
	heartbeats := make(chan struct{}, 1)
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	var k *keeper
	var notStarted error
	var starts sync.WaitGroup
	starts.Go(func() {
		if k, notStarted = j.keeper(a, sig); notStarted != nil {
			cancel()
		}
	})
	var s *dsync.Session
	err := sig.cancels(ctx, func(ctx context.Context) (err error) {
		s, err = j.connect(ctx, a, heartbeats)
		return err
	})
	starts.Wait()
	if k != nil {
		defer func() { k.end() }()
	}
	if s != nil {
		defer j.close(a, s)
	}
	if err := cmp.Or(notStarted, err); err != nil {
		return err
	}
	for {
		err := j.turn(ctx, a, s, sig, heartbeats, k)
		if !j.campaignsAgain(err, sig) {
			return err
		}
		a.say(err)
		k.end()
		next, err := j.keeper(a, sig)
		if err != nil {
			return err
		}
		k = next
	}
}

// keeper starts a keeper for the command.
func (j *job) keeper(a *app, sig *signals) (*keeper, error) {
	if a.noKeeper {
		return &keeper{waited: true}, nil
	}
	k, err := startKeeper(a, j.command, sig.terminal != nil)
	if err != nil {
		return nil, fmt.Errorf("the keeper process, which runs the command, could not be started: %w", err)
	}
	return k, nil
}

// turn waits for the key once, and runs the command while the key is held. It does not run a command
// that has already succeeded.
func (j *job) turn(ctx context.Context, a *app, s *dsync.Session, sig *signals, heartbeats <-chan struct{}, k *keeper) error {
	var h *engine.Hold
	err := sig.cancels(ctx, func(ctx context.Context) (err error) {
		h, err = j.hold(ctx, s)
		return err
	})
	var done *engine.SealedError
	switch {
	case errors.As(err, &done):
		j.tell(a, j.skipped(done.Tick))
		return nil
	case h == nil:
		return err
	}
	granted := time.Now()
	defer j.release(a, h)
	if err != nil {
		return err
	}
	if j.kind == driver.KindPeriodic {
		j.tell(a, fmt.Sprintf("%q runs for the tick %s", j.key, tickText(j.tick)))
	}
	err = (&work{job: j, app: a, hold: h, heartbeats: heartbeats, signals: sig, keeper: k}).do()
	if left := j.atLeast - time.Since(granted); left >= time.Millisecond {
		h.ReleaseBy(driver.Release{Keep: left})
	}
	if err == nil && j.tick > 0 {
		return j.seal(h)
	}
	return err
}

// tell prints a line on standard error, except with --quiet.
func (j *job) tell(a *app, line string) {
	if !j.quiet {
		fmt.Fprintf(a.stderr, "leasehold: %s\n", line)
	}
}

// skipped returns the message for a command that is not run. The parameter done is the last tick for which a command
// has succeeded.
func (j *job) skipped(done int64) string {
	switch {
	case j.kind == driver.KindOnce:
		return fmt.Sprintf("%q has already succeeded; not run again", j.key)
	case done == j.tick:
		return fmt.Sprintf("%q has already succeeded for the tick %s; not run again", j.key, tickText(j.tick))
	}
	return fmt.Sprintf("%q is not run for the tick %s; it has already succeeded for a later one, %s", j.key, tickText(j.tick), tickText(done))
}

// tickText formats a tick as in LEASEHOLD_TICK.
func tickText(tick int64) string { return time.UnixMilli(tick).UTC().Format(time.RFC3339Nano) }

// seal releases the key and records that the command has succeeded for the tick.
func (j *job) seal(h *engine.Hold) error {
	h.ReleaseBy(driver.Release{Seal: j.tick})
	ctx, cancel := context.WithTimeout(context.Background(), sealTimeout)
	defer cancel()
	if err := h.Release(ctx); err != nil {
		return &failure{exitLost, fmt.Errorf("the command has succeeded, but the server may not have recorded that, so the command may run once more: %w", err)}
	}
	return nil
}

// campaignsAgain reports whether to call turn again after turn has returned err. It returns true only in an election,
// if the leadership was lost and no signal has asked leasehold to end.
func (j *job) campaignsAgain(err error, sig *signals) bool {
	var f *failure
	return j.kind == driver.KindElection && errors.As(err, &f) && f.status == exitLost && !sig.lastEnding().ends()
}

// release releases the key, if it is still held. If the server does not answer within
// releaseTimeout, the release goes on in the background, and close waits for it. A majority need not confirm the
// release, because one confirms the end of the session, which close waits for.
func (j *job) release(a *app, h *engine.Hold) {
	ctx, cancel := context.WithTimeout(context.Background(), releaseTimeout)
	defer cancel()
	if err := h.ReleaseEarly(ctx); err != nil && !errors.Is(err, dsync.ErrLost) && ctx.Err() == nil {
		j.notReleased(a, err)
	}
}

// close ends the session. It tries once. That takes at most a sixth of the TTL, and never longer than 5 s. If its
// requests fail, the session expires.
func (j *job) close(a *app, s *dsync.Session) {
	ctx, cancel := context.WithCancel(context.Background())
	cancel() // Close need not wait for holds: there are none
	if err := s.Close(ctx); errors.Is(err, dsync.ErrNotReleased) {
		j.notReleased(a, err)
	}
}

func (j *job) notReleased(a *app, err error) {
	a.say(fmt.Errorf("%q may not have been released; it is free at the latest when the TTL of %v has run out: %w", j.key, a.target.ttl, err))
}

// These bound the waits in release and seal if the server does not answer. With close, either takes less than the 10 s
// after which docker stop kills a container. A command runs again if its success is not recorded, so sealTimeout is
// longer than MongoDB takes to elect a primary after a step-down.
const (
	releaseTimeout = 3 * time.Second
	sealTimeout    = 4 * time.Second
)

// want returns what the job holds while its command runs.
func (j *job) want() (engine.Want, error) {
	if j.kind == driver.KindElection {
		return engine.Candidate(j.key, j.preference)
	}
	return engine.Want{Key: j.key, Kind: j.kind, Weight: j.weight, Limit: j.limit, Tick: j.tick}, nil
}

// hold acquires the key. It waits for the key as long as the flags allow.
func (j *job) hold(ctx context.Context, s *dsync.Session) (*engine.Hold, error) {
	j.silence.wait(true)
	defer j.silence.wait(false)
	want, err := j.want()
	if err != nil {
		return nil, err
	}
	if j.try {
		want.Try = true
		h, err := engine.Of(s).Hold(ctx, want)
		if errors.Is(err, context.DeadlineExceeded) && ctx.Err() == nil {
			err = &failure{exitUnreachable, err}
		}
		return h, err
	}
	wait := ctx
	if j.timeout > 0 {
		var cancel context.CancelFunc
		wait, cancel = context.WithTimeout(ctx, j.timeout)
		defer cancel()
	}
	h, err := engine.Of(s).Hold(wait, want)
	if err != nil && ctx.Err() == nil && wait.Err() != nil {
		return nil, &failure{exitTimeout, fmt.Errorf("%q was not free within %v: %s", j.key, j.timeout, j.holder(ctx, s, err))}
	}
	return h, err
}

// holder describes the key's holder, or returns err's message if the holder is unknown.
func (j *job) holder(ctx context.Context, s *dsync.Session, err error) string {
	ctx, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	st, e := admin.New(s).Status(ctx, j.key)
	switch {
	case e != nil, len(st.Holders)+st.Waiting == 0: // the server may have answered nothing but this
		return err.Error()
	case len(st.Holders) == 0:
		return fmt.Sprintf("others were ahead in the queue (%d still wait)", st.Waiting)
	}
	return fmt.Sprintf("held by %v since %v", st.Holders[0], st.Holders[0].Since.UTC().Format(time.RFC3339))
}

// environment returns the environment variables that describe the hold.
func (j *job) environment(h *engine.Hold) []string {
	env := []string{"LEASEHOLD_KEY=" + j.key, fmt.Sprintf("LEASEHOLD_TOKEN=%d", h.GrantToken())}
	if j.kind == driver.KindElection {
		env = append(env, fmt.Sprintf("LEASEHOLD_TERM=%d", h.Term()))
	}
	if j.kind == driver.KindPeriodic {
		env = append(env, "LEASEHOLD_TICK="+tickText(j.tick))
	}
	return env
}

// A work is one run of a job's command while the key is held.
type work struct {
	*job
	app        *app
	hold       *engine.Hold
	heartbeats <-chan struct{}
	signals    *signals
	keeper     *keeper
}

// do runs the command and returns when its whole process group is dead. The error is nil if the command succeeded. If
// the command failed, the error is a failure with the exit status.
func (w *work) do() error {
	lost := w.hold.Lost()
	terminal := w.signals.terminal
	w.signals.forward(true)
	defer w.signals.forward(false)
	defer terminal.takeBack()
	k := w.keeper
	w.renew(w.environment(w.hold)...)
	var late <-chan time.Time // fires if the keeper has not stopped the command in time
	for {
		select {
		case <-w.heartbeats:
			if lost != nil {
				w.renew()
			}
		case s := <-w.signals.c:
			if s == syscall.SIGTSTP {
				terminal.stopRequested = true
			}
			k.tell(keep.Order{Signal: int(s.(syscall.Signal))})
		case <-lost:
			lost = nil
			now := keep.Clock()
			k.tell(keep.Order{Stop: now, Kill: now + w.grace})
			late = time.After(w.grace + killRoom(w.app.target.ttl)/2)
		case <-late:
			k.kill()
			late = nil
		case r, ok := <-k.reports:
			switch {
			case !ok:
				k.kill()
				k.wait()
				if lost == nil {
					return w.lost()
				}
				return errors.New("the keeper process was killed, so the command was killed as well")
			case r.Started != 0:
				k.pgid = r.Started
			case r.Job != 0:
				if terminal != nil && terminal.stopped(syscall.Signal(r.Job), k.pgid) {
					k.tell(keep.Order{Signal: int(syscall.SIGCONT)})
				}
			default:
				k.leave() // the key can be released meanwhile
				return w.ending(r)
			}
		}
	}
}

// renew sends the keeper the deadline of the hold, unless the deadline has passed. The first one, which starts the
// command, comes with environment variables.
func (w *work) renew(env ...string) {
	now := keep.Clock() // read the clock before Left; otherwise the deadline can be too late
	if left := w.hold.Left(); left > 0 {
		w.keeper.tell(keep.Order{Stop: now + left, Kill: now + left + w.grace, Env: env})
	}
}

// ending returns the error for the keeper's last report, nil if the command succeeded.
func (w *work) ending(r keep.Report) error {
	switch {
	case r.Failed != "":
		return &failure{r.Status, errors.New(r.Failed)}
	case r.Stopped:
		return w.lost()
	case r.Status != 0:
		return &failure{status: r.Status}
	}
	return nil
}

// lost returns the failure for a command that was stopped because the hold was lost.
func (w *work) lost() error {
	ctx, cancel := w.hold.Context(context.Background(), nil)
	defer cancel(nil)
	cause := dsync.ErrLost
	if ctx.Err() != nil {
		cause = context.Cause(ctx)
	}
	return &failure{exitLost, fmt.Errorf("%q was lost, and the command was stopped: %w", w.key, cause)}
}
