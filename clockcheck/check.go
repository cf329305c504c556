package clockcheck

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/leasehold-go/leasehold/internal/mongouri"
	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"
)

// Check measures the difference between the host's clock and the clock of the server that the client talks to (the
// primary, a mongos or a standalone). With [Options].Servers it also measures every other server whose clock can
// matter. A nil opt means all defaults.
//
// The error is [ErrOffset] or [ErrUndecided] if the host's clock is not certainly within [Options].Limit of every
// measured server's clock; the result is complete then. It is [ErrStepped] if a clock was stepped during the check. Any
// other error means that nothing was measured: the server that the client talks to did not answer, ctx ended, or opt is
// invalid. It is not an error if one of the other servers does not answer: its [Server].Err explains why.
//
// ctx bounds the whole check, and [Options].Timeout bounds each server's part of it. If ctx carries
// a session, Check does not use it. Check may be called concurrently.
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
	// In the caller's transaction, the server would refuse hello and abort the transaction.
	ctx = mongo.NewSessionContext(ctx, nil)
	c := &check{opt: opt, host: newHostClock(opt.read, opt.DriftRate)}
	own, err := c.measure(ctx, client)
	if err != nil {
		return Result{}, failure(err)
	}
	all, missing := []*measured{own}, []Server(nil)
	if opt.Servers != nil {
		var others []*measured
		others, missing = c.others(ctx, own)
		all = append(all, others...)
		if err := ended(ctx); err != nil {
			return Result{}, failure(withCause(ctx, err))
		}
	}
	return c.conclude(all, missing)
}

// A measured is one server's estimate, and the host's wall clock at the end of that server's
// measurement. If the wall clock were read only after all servers were measured, the drift until
// then would widen the bound.
type measured struct {
	addr string
	hello
	estimate

	wall interval // the wall clock less the monotonic clock, at done
	done time.Duration
	now  time.Time
}

// If the client spreads the requests over several servers, measure sends at most rounds·Samples requests.
const rounds = 4

// measure samples the server that the client talks to. After a fail-over, or with several mongos, a request may reach
// another server, so measure keeps each server's samples apart. It returns the first server that has enough samples, or
// else the server with the most samples.
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
			return nil, withCause(ctx, ctx.Err())
		}
		s, h, err := c.ask(ctx, client)
		if err != nil {
			return nil, withCause(ctx, err)
		}
		m := servers[h.process()]
		if m == nil {
			m = &measured{}
			servers[h.process()] = m
		}
		m.addr, m.hello = h.Me, h
		if stepped := m.add(s, c.opt.DriftRate); stepped != 0 {
			// The samples also contradict each other if the host was suspended and its monotonic
			// clock stood still. Then the wall clock has moved away from the monotonic clock, too.
			in, at, _ := c.host.wall()
			if own := c.host.stepped(in, at); own != 0 {
				return nil, &Error{Kind: ErrStepped, Host: true, Step: own}
			}
			return nil, &Error{Kind: ErrStepped, Server: m.addr, Step: stepped}
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

// phase returns how long to wait before sample i, so that samples are sent at evenly spread
// fractions of a millisecond. A server truncates its clock to milliseconds: a sample just after a
// tick gives a tight lower bound, a sample just before the next tick a tight upper bound. Samples
// that are whole milliseconds apart would all give the same bound.
func (c *check) phase(first time.Duration, i int) time.Duration {
	target := first + truncation*time.Duration(i)/time.Duration(c.opt.Samples)
	wait := (target - c.host.before()) % truncation
	if wait < 0 {
		wait += truncation
	}
	return wait
}

// A hello is a server's reply to the command hello, which needs no privilege and is part of the
// Stable API.
type hello struct {
	SetName string   `bson:"setName"`
	Me      string   `bson:"me"`
	Hosts   []string `bson:"hosts"` // members that can become primary; passives and arbiters are listed elsewhere
	Msg     string   `bson:"msg"`
	Version struct {
		Process bson.ObjectID `bson:"processId"`
	} `bson:"topologyVersion"`
	Connection int64 `bson:"connectionId"`
}

func (h *hello) router() bool { return h.Msg == "isdbgrid" }

// process identifies the server process that answered. Samples of two servers behind the same client must never be
// combined. A server that is not MongoDB 4.4 or later reports no process ID, and is identified by the connection, which
// leads to one server.
func (h *hello) process() string {
	if h.Version.Process.IsZero() {
		return fmt.Sprint(h.Me, "#", h.Connection)
	}
	return h.Me + "/" + h.Version.Process.Hex()
}

// farthest is the greatest difference that is measured, so that the results fit into a
// time.Duration. A clock that is farther off was never set.
const farthest = 100 * 365 * 24 * time.Hour

// ask takes one sample of the server that the client talks to.
func (c *check) ask(ctx context.Context, client *mongo.Client) (sample, hello, error) {
	var s sample
	var h hello
	s.sent = c.host.before()
	raw, err := client.Database("admin").RunCommand(ctx, bson.D{{Key: "hello", Value: 1}}).Raw()
	s.got = c.host.after()
	if err != nil {
		return s, h, err
	}
	if err := bson.Unmarshal(raw, &h); err != nil {
		return s, h, fmt.Errorf("decode the reply: %w", err)
	}
	now, ok := raw.Lookup("localTime").TimeOK()
	if !ok {
		return s, h, errors.New("the server's reply to hello has no localTime")
	}
	s.server = now.Sub(c.host.base)
	if s.server.Abs() > farthest {
		return s, h, fmt.Errorf("the server's clock says %v and the host's %v: one of them was never set",
			now.UTC().Format(time.RFC3339), c.host.base.UTC().Format(time.RFC3339))
	}
	return s, h, nil
}

// conclude computes the result. Each server's offset is valid at the end of that server's measurement; the spread is
// valid at the end of the last measurement.
func (c *check) conclude(all []*measured, missing []Server) (Result, error) {
	wall, at, _ := c.host.wall()
	if by := c.host.stepped(wall, at); by != 0 {
		return Result{}, &Error{Kind: ErrStepped, Host: true, Step: by}
	}
	var r Result
	var last time.Duration
	for _, m := range all {
		s := Server{Addr: m.addr, At: m.now, RTT: m.rtt, Samples: m.n}
		s.Offset, s.Bound = m.later(m.done, c.opt.DriftRate).minus(m.wall).middle()
		r.Servers = append(r.Servers, s)
		last = max(last, m.done)
	}
	var clocks []interval
	for _, m := range all {
		clocks = append(clocks, m.later(last, c.opt.DriftRate))
	}
	r.Spread, r.SpreadBound = spread(clocks).middle()
	r.Servers = append(r.Servers, missing...)
	return r, c.judge(r)
}

// spread returns the greatest difference between two of the clocks.
func spread(clocks []interval) interval {
	var s interval
	for i, a := range clocks {
		for j, b := range clocks {
			if i != j {
				d := a.minus(b)
				s = interval{max(s.lo, d.lo), max(s.hi, d.hi)}
			}
		}
	}
	return s
}

// judge returns the most serious finding as an error: the largest offset that is certainly beyond
// the limit, or else a step of a server's clock, or else the widest bound that leaves the question
// open.
func (c *check) judge(r Result) error {
	var off, stepped, undecided error
	var largest, widest time.Duration
	for _, s := range r.Servers {
		finding := &Error{Server: s.Addr, Offset: s.Offset, Bound: s.Bound, Limit: c.opt.Limit}
		size := s.Offset.Abs()
		switch {
		case s.Err != nil:
			if stepped == nil && errors.Is(s.Err, ErrStepped) {
				stepped = s.Err
			}
		case c.opt.NoLimit:
		case size-s.Bound > c.opt.Limit:
			if off == nil || size > largest {
				finding.Kind, largest, off = ErrOffset, size, finding
			}
		case size+s.Bound > c.opt.Limit:
			if undecided == nil || s.Bound > widest {
				finding.Kind, widest, undecided = ErrUndecided, s.Bound, finding
			}
		}
	}
	return cmp.Or(off, stepped, undecided)
}

// ended returns ctx.Err(). If the deadline has passed but ctx's own timer has not fired yet, ended returns
// DeadlineExceeded: the driver's timers may fire first.
func ended(ctx context.Context) error {
	if end, ok := ctx.Deadline(); ok && ctx.Err() == nil && !time.Now().Before(end) {
		return context.DeadlineExceeded
	}
	return ctx.Err()
}

// withCause adds the cause of ctx to err if ctx has ended.
func withCause(ctx context.Context, err error) error {
	if why := context.Cause(ctx); why != nil && !errors.Is(err, why) {
		return fmt.Errorf("%w: %w", err, why)
	}
	return err
}

// failure returns the error of a check that measured nothing. ErrStepped already says why, so it is not wrapped.
func failure(err error) error {
	if errors.Is(err, ErrStepped) {
		return err
	}
	return fmt.Errorf("clockcheck: nothing measured: %w", err)
}

const (
	defaultLimit     = 500 * time.Millisecond
	defaultSamples   = 8
	maxSamples       = 1000
	defaultDriftRate = 1e-3
	defaultTimeout   = 10 * time.Second
)

// Options are the settings of [Check] and [Monitor]. The zero value of each field
// is its default; a nil *Options means all defaults.
type Options struct {
	// Limit is the greatest acceptable difference between the host's clock and any server's.
	// Default 500 ms; a negative Limit is rejected.
	Limit time.Duration

	// NoLimit measures without judging: neither ErrOffset nor ErrUndecided is
	// returned. Limit must be zero then.
	NoLimit bool

	// Samples is the number of requests to each server. The bound is about half the
	// round-trip time plus 1 ms/Samples. Default 8, at most 1,000.
	Samples int

	// Servers makes the check measure every server whose clock can matter, each over connections of its own. In a
	// replica set, these are the members that can become primary, as listed by the server that the client talks to. In
	// a sharded cluster, they are all the mongos that Servers.Hosts lists. Pass the options that the client was made
	// with. The check uses their connection settings (authentication, TLS, dialer, time-outs, API version) and their
	// command and pool monitors. Default: only the server that the client talks to is measured.
	Servers *options.ClientOptions

	// DriftRate is the greatest rate at which a server's clock may drift from the host's clock, as a fraction less than
	// 0.1. Default 0.001: enough for two hosts whose kernels slew their clocks in opposite directions, each at the
	// maximum rate (500 ppm). While chrony corrects a large error, the rate may reach 0.083 (its maxslewrate).
	DriftRate float64

	// Timeout bounds the measurement of each server, connecting included. Default 10 s.
	Timeout time.Duration

	read func() (wall time.Time, mono time.Duration) // the host's clocks; set by tests only
}

// withDefaults returns o with every zero field replaced by its default, or an
// error that says what is wrong and what would be right.
func (o *Options) withDefaults(client *mongo.Client) (Options, error) {
	var r Options
	if o != nil {
		r = *o
	}
	switch {
	case client == nil:
		return r, errors.New("clockcheck: the client is nil; pass one that mongo.Connect returned")
	case r.Limit < 0:
		return r, fmt.Errorf("clockcheck: Limit is %v; it must be positive (0 means %v; to measure without a limit, set NoLimit)", r.Limit, defaultLimit)
	case r.NoLimit && r.Limit > 0:
		return r, fmt.Errorf("clockcheck: Limit is %v and NoLimit is set; set one of them", r.Limit)
	case r.Samples < 0 || r.Samples > maxSamples:
		return r, fmt.Errorf("clockcheck: Samples is %d; it must be 1 to %d (0 means %d)", r.Samples, maxSamples, defaultSamples)
	case !(r.DriftRate >= 0 && r.DriftRate < 0.1): // negated, so that it refuses NaN, too
		return r, fmt.Errorf("clockcheck: DriftRate is %v; it must be positive and less than 0.1 (0 means %v)", r.DriftRate, defaultDriftRate)
	case r.Timeout < 0:
		return r, fmt.Errorf("clockcheck: Timeout is %v; it must be positive (0 means %v)", r.Timeout, defaultTimeout)
	}
	if r.Servers != nil {
		if err := mongouri.Redact(r.Servers.Validate()); err != nil {
			return r, fmt.Errorf("clockcheck: Servers: %w", err)
		}
		if l := r.Servers.LoadBalanced; l != nil && *l {
			return r, errors.New("clockcheck: Servers are behind a load balancer, so none can be reached by itself; leave Servers nil")
		}
	}
	if r.Limit == 0 {
		r.Limit = defaultLimit
	}
	if r.Samples == 0 {
		r.Samples = defaultSamples
	}
	if r.DriftRate == 0 {
		r.DriftRate = defaultDriftRate
	}
	if r.Timeout == 0 {
		r.Timeout = defaultTimeout
	}
	return r, nil
}
