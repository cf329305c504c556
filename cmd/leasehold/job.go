//go:build linux || darwin || freebsd

package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os/exec"
	"time"

	"github.com/leasehold-go/leasehold/dsync"
	"github.com/spf13/cobra"
)

// A job is a command that is to be run while a key is held.
type job struct {
	key     string
	kind    dsync.Kind
	command []string
	try     bool
	timeout time.Duration // of the wait for the key; 0: none
	drain   time.Duration // from SIGTERM to SIGKILL when the hold is lost; negative: a tenth of the TTL
}

// parse takes the key and the command from the arguments of cmd.
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
	return fmt.Errorf("%s; it is %s", wrong, cmd.UseLine())
}

// flagDrain defines the flag that both commands have.
func (j *job) flagDrain(cmd *cobra.Command) {
	cmd.Flags().DurationVar(&j.drain, "drain", -1, "how long the command may take to end after SIGTERM when the hold is lost, before SIGKILL; 0s: SIGKILL at once (default: a tenth of the TTL)")
	cmd.Flags().Lookup("drain").DefValue = "0s" // a zero is not shown
}

// notRunnable is the failure of a command that did not start.
func notRunnable(err error) *failure {
	if errors.Is(err, exec.ErrNotFound) || errors.Is(err, fs.ErrNotExist) {
		return &failure{exitNotFound, err}
	}
	return &failure{exitNotRunnable, err}
}

// killRoom is what a SIGKILL, and whoever sends it, may take: it is the part of the
// session's grace in which the command is dead already.
func killRoom(ttl time.Duration) time.Duration { return min(ttl/20, 500*time.Millisecond) }

// check refuses what no server need be asked for.
func (j *job) check(a *app) error {
	ttl := a.target.ttl
	if ttl == 0 {
		return usagef("--ttl is 0s; it must be at least 1s") // to package dsync it means the default
	}
	if j.drain < 0 {
		j.drain = ttl / 10
	}
	room := killRoom(ttl)
	if !fits(ttl, j.drain+room) && fits(ttl, room) {
		return usagef("--drain %v is too long for --ttl %v, which must have room for it and for two heartbeats; lower it, or raise --ttl, to %v say",
			j.drain, ttl, 4*j.drain)
	}
	if j.timeout < 0 {
		return usagef("--timeout is %v; it must be positive (not to wait at all: --try)", j.timeout)
	}
	if _, err := exec.LookPath(j.command[0]); err != nil {
		return notRunnable(err)
	}
	return nil
}

// connect opens the session that the key is to be held with: the time to stop the
// command in is its grace. It tells beats of heartbeats.
func (j *job) connect(ctx context.Context, a *app, beats chan<- struct{}) (*dsync.Session, error) {
	return a.connect(ctx, dsync.Options{
		Grace: j.drain + killRoom(a.target.ttl),
		Hooks: &dsync.Hooks{Heartbeat: func(time.Duration, time.Duration, error) {
			select {
			case beats <- struct{}{}:
			default:
			}
		}},
	})
}

// fits reports whether sessions with that TTL can have the grace.
func fits(ttl, grace time.Duration) bool {
	_, err := dsync.New(struct{ dsync.Store }{}, &dsync.Options{TTL: ttl, Grace: grace})
	return err == nil
}

// run waits for the key and runs the command while it is held; of an
// election that was lost again and again. The error is how the command ended, too.
func (j *job) run(ctx context.Context, a *app) error {
	if err := j.check(a); err != nil {
		return err
	}
	sig := catch()
	defer sig.stop()
	beats := make(chan struct{}, 1)
	var s *dsync.Session
	err := sig.cancels(ctx, func(ctx context.Context) (err error) {
		s, err = j.connect(ctx, a, beats)
		return err
	})
	if s != nil {
		defer j.close(a, s)
	}
	if err != nil {
		return err
	}
	for {
		err := j.turn(ctx, a, s, sig, beats)
		if !j.campaignsAgain(err, sig) {
			return err
		}
		a.say(err)
	}
}

// turn waits for the key, once, and runs the command while it is held.
func (j *job) turn(ctx context.Context, a *app, s *dsync.Session, sig *signals, beats <-chan struct{}) error {
	var h *dsync.Hold
	err := sig.cancels(ctx, func(ctx context.Context) (err error) {
		h, err = j.hold(ctx, s)
		return err
	})
	if h == nil {
		return err
	}
	defer j.release(a, h)
	if err != nil {
		return err
	}
	return (&work{job: j, app: a, hold: h, beats: beats, signals: sig}).do()
}

// campaignsAgain reports whether a turn that ended with err is followed by another:
// that of an election that was lost, unless leasehold itself is to end.
func (j *job) campaignsAgain(err error, sig *signals) bool {
	var f *failure
	return j.kind == dsync.KindElection && errors.As(err, &f) && f.status == exitLost && !sig.last.ends()
}

// release gives the key back, if it is still held.
func (j *job) release(a *app, h *dsync.Hold) {
	ctx, cancel := context.WithTimeout(context.Background(), farewell)
	defer cancel()
	if err := h.Release(ctx); err != nil && !errors.Is(err, dsync.ErrLost) {
		a.say(fmt.Errorf("%q could not be given back, and is free when the TTL of %v is over: %w", j.key, a.target.ttl, err))
	}
}

// close ends the session. What the server does not answer now lapses by itself.
func (j *job) close(a *app, s *dsync.Session) {
	ctx, cancel := context.WithCancel(context.Background())
	cancel() // there is no holder to wait for
	s.Close(ctx)
}

// farewell bounds the release on a server that may not answer.
const farewell = 5 * time.Second

// hold waits for the key as the flags say.
func (j *job) hold(ctx context.Context, s *dsync.Session) (*dsync.Hold, error) {
	if j.try {
		return s.TryHold(ctx, j.key, j.kind)
	}
	wait := ctx
	if j.timeout > 0 {
		var cancel context.CancelFunc
		wait, cancel = context.WithTimeout(ctx, j.timeout)
		defer cancel()
	}
	h, err := s.Hold(wait, j.key, j.kind)
	if err != nil && ctx.Err() == nil && wait.Err() != nil {
		return nil, &failure{exitTimeout, fmt.Errorf("%q was not to be had within %v: %s", j.key, j.timeout, j.holder(ctx, s, err))}
	}
	return h, err
}

// holder says for people who holds the key, or, where that can't be had either, err.
func (j *job) holder(ctx context.Context, s *dsync.Session, err error) string {
	ctx, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	st, e := s.Status(ctx, j.key)
	switch {
	case e != nil:
		return err.Error()
	case len(st.Holders) == 0:
		return fmt.Sprintf("others were before it in line (%d still are)", st.Waiting)
	}
	return fmt.Sprintf("held by %v since %v", st.Holders[0], st.Holders[0].Since.UTC().Format(time.RFC3339))
}

// environment is what the command is told of the hold.
func (j *job) environment(h *dsync.Hold) []string {
	env := []string{"LEASEHOLD_KEY=" + j.key, fmt.Sprintf("LEASEHOLD_TOKEN=%d", h.Token())}
	if j.kind == dsync.KindElection {
		env = append(env, fmt.Sprintf("LEASEHOLD_TERM=%d", h.Term()))
	}
	return env
}
