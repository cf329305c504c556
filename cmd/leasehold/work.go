//go:build linux || darwin || freebsd

package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/leasehold-go/leasehold/dsync"
)

// A work is one run of a job's command while a key is held, as leasehold sees it.
type work struct {
	*job
	app     *app
	hold    *dsync.Hold
	beats   <-chan struct{} // heartbeats
	signals *signals
}

// do runs the command and returns when all of its process group is dead. The error
// is nil if it succeeded, else a failure with the status to exit with.
func (w *work) do() error {
	lost := w.hold.Lost()
	k, err := startKeeper(w.app, w.command, w.environment(w.hold))
	if err != nil {
		return fmt.Errorf("the keeper of the command did not start: %w", err)
	}
	w.renew(k)
	var late <-chan time.Time // the keeper has not stopped the command in time
	for {
		select {
		case <-w.beats:
			if lost != nil {
				w.renew(k)
			}
		case s := <-w.signals.c:
			k.tell(order{Signal: int(w.signals.note(s))})
		case <-lost:
			lost = nil
			now := clock()
			k.tell(order{Stop: now, Kill: now + w.drain})
			late = time.After(w.drain + killRoom(w.app.target.ttl)/2)
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
				return errors.New("the keeper of the command was killed; so was the command")
			case r.Started != 0:
				k.pgid = r.Started
			default:
				k.wait()
				return w.ending(r)
			}
		}
	}
}

// renew tells the keeper the deadline of the hold. The clock is read before what is
// left, so that the deadline is never too late, however long the two take.
func (w *work) renew(k *keeper) {
	now := clock()
	if left := w.hold.Left(); left > 0 {
		k.tell(order{Stop: now + left, Kill: now + left + w.drain})
	}
}

// ending is what the command's end comes to.
func (w *work) ending(r report) error {
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

// lost is the failure of a command that was stopped since the hold was lost.
func (w *work) lost() error {
	ctx, cancel := w.hold.Context(context.Background())
	defer cancel(nil)
	cause := dsync.ErrLost
	if ctx.Err() != nil {
		cause = context.Cause(ctx)
	}
	return &failure{exitLost, fmt.Errorf("%q was lost, and the command stopped: %w", w.key, cause)}
}
