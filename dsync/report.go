package dsync

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"sync/atomic"
	"time"

	"github.com/leasehold-go/leasehold/dsync/driver"
	"github.com/leasehold-go/leasehold/internal/calls"
	"github.com/leasehold-go/leasehold/internal/core"
	"github.com/leasehold-go/leasehold/internal/deadlock"
	"github.com/leasehold-go/leasehold/internal/engine"
)

// A reporter turns what the engine reports into calls of hooks and into log records. Hooks and the logger are called
// on one goroutine, one after another, so that a hook that blocks delays no heartbeat.
type reporter struct {
	store   driver.Store
	config  core.Config
	logger  *slog.Logger
	queue   calls.Queue
	hooks   atomic.Pointer[[]*Hooks] // the slice is replaced, never changed
	outages outages
}

var _ engine.Reporter = (*reporter)(nil)

func newReporter(store driver.Store, config core.Config, logger *slog.Logger) *reporter {
	r := &reporter{store: store, config: config, logger: logger, queue: calls.Queue{Logger: logger}}
	r.hooks.Store(&[]*Hooks{})
	return r
}

// add registers a copy of h, until stop is called.
func (r *reporter) add(h Hooks) (stop func()) {
	r.change(func(all []*Hooks) []*Hooks { return append(all, &h) })
	return func() {
		r.change(func(all []*Hooks) []*Hooks { return slices.DeleteFunc(all, func(l *Hooks) bool { return l == &h }) })
	}
}

func (r *reporter) change(f func([]*Hooks) []*Hooks) {
	for {
		before := r.hooks.Load()
		after := f(slices.Clone(*before))
		if r.hooks.CompareAndSwap(before, &after) {
			return
		}
	}
}

func info(h *engine.Hold) HoldInfo {
	return HoldInfo{Key: h.Key(), Kind: h.Kind(), Token: h.GrantToken()}
}

func (r *reporter) Granted(h *engine.Hold, g engine.Grant) {
	for _, l := range *r.hooks.Load() {
		if f := l.Granted; f != nil {
			i := info(h)
			i.Context, i.Wait, i.Local = g.Context, g.Wait, g.Local
			r.queue.Add(func() { f(i) })
		}
	}
}

func (r *reporter) Released(h *engine.Hold, held time.Duration) {
	for _, l := range *r.hooks.Load() {
		if f := l.Released; f != nil {
			i := info(h)
			i.Held = held
			r.queue.Add(func() { f(i) })
		}
	}
}

func (r *reporter) Lost(h *engine.Hold, end *core.End, err error, held time.Duration) {
	args := []any{"key", h.Key(), "token", h.GrantToken()}
	switch {
	case end.Asked:
		r.info("dsync: hold ended", append(args, "cause", end.Cause)...)
	case errors.Is(end.Cause, ErrRecordDeleted):
		record := h.Key()
		if n, ok := r.store.(driver.Namer); ok {
			record = n.RecordName(record)
		}
		r.Log(slog.LevelError, "dsync: hold lost: somebody deleted or changed the key's record, and another process may hold the key",
			append(args, "record", record, "cause", end.Cause)...)
	default:
		r.warn("dsync: hold lost", append(args, "cause", end.Cause)...)
	}
	for _, l := range *r.hooks.Load() {
		if f := l.Lost; f != nil {
			i := info(h)
			i.Held, i.Cause, i.ByHolder = held, err, engine.ByHolder(end)
			r.queue.Add(func() { f(i) })
		}
	}
}

func (r *reporter) Effect(e core.Effect) {
	switch e := e.(type) {
	case core.Registered:
		r.info("dsync: session started", "session", e.Session, "ttl", r.config.TTL)
		for _, l := range *r.hooks.Load() {
			if f := l.SessionStarted; f != nil {
				r.queue.Add(func() { f(e.Session) })
			}
		}
	case core.SessionLost:
		if errors.Is(e.Cause, ErrClosed) {
			r.info("dsync: session closed", "session", e.Session)
			return
		}
		r.warn("dsync: session lost", "session", e.Session, "holds", e.Holds, "cause", e.Cause)
		for _, l := range *r.hooks.Load() {
			if f := l.SessionLost; f != nil {
				r.queue.Add(func() { f(e.Session, e.Cause) })
			}
		}
	case core.Beat:
		for _, l := range *r.hooks.Load() {
			if f := l.Heartbeat; f != nil {
				r.queue.AddLatest(l, func() { f(e.Took, e.Left, e.Err) })
			}
		}
	case core.Jumped:
		r.warn("dsync: the store's clock jumped by more than the margin", "by", e.By, "margin", r.config.Margin)
		for _, l := range *r.hooks.Load() {
			if f := l.ClockJump; f != nil {
				r.queue.Add(func() { f(e.By) })
			}
		}
	case core.Orphan:
		r.info("dsync: releasing a claim that this process does not know", "claim", e.Claim, "key", e.Key)
	}
}

func (r *reporter) Failed(op string, err error) {
	if say, more := r.outages.failed(op); say {
		if errors.Is(err, context.DeadlineExceeded) {
			more = append(more, "attempt", r.config.Attempt) // the network may be too slow for the TTL
		}
		r.warn("dsync: a command failed", append([]any{"op", op, "err", err}, more...)...)
	}
	for _, l := range *r.hooks.Load() {
		if f := l.StoreError; f != nil {
			r.queue.Add(func() { f(op, err) })
		}
	}
}

func (r *reporter) Succeeded(op string) {
	if r.outages.failing.Load() {
		if more := r.outages.over(op); more != nil {
			r.warn("dsync: commands succeed again", append([]any{"op", op}, more...)...)
		}
	}
}

func (r *reporter) Deadlock(members, keys []string) {
	r.warn("dsync: possible deadlock", "members", deadlock.Describe(members, keys))
	for _, l := range *r.hooks.Load() {
		if f := l.Deadlock; f != nil {
			r.queue.Add(func() { f(members, keys) })
		}
	}
}

func (r *reporter) info(msg string, args ...any) { r.Log(slog.LevelInfo, msg, args...) }
func (r *reporter) warn(msg string, args ...any) { r.Log(slog.LevelWarn, msg, args...) }

// Log queues a log record behind the hooks that are due.
func (r *reporter) Log(level slog.Level, msg string, args ...any) {
	if ctx := context.Background(); r.logger.Enabled(ctx, level) {
		r.queue.Add(func() { r.logger.Log(ctx, level, msg, args...) })
	}
}
