package engine

import (
	"context"
	"errors"
	"fmt"
	"io"
	"sync"
	"time"

	"github.com/leasehold-go/leasehold/dsync/driver"
	"github.com/leasehold-go/leasehold/internal/core"
	"github.com/leasehold-go/leasehold/internal/hostdir"
	"github.com/leasehold-go/leasehold/internal/trace"
)

// A Session is the engine of a *dsync.Session, which documents it. All methods may be called concurrently.
type Session struct {
	store   driver.Store
	config  *core.Config
	process driver.Member // the record of the next registration, without its id
	report  Reporter

	base context.Context // parent of the contexts of all commands; has no values, and ends with Close
	stop context.CancelFunc

	closing  chan struct{} // closed when Close begins
	released chan struct{} // closed when Close has released and unregistered everything
	closed   chan struct{} // closed when Close is finished
	workers  *workers      // all goroutines except hooks
	hostDir  *hostdir.Dir  // nil: no HostDir
	unlocks  sync.Map      // maps the id of a registration to the func() that unlocks its file in hostDir
	tried    string        // id of an unanswered registration, or "". Only the Register under way uses it
	hearing  sync.Once     // starts hearOfDeaths

	mu          sync.Mutex // held during a Step, never while something blocks
	core        *core.Core
	seed        trace.Seed
	clock       clock
	recorder    *trace.Recorder // nil: nobody has called Record
	now         core.Instant    // time of the Step under way, or of the last
	timer       *time.Timer     // calls tick; nil until it is first needed
	armed       core.Instant    // when timer fires
	next        **core.Send     // set while a worker makes a Step: receives the first Send; nil if another goroutine makes the Step
	finished    bool            // Close waits for all goroutines; no other may start
	closeErr    error
	hurried     time.Time // when a waiting Close's ctx ended; zero if it has not
	calls       uint64    // number of calls that have requested a hold
	spare       *Hold     // reused by the next call; nil if the call must make a new one
	registering *registering
	stopListen  context.CancelFunc // ends the listener; nil: there is none
	listenErr   error              // why the last listener ended
	observers   map[string]map[chan struct{}]bool
	overdue     map[*Hold]core.Instant // holds that ended before their holder was done; the values are when they ended
	checkTimer  *time.Timer            // finds holds that ended while the machine slept; nil: not running

	looking   bool             // a search for deadlocks is under way
	looked    core.Instant     // when the last search ended
	deadlocks map[string]named // deadlocks that the session is in; each key identifies a deadlock
}

// New returns a session that uses store. It does not contact the store. config has no Lanes, PollLanes and Rand; New
// sets them. process is how the session appears to others. dir is nil if there is no HostDir.
func New(store driver.Store, config core.Config, process driver.Member, dir *hostdir.Dir, report Reporter) *Session {
	seed := trace.NewSeed()
	config.Lanes, config.PollLanes, config.Rand = maxCommands, maxPolls, seed.Rand()
	base, stop := context.WithCancel(context.Background())
	return &Session{
		store: store, config: &config, process: process, report: report, hostDir: dir,
		core: core.New(&config), seed: seed, clock: newClock(), armed: core.Never,
		base: base, stop: stop, workers: newWorkers(base),
		closing: make(chan struct{}), released: make(chan struct{}), closed: make(chan struct{}),
		observers: make(map[string]map[chan struct{}]bool), overdue: make(map[*Hold]core.Instant),
	}
}

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

// step passes an event to the Core, with the current time, and carries out the effects. s.mu must be held.
func (s *Session) step(e core.Event) { s.stepAt(s.clock.at(time.Now()), e) }

func (s *Session) stepAt(now core.Instant, e core.Event) {
	now = max(now, s.now) // the caller may have read the clock before it locked s.mu
	s.now = now
	effects := s.core.Step(now, e)
	if s.recorder != nil {
		s.recorder.Step(now, e, effects, s.core.Next())
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
	case core.Answer:
		f.To.Answer(f.Reply)
	case core.Changed:
		for c := range s.observers[f.Key] {
			select {
			case c <- struct{}{}:
			default:
			}
		}
	case core.Unlisted:
		s.Warn("dsync: the session observes more keys than its record has room for, and is not listed as an observer of the rest",
			"listed", f.Listed, "unlisted", f.Unlisted, "bytes", driver.MaxObserved)
	case core.Registered:
		s.registered(f)
	case core.SessionLost:
		s.lost(f)
	case core.Beat:
		s.lookIfDue()
		s.report.Effect(f)
	case core.Expired:
		s.workers.do(func() {
			m, _ := s.memberOf(s.base, f.Session)
			s.info("dsync: expired another process's session", "session", f.Session, "host", m.Host, "pid", m.PID)
			if s.hostDir != nil {
				s.hostDir.Remove(f.Session)
			}
		})
	case core.Closed:
		s.closeErr = f.Err
		close(s.released)
	default:
		s.report.Effect(f)
	}
}

// registering is the state of a running attempt to register, for which callers wait.
type registering struct {
	done chan struct{}
	id   string
	err  error
}

func (s *Session) registered(f core.Registered) {
	if w := s.registering; w != nil {
		s.registering, w.id, w.err = nil, f.Session, f.Err
		close(w.done)
	}
	if f.Err == nil {
		s.report.Effect(f)
	}
}

func (s *Session) lost(f core.SessionLost) {
	if s.hostDir != nil { // holds may still be in their grace, even after a Close that could not unregister; so the process must not look dead yet
		time.AfterFunc(s.config.TTL, func() { s.unlockFile(f.Session) })
	}
	s.report.Effect(f)
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
	s.mu.Lock()
	s.compareClock()
	if id := s.core.Session(); id != "" && !s.ends() {
		s.mu.Unlock()
		return id, nil
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
		id, err = w.id, w.err
	case <-ctx.Done():
		err = ctx.Err()
	case <-s.closing:
		err = core.ErrClosed
	}
	if err != nil {
		return "", fmt.Errorf("dsync: register: %w", err)
	}
	return id, nil
}

// Name returns the name that other processes see.
func (s *Session) Name() string { return s.process.Name }

// TTL returns the session's TTL.
func (s *Session) TTL() time.Duration { return s.config.TTL }

// PollInterval returns the interval between the requests of the first waiter in a queue.
func (s *Session) PollInterval() time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.core.PollTime(1)
}

// Reserve returns the margin plus the grace of a lease of length d. The lease's holder may use the lease only for the
// rest of d.
func (s *Session) Reserve(d time.Duration) time.Duration {
	return s.config.MarginOf(d) + s.config.GraceOf(d)
}

// Close ends the session, as documented for dsync.Session.Close. A second Close waits for the first. When the ctx of
// either call ends, the first call stops waiting for holders.
func (s *Session) Close(ctx context.Context) error {
	s.mu.Lock()
	first := !s.ends()
	if first {
		close(s.closing)
		var e core.Close
		if l, ok := s.store.(driver.Limiter); ok {
			e.Releases = l.MaxReleases()
		}
		s.step(e)
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
			ctx, cancel = context.WithDeadline(ctx, bound.Add(s.config.Attempt))
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

// wait waits for d. It returns an error if ctx or the session ends first.
func (s *Session) wait(ctx context.Context, d time.Duration) error { return s.waitFor(ctx, nil, d) }

// waitFor is like wait, but ends early, without an error, when ready has a value. ready may be nil.
func (s *Session) waitFor(ctx context.Context, ready <-chan struct{}, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ready:
		return nil
	case <-t.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	case <-s.closing:
		return core.ErrClosed
	}
}
