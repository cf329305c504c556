package main

import (
	"context"
	"errors"
	"time"

	"github.com/leasehold-go/leasehold/dsync"
)

// A host has the job in its crontab.
type host struct {
	*process
	every  time.Duration
	offset time.Duration // by how much its clock is ahead
	job    func(ctx context.Context, tick time.Time) error
}

// now is what the host's clock shows.
func (h *host) now() time.Time { return time.Now().Add(h.offset) }

// run waits for each tick, until ctx ends.
func (h *host) run(ctx context.Context) error {
	mu := h.locks.Mutex("cron/report")
	for {
		now := h.now()
		tick := now.Truncate(h.every).Add(h.every)
		select {
		case <-time.After(tick.Sub(now)):
			h.tick(ctx, mu, tick)
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// tick runs the job, if this host is the first.
func (h *host) tick(ctx context.Context, mu *dsync.Mutex, tick time.Time) {
	log := h.log.With("tick", tick.UTC().Format(time.TimeOnly))
	if err := mu.TryLockContext(ctx); errors.Is(err, dsync.ErrHeld) {
		log.Info("leaves", "to", err.Error())
		return
	} else if err != nil {
		log.Error("can't lock", "err", err)
		return
	}
	began := time.Now()
	if late := h.now().Sub(tick); late > h.every/4 {
		log.Warn("late", "by", late)
		mu.Unlock() // another may have run it, so long ago that the lock is free again
		return
	}
	log.Info("runs")
	held, cancel := mu.Context(ctx) // ends when the lock is lost
	err := h.job(held, tick)
	cancel()
	if err != nil {
		log.Error("failed", "err", err)
	}
	// The job is done, and the other hosts may come later. UnlockAfter takes at least a
	// millisecond; that is enough if the job took longer than the lock must be kept.
	keep := max(h.every/2-time.Since(began), time.Millisecond)
	if err := mu.UnlockAfter(context.WithoutCancel(ctx), keep); err != nil {
		log.Error("can't keep the lock", "err", err)
	}
}
