package engine

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/leasehold-go/leasehold/dsync/driver"
	"github.com/leasehold-go/leasehold/internal/calls"
	"golang.org/x/sync/errgroup"
)

// A Session registers this process with a [driver.Store] and keeps its locks alive. Make one
// per process with [New], or with Open or Connect of a store's package. A Session must not be
// copied.
//
// The session registers when the first lock is requested, under a new id, and one heartbeat
// renews everything that it holds and waits for. If no heartbeat is acknowledged in time,
// everything it holds is lost, before the store can grant it to anyone else. The session then
// registers again under a new id, and its waiters request their locks again.
//
// All methods may be called concurrently.
type Session struct {
	store driver.Store
	opt   Options
	hooks calls.Queue

	base context.Context // parent of all commands' contexts: without values, ends with Close
	stop context.CancelFunc

	closing chan struct{} // closed when Close begins
	closed  chan struct{} // closed when Close is done
	workers *workers      // all goroutines except hooks

	// Lanes bound how many commands are under way at once. Heartbeats need no lane, so they
	// never wait behind the session's other commands.
	lanes     chan struct{} // for all commands except Heartbeat, Register, Unregister and Listen
	pollLanes chan struct{} // needed in addition by repeated attempts to acquire

	requesters sync.WaitGroup // callers that request a claim
	releases   sync.WaitGroup // goroutines that release a claim or send notices

	mu           sync.Mutex
	finished     bool // no goroutine may start any more
	holdsGivenUp bool // Close has given up the holds, and does not wait for releases that begin now
	closeErr     error
	lease        *sessionLease
	registering  *registration
	claims       map[string]*claim   // by id: all claims that the store may have
	queues       map[string]*queue   // by key
	overdue      map[*Hold]time.Time // holds that ended before their holder was done, and when they ended
	checkTimer   *time.Timer         // finds holds that ended while the machine slept; nil: not running
	renewed      instant             // when the last lost lease was last renewed: its field sent
	others       otherSessions
	observed     observed
	changes      map[string]bool // keys with a recent notice of change; true: another notice is due

	listening sync.Mutex // guards listeners; may be taken while mu is held, not the other way round
	listeners []*Hooks
}

// New returns a session on store. It does not contact the store; an error means that store is nil
// or that opt is invalid. A nil opt means the defaults; see [Options].
func New(store driver.Store, opt *Options) (*Session, error) {
	if store == nil {
		return nil, errors.New("dsync: the store is nil; pass one, for example from dsync/mongo or dsync/dsynctest")
	}
	o, err := opt.withDefaults()
	if err != nil {
		return nil, err
	}
	base, stop := context.WithCancel(context.Background())
	s := &Session{
		store: store, opt: o,
		hooks: calls.Queue{Logger: o.Logger},
		base:  base, stop: stop, workers: newWorkers(base),
		closing: make(chan struct{}), closed: make(chan struct{}),
		lanes: make(chan struct{}, maxCommands), pollLanes: make(chan struct{}, maxPolls),
		claims:  make(map[string]*claim),
		queues:  make(map[string]*queue),
		overdue: make(map[*Hold]time.Time),
		others:  make(otherSessions),
		changes: make(map[string]bool),
	}
	s.AddHooks(o.Hooks)
	return s, nil
}

// ID returns the id under which the session is registered now, or "" if it is not registered. The
// id changes when the session is lost.
func (s *Session) ID() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.lease == nil {
		return ""
	}
	return s.lease.id
}

// Register registers the session unless it is registered, and returns its id. It tries once. The
// error is ctx's, [ErrClosed], or the store's.
func (s *Session) Register(ctx context.Context) (id string, err error) {
	sl, err := s.registered(ctx)
	if err != nil {
		return "", fmt.Errorf("dsync: register: %w", err)
	}
	return sl.id, nil
}

// Name returns the identity that others see: [Options].Name.
func (s *Session) Name() string { return s.opt.Name }

// TTL returns the session's [Options].TTL.
func (s *Session) TTL() time.Duration { return s.opt.TTL }

// Margin returns the session's [Options].Margin.
func (s *Session) Margin() time.Duration { return s.opt.Margin }

// Grace returns the session's [Options].Grace.
func (s *Session) Grace() time.Duration { return s.opt.Grace }

// Close ends the session. Holders are notified, and waiters get ErrClosed. Each hold is released
// when its holder is done or its grace is over. Then the session is unregistered. ctx bounds only
// the wait for holders. A second Close waits for the first and returns its error.
func (s *Session) Close(ctx context.Context) error {
	s.mu.Lock()
	select {
	case <-s.closing:
		s.mu.Unlock()
		<-s.closed
		return s.closeErr
	default:
	}
	close(s.closing)
	for _, c := range s.claims {
		if c.state == pending {
			c.requestAgain()
		}
	}
	r := s.registering
	s.mu.Unlock()
	if r != nil {
		<-r.done
	}

	err := s.giveUp(ctx)
	s.mu.Lock()
	s.finished = true
	if s.checkTimer != nil {
		s.checkTimer.Stop()
	}
	if s.lease != nil {
		s.lease.lose(ErrClosed)
	}
	s.mu.Unlock()
	s.stop()
	s.workers.wg.Wait()
	if c, ok := s.store.(interface{ Close(context.Context) error }); ok {
		err = errors.Join(err, c.Close(context.WithoutCancel(ctx)))
	}
	if err != nil {
		s.closeErr = fmt.Errorf("dsync: close: %w", err)
	}
	close(s.closed)
	return s.closeErr
}

// spawn runs f on a goroutine that Close waits for. It returns false and does not run f if Close
// no longer waits.
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
	s.Warn("dsync: a command failed", "op", op, "err", err)
	s.each(func(h *Hooks) {
		if h.StoreError != nil {
			s.report(func() { h.StoreError(op, err) })
		}
	})
}

// report queues f to be called on the goroutine of hooks, in the order of reports. Log records go
// the same way, because a logger that blocks must not delay a heartbeat.
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

// waitFor is wait that ends early when ready is closed, without an error, or when over is closed,
// with errOver. Either may be nil.
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

// giveUp notifies all holders and waits for them within ctx and the grace. Then it releases
// everything that the session holds or requested, and unregisters the session.
func (s *Session) giveUp(ctx context.Context) error {
	s.requesters.Wait() // s.closing ends their waits, and they release what they requested
	type holder struct {
		c    *claim
		done <-chan struct{}
	}
	var holders []holder
	s.mu.Lock()
	sl := s.lease
	for _, c := range s.claims {
		switch {
		case c.lingers():
			c.stopLingering()
		case c.state == granted:
			c.hold.windDown(ErrClosed, false)
			holders = append(holders, holder{c, c.hold.whenDone()})
		}
	}
	s.mu.Unlock()

	grace := time.Now().Add(s.opt.Grace)
	wait, cancel := context.WithDeadline(ctx, grace)
	defer cancel()
	for _, h := range holders {
		select {
		case <-h.done:
		case <-wait.Done():
		}
	}

	// Release in batches. If ctx ended the wait before the grace was over, a holder that is
	// not done keeps the rest of its grace. The store counts that by its own clock, which may
	// run faster or jump by up to the margin.
	const atATime = 32
	var o driver.Leave
	if left := time.Until(grace); left > 0 {
		o.Keep = left + left/1000 + s.opt.Margin
	}
	var g errgroup.Group
	g.SetLimit(atATime)
	for _, h := range holders {
		s.mu.Lock()
		if h.c.state != granted {
			s.mu.Unlock()
			continue
		}
		answered := h.c.release(o)
		s.mu.Unlock()
		g.Go(func() error {
			if err := <-answered; err != nil {
				return fmt.Errorf("release of %q: %w", h.c.request.Key, err)
			}
			return nil
		})
	}
	err := g.Wait()
	s.mu.Lock()
	s.holdsGivenUp = true
	s.mu.Unlock()
	s.releases.Wait() // the releases that holders and waiters have begun themselves
	if sl == nil {
		return err
	}

	// Stop the heartbeat, wait for it, then unregister.
	close(sl.quit)
	<-sl.done
	if sl.why() != nil || err != nil && o.Keep > 0 {
		// The session is lost, or a holder's grace may be running. Let it expire.
		return err
	}
	a := attempt(s, "Unregister", func(ctx context.Context) (time.Duration, error) {
		return s.store.Expire(ctx, sl.id, true)
	})
	if err == nil && a.err != nil {
		err = fmt.Errorf("unregister: %w", a.err)
	}
	return err
}
