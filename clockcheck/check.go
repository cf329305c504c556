package clockcheck

import (
	"context"
	"errors"
	"fmt"
	"time"

	"go.mongodb.org/mongo-driver/v2/mongo"
)

// Check measures how far the host's clock is from that of the server that client
// leads to (the primary, a mongos, a standalone), and with [Options].Servers from
// that of every server whose clock can come to matter. A nil opt is all defaults.
//
// It fails with an error that is [ErrOffset] or [ErrUndecided] if the clock is
// not certainly within [Options].Limit of every server that was measured, and
// with one that is [ErrStepped] if a clock was stepped meanwhile. Where the
// result could be had, it is returned with ErrOffset and ErrUndecided too.
// Any other error says that nothing was measured: the server that client leads to
// did not answer, ctx has ended, or opt is nonsense. Another server that did not
// answer is no error; see [Result].Unmeasured.
//
// ctx bounds the whole check, [Options].Timeout each server's part of it. A
// session that ctx carries is not used. Check may be called concurrently.
func Check(ctx context.Context, client *mongo.Client, opt *Options) (Result, error) {
	o, err := opt.withDefaults(client)
	if err != nil {
		return Result{}, err
	}
	return run(ctx, client, o)
}

// A check is one run of Check. Its methods may be called concurrently.
type check struct {
	opt  Options
	host *hostClock
}

func run(ctx context.Context, client *mongo.Client, opt Options) (Result, error) {
	// Within the caller's transaction hello would be refused, and end it.
	ctx = mongo.NewSessionContext(ctx, nil)
	c := &check{opt: opt, host: newHostClock(opt.read, opt.DriftRate)}
	own, err := c.measure(ctx, client)
	if err != nil {
		return Result{}, failure(err)
	}
	all, missing := []*measured{own}, []Unmeasured(nil)
	if opt.Servers != nil {
		var others []*measured
		others, missing = c.others(ctx, own)
		all = append(all, others...)
		if err := over(ctx); err != nil {
			return Result{}, failure(cause(ctx, err))
		}
	}
	return c.conclude(all, missing)
}

// A measured is a server that has answered, and the host's wall clock when it
// had: by the time that the last of others has answered, or has not, drift
// would be due.
type measured struct {
	addr string
	hello
	estimate

	wall interval // less the monotonic clock
	done time.Duration
	now  time.Time
}

// rounds is how many times as many samples as asked for may be taken when the
// client spreads them over several servers.
const rounds = 4

// measure samples the server that client leads to. Samples of another server, to
// which a fail-over or a choice among routers leads, are kept apart; the first
// server that has answered often enough is returned.
func (c *check) measure(ctx context.Context, client *mongo.Client) (*measured, error) {
	ctx, cancel := context.WithTimeout(ctx, c.opt.Timeout)
	defer cancel()
	timer := time.NewTimer(0)
	defer timer.Stop()
	servers := make(map[string]*measured)
	var best *measured
	first := c.host.before()
	for i := range rounds * c.opt.Samples {
		if i > 0 {
			timer.Reset(c.phase(first, i))
		}
		select {
		case <-timer.C:
		case <-ctx.Done():
			return nil, cause(ctx, ctx.Err())
		}
		s, h, err := c.ask(ctx, client)
		if err != nil {
			return nil, cause(ctx, err)
		}
		m := servers[h.process()]
		if m == nil {
			m = &measured{}
			servers[h.process()] = m
		}
		m.addr, m.hello = h.Me, h
		if moved := m.add(s, c.opt.DriftRate); moved != 0 {
			// The host's wall clock and the server's are counted from the monotonic
			// clock: if it stood still, the wall clock has moved away from it as well.
			in, at, _ := c.host.wall()
			if own := c.host.moved(in, at); own != 0 {
				return nil, &StepError{Host: true, By: own}
			}
			return nil, &StepError{Server: m.addr, By: moved}
		}
		if best == nil || m.n > best.n {
			best = m
		}
		if best.n == c.opt.Samples {
			break
		}
	}
	best.wall, best.done, best.now = c.host.wall()
	return best, nil
}

// phase returns how long to wait before sample i, so that samples are sent at
// evenly spread fractions of a millisecond. A server truncates its clock to
// milliseconds, so a sample just after its clock has ticked bounds it well from
// below, and one just before the next tick from above; samples that are whole
// milliseconds apart would all say the same.
func (c *check) phase(first time.Duration, i int) time.Duration {
	target := first + truncation*time.Duration(i)/time.Duration(c.opt.Samples)
	wait := (target - c.host.before()) % truncation
	if wait < 0 {
		wait += truncation
	}
	return wait
}

// over returns why ctx has ended, if it has: also when its deadline has come and
// its own timer has not fired yet, which the driver's timers may be ahead of.
func over(ctx context.Context) error {
	if end, ok := ctx.Deadline(); ok && ctx.Err() == nil && !time.Now().Before(end) {
		return context.DeadlineExceeded
	}
	return ctx.Err()
}

// cause adds to an error of a call with ctx why ctx has ended, if it has.
func cause(ctx context.Context, err error) error {
	if why := context.Cause(ctx); why != nil && !errors.Is(err, why) {
		return fmt.Errorf("%w: %w", err, why)
	}
	return err
}

// failure is the error of a check that measured nothing.
func failure(err error) error {
	if errors.Is(err, ErrStepped) {
		return err
	}
	return fmt.Errorf("clockcheck: nothing measured: %w", err)
}
