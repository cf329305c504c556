package engine

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/leasehold-go/leasehold/dsync/driver"
	"github.com/leasehold-go/leasehold/internal/calls"
	"github.com/leasehold-go/leasehold/internal/core"
	"github.com/leasehold-go/leasehold/internal/hostdir"
	"github.com/leasehold-go/leasehold/internal/trace"
)

// A Session registers this process with a [driver.Store] and keeps its locks alive. Make one per process with [New], or
// with Open or Connect in a store's package. A Session must not be copied.
//
// The session registers when the first lock is requested, under a new id, and one heartbeat renews everything that it
// holds and waits for. If no heartbeat is acknowledged in time, the session loses everything it holds before the store
// can grant it to anyone else. The session then registers again under a new id, and its waiters request their locks
// again.
//
// All methods may be called concurrently.
type Session struct {
	store driver.Store
	opt   Options
	hooks calls.Queue
	all   atomic.Pointer[[]*Hooks] // Options.Hooks and the hooks of AddHooks; the slice is replaced, never changed

	base context.Context // parent of the contexts of all commands; has no values, and ends with Close
	stop context.CancelFunc

	closing  chan struct{} // closed when Close begins
	released chan struct{} // closed when Close has released and unregistered everything
	closed   chan struct{} // closed when Close is finished
	workers  *workers      // all goroutines except hooks
	outages  outages
	hostDir  *hostdir.Dir // nil: no HostDir
	unlocks  sync.Map     // maps the id of a registration to the func() that unlocks its file in hostDir
	tried    string       // id of an unanswered registration, or "". Only the Register under way uses it
	hearing  sync.Once    // starts hearOfDeaths

	mu          sync.Mutex // held during a Step, never while something blocks
	core        *core.Core
	config      *core.Config
	seed        trace.Seed
	clock       clock
	recorder    *trace.Recorder // nil: nobody has called Record
	now         core.Instant    // time of the Step under way, or of the last
	timer       *time.Timer     // calls tick; nil until it is first needed
	armed       core.Instant    // when timer fires
	next        **core.Send     // receives the first Send of a Step that a worker makes; nil if another goroutine makes the Step
	finished    bool            // Close waits for all goroutines; no other may start
	closeErr    error
	hurried     time.Time // when a waiting Close's ctx ended; zero if it has not
	calls       uint64    // number of calls that have requested a hold
	spare       *Hold     // reused by the next call; nil if the call must make a new one
	drops       uint64    // see drop
	reg         *registration
	registering *registering
	stopListen  context.CancelFunc // ends the listener; nil: there is none
	listenErr   error              // why the last listener ended
	observers   map[string]map[chan struct{}]bool
	observed    observed
	overdue     map[*Hold]core.Instant // holds that ended before their holder was done; the values are when they ended
	checkTimer  *time.Timer            // finds holds that ended while the machine slept; nil: not running

	looking   bool                    // a search for deadlocks is under way
	looked    core.Instant            // when the last search ended
	deadlocks map[string]DeadlockInfo // deadlocks that the session is in; each key identifies a deadlock
}

// New returns a session that uses store. It does not contact the store. It fails only if store is nil or opt is
// invalid. A nil opt means the defaults; see [Options].
func New(store driver.Store, opt *Options) (*Session, error) {
	if store == nil {
		return nil, errors.New("dsync: the store is nil; pass one, for example from dsync/mongo or dsync/dsynctest")
	}
	o, err := opt.withDefaults()
	if err != nil {
		return nil, err
	}
	config, seed := o.config(), trace.NewSeed()
	config.Rand = seed.Rand()
	base, stop := context.WithCancel(context.Background())
	s := &Session{
		store: store, opt: o, core: core.New(config), config: config, seed: seed, clock: newClock(), armed: core.Never,
		hooks: calls.Queue{Logger: o.Logger},
		base:  base, stop: stop, workers: newWorkers(base),
		closing: make(chan struct{}), released: make(chan struct{}), closed: make(chan struct{}),
		observers: make(map[string]map[chan struct{}]bool), overdue: make(map[*Hold]core.Instant),
	}
	s.all.Store(&[]*Hooks{o.Hooks})
	if o.HostDir != "" {
		if s.hostDir, err = hostdir.Open(o.HostDir); err != nil {
			return nil, fmt.Errorf("dsync: HostDir is %q: %w", o.HostDir, err)
		}
	}
	return s, nil
}

// Of returns the engine of a *dsync.Session, for features that package dsync does not export. Package dsync sets this
// variable, so that its Session exposes no internal type, as package log does with log/internal.DefaultOutput.
var Of func(session any) *Session

// Record makes the session write every event to w, for [trace.Replay], until stop is called. Call it before the session
// is used.
func (s *Session) Record(w io.Writer) (stop func()) {
	s.recorder = trace.New(w, s.config, s.seed)
	return func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.recorder = nil
	}
}

// config returns the settings of the session's Core.
func (o *Options) config() *core.Config {
	return &core.Config{
		TTL: o.TTL, Margin: o.Margin, Grace: o.Grace, LeastMargin: o.leastMargin, LeastGrace: o.leastGrace, Heartbeat: o.HeartbeatInterval, Attempt: o.attemptTime(),
		Poll: o.PollInterval, HandOff: o.HandOffTime, Linger: o.Linger,
		Retention: o.Retention, Retry: firstBackoff, Backoff: o.maxBackoff(), AlwaysListen: o.AlwaysListen,
		Lanes: maxCommands, PollLanes: maxPolls,
	}
}

// step passes an event to the Core, with the current time, and carries out the effects. s.mu must be
// held.
func (s *Session) step(e core.Event) { s.stepAt(s.clock.at(time.Now()), e) }

func (s *Session) stepAt(now core.Instant, e core.Event) {
	now = max(now, s.now) // the caller may have read the clock before it locked s.mu
	s.now = now
	effects := s.core.Step(now, e)
	if s.recorder != nil {
		s.recorder.Step(now, e, effects)
	}
	for _, f := range effects {
		s.do(f)
	}
	if next := s.core.Next(); next < s.armed && !s.finished {
		s.armed = next
		if d := next.Sub(now); s.timer == nil {
			s.timer = time.AfterFunc(d, s.tick)
		} else {
			s.timer.Reset(d)
		}
	}
}

// tick is called by the timer.
func (s *Session) tick() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.finished {
		s.armed = core.Never
		s.step(core.Tick{})
	}
}

// compareClock reads the clock and has the Core do everything that is due. Every method that reports on a lock calls
// compareClock first. Otherwise, after a freeze past its deadline, a process could see a lost hold as live until the
// timer fires. s.mu must be held.
func (s *Session) compareClock() (now core.Instant) {
	if now = s.clock.at(time.Now()); now >= s.core.Next() {
		s.stepAt(now, core.Tick{})
	}
	return now
}

// do carries out an effect. s.mu must be held.
func (s *Session) do(f core.Effect) {
	switch f := f.(type) {
	case *core.Send:
		switch {
		case s.finished:
		case s.next != nil && *s.next == nil:
			*s.next = f
		default:
			s.workers.do(func() { s.execute(f) })
		}
	case *core.Deliver:
		s.deliver(f)
	case *core.End:
		holdOf(f.Hold).ends(f)
	case *core.Freed:
		holdOf(f.Hold).freedBy(f)
	case *core.Listen:
		s.startListening(f)
	case core.StopListening:
		s.stopListening()
	case core.Changed:
		for c := range s.observers[f.Key] {
			select {
			case c <- struct{}{}:
			default:
			}
		}
	case core.Registered:
		s.registeredAs(f)
	case core.SessionLost:
		s.lost(f)
	case core.Beat:
		s.beat(f)
	case core.Jumped:
		s.jumped(f)
	case core.Expired:
		s.workers.do(func() {
			m, _ := s.memberOf(s.base, f.Session)
			s.info("dsync: expired another process's session", "session", f.Session, "host", m.Host, "pid", m.PID)
			if s.hostDir != nil {
				s.hostDir.Remove(f.Session)
			}
		})
	case core.Orphan:
		s.info("dsync: releasing a claim that this process does not know", "claim", f.Claim, "key", f.Key)
	case core.Closed:
		s.closeErr = f.Err
		close(s.released)
	}
}

// A registration is one registration of the session, under an id of its own.
type registration struct {
	s    *Session
	id   string
	over chan struct{} // closed when the session is lost or ends

	announced  int64 // the value of observed.change that the store last received
	announcing bool  // true while a goroutine sends the list of observed keys, and after it has given up permanently
}

// A registering is a running attempt to register, for which callers wait.
type registering struct {
	done chan struct{}
	err  error
}

// registered returns the session's registration. If there is none, it tries once to register. The error is ctx's,
// ErrClosed, the store's, or errOver if the session is lost in the meantime.
func (s *Session) registered(ctx context.Context) (*registration, error) {
	s.mu.Lock()
	s.compareClock()
	if reg := s.reg; reg != nil && !s.ends() {
		s.mu.Unlock()
		return reg, nil
	}
	w := s.registering
	if w == nil {
		w = &registering{done: make(chan struct{})}
		s.registering = w
		s.step(core.Need{})
	}
	s.mu.Unlock()
	select {
	case <-w.done:
	case <-ctx.Done():
		return nil, ctx.Err()
	case <-s.closing:
		return nil, ErrClosed
	}
	if w.err != nil {
		return nil, w.err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.reg == nil {
		return nil, errOver
	}
	return s.reg, nil
}

func (s *Session) registeredAs(f core.Registered) {
	if w := s.registering; w != nil {
		s.registering, w.err = nil, f.Err
		defer close(w.done)
	}
	if f.Err != nil {
		return
	}
	s.reg = &registration{s: s, id: f.Session, over: make(chan struct{})}
	s.info("dsync: session started", "session", f.Session, "ttl", s.opt.TTL)
	s.each(func(h *Hooks) {
		if h.SessionStarted != nil {
			s.report(func() { h.SessionStarted(f.Session) })
		}
	})
}

func (s *Session) lost(f core.SessionLost) {
	close(s.reg.over)
	s.reg = nil
	if s.hostDir != nil { // holds may still be in their grace, even after a Close that could not unregister, so the process must not look dead yet
		time.AfterFunc(s.opt.TTL, func() { s.unlockFile(f.Session) })
	}
	if errors.Is(f.Cause, ErrClosed) {
		s.info("dsync: session closed", "session", f.Session)
		return
	}
	s.Warn("dsync: session lost", "session", f.Session, "holds", f.Holds, "cause", f.Cause)
	s.each(func(h *Hooks) {
		if h.SessionLost != nil {
			s.report(func() { h.SessionLost(f.Session, f.Cause) })
		}
	})
}

func (s *Session) beat(f core.Beat) {
	s.lookIfDue()
	s.each(func(h *Hooks) {
		if h.Heartbeat != nil {
			s.hooks.AddLatest(h, func() { h.Heartbeat(f.Took, f.Left, f.Err) })
		}
	})
}

func (s *Session) jumped(f core.Jumped) {
	s.Warn("dsync: the store's clock jumped by more than the margin", "by", f.By, "margin", s.opt.Margin)
	s.each(func(h *Hooks) {
		if h.ClockJump != nil {
			s.report(func() { h.ClockJump(f.By) })
		}
	})
}

// ID returns the id under which the session is registered now, or "" if it is not registered. After a loss the session
// gets a new id.
func (s *Session) ID() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.core.Session()
}

// Register registers the session, unless it is already registered, and returns its id. It tries once. The error is
// ctx's, [ErrClosed], or the store's.
func (s *Session) Register(ctx context.Context) (id string, err error) {
	reg, err := s.registered(ctx)
	if err != nil {
		return "", fmt.Errorf("dsync: register: %w", err)
	}
	return reg.id, nil
}

// Name returns the name that other processes see: [Options].Name.
func (s *Session) Name() string { return s.opt.Name }

// TTL returns the session's [Options].TTL.
func (s *Session) TTL() time.Duration { return s.opt.TTL }

// Margin returns the session's [Options].Margin.
func (s *Session) Margin() time.Duration { return s.opt.Margin }

// Reserve returns the margin plus the grace of a lease of length d. Its holder may use the lease only for
// the rest of d.
func (s *Session) Reserve(d time.Duration) time.Duration {
	return s.config.MarginOf(d) + s.config.GraceOf(d)
}

// Grace returns the session's [Options].Grace.
func (s *Session) Grace() time.Duration { return s.opt.Grace }

// Close ends the session, as documented for dsync.Session.Close. A second Close waits for the first. When the ctx of
// either call ends, the first stops waiting for holders.
func (s *Session) Close(ctx context.Context) error {
	s.mu.Lock()
	first := !s.ends()
	if first {
		close(s.closing)
		s.step(core.Close{})
	}
	s.mu.Unlock()
	select {
	case <-s.released:
	case <-ctx.Done():
		s.mu.Lock()
		if s.hurried.IsZero() {
			s.hurried = time.Now()
		}
		s.step(core.Hurry{})
		s.mu.Unlock()
		<-s.released
	}
	if !first {
		<-s.closed
		return s.closeErr
	}
	s.mu.Lock()
	s.finished = true
	if s.timer != nil {
		s.timer.Stop()
	}
	if s.checkTimer != nil {
		s.checkTimer.Stop()
	}
	bound := s.hurried
	s.mu.Unlock()
	s.stop()
	s.workers.wg.Wait()
	s.forgetTried()
	err := s.closeErr
	if c, ok := s.store.(interface{ Close(context.Context) error }); ok {
		ctx := context.WithoutCancel(ctx)
		if !bound.IsZero() { // the wait for commands already sent has used up part of the time allowed for the store
			var cancel context.CancelFunc
			ctx, cancel = context.WithDeadline(ctx, bound.Add(s.attemptTime()))
			defer cancel()
		}
		err = errors.Join(err, c.Close(ctx))
	}
	if err != nil {
		s.closeErr = fmt.Errorf("dsync: close: %w", err)
	}
	close(s.closed)
	return s.closeErr
}

// spawn runs f in a goroutine that Close waits for. If Close no longer waits, spawn returns false and does not run f.
func (s *Session) spawn(f func()) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.finished {
		return false
	}
	s.workers.do(f)
	return true
}

// ends reports whether the session is closing.
func (s *Session) ends() bool {
	select {
	case <-s.closing:
		return true
	default:
		return false
	}
}

func (s *Session) storeError(op string, err error) {
	if say, more := s.outages.failed(op); say {
		if errors.Is(err, context.DeadlineExceeded) {
			more = append(more, "attempt", s.attemptTime()) // the network may be too slow for the TTL
		}
		s.Warn("dsync: a command failed", append([]any{"op", op, "err", err}, more...)...)
	}
	s.each(func(h *Hooks) {
		if h.StoreError != nil {
			s.report(func() { h.StoreError(op, err) })
		}
	})
}

// report queues f for the goroutine that calls the hooks one after another. Log records go through the same queue, so
// that a logger that blocks does not delay heartbeats.
func (s *Session) report(f func()) { s.hooks.Add(f) }

func (s *Session) info(msg string, args ...any) { s.record(slog.LevelInfo, msg, args) }
func (s *Session) Warn(msg string, args ...any) { s.record(slog.LevelWarn, msg, args) }

func (s *Session) record(level slog.Level, msg string, args []any) {
	if ctx := context.Background(); s.opt.Logger.Enabled(ctx, level) {
		s.report(func() { s.opt.Logger.Log(ctx, level, msg, args...) })
	}
}

// wait waits for d. It returns an error if ctx or the session ends first.
func (s *Session) wait(ctx context.Context, d time.Duration) error {
	return s.waitFor(ctx, nil, nil, d)
}

// waitFor is like wait, but can end early: without an error when ready has a value or is closed, and with errOver
// when over is closed. Either channel may be nil.
func (s *Session) waitFor(ctx context.Context, ready, over <-chan struct{}, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ready:
		return nil
	case <-t.C:
		return nil
	case <-over:
		return errOver
	case <-ctx.Done():
		return ctx.Err()
	case <-s.closing:
		return ErrClosed
	}
}
