package leader

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/leasehold-go/leasehold/dsync/driver"
	"github.com/leasehold-go/leasehold/internal/engine"

	"github.com/leasehold-go/leasehold/dsync"
	"github.com/leasehold-go/leasehold/internal/calls"
)

// An Election is one process's part in the election of a leader among all processes that use the
// same name on the same store. Make one with [New]; it must not be copied. All methods may be called
// concurrently.
type Election struct {
	s    *engine.Session
	name string
	opt  Options
	want engine.Want // what this process requests as a candidate, without the value

	hooks calls.Queue
	heard context.Context // ends when the session should stop observing the election for the hooks
	hook  sync.Once       // makes the session observe the election if the hooks need it
	seen  Leader          // the leader when the election was last read; only the session's observing goroutine uses it

	mu     sync.Mutex
	term   *term         // this process's present or last term
	paused chan struct{} // closed by Resume; nil: not paused
	waits  map[*context.CancelCauseFunc]bool
}

// New returns the election of that name on s, without contacting the store. A name cannot also be the
// key of a dsync.Mutex or another lock. New returns an error if s is nil, if dsync.CheckKey returns
// an error for name, or if a field of opt is out of its range.
func New(s *dsync.Session, name string, opt *Options) (*Election, error) {
	if s == nil {
		return nil, errors.New("leader: the session is nil; make one with Open or Connect of dsync/mongo, or dsync.New")
	}
	return newElection(context.Background(), engine.Of(s), name, opt)
}

// newElection is like New. If the hooks need the session to observe the election, the session does so until the context
// heard ends.
func newElection(heard context.Context, s *engine.Session, name string, opt *Options) (*Election, error) {
	if err := dsync.CheckKey(name); err != nil {
		return nil, fmt.Errorf("leader: name of the election: %w", err)
	}
	o, err := opt.withDefaults()
	if err != nil {
		return nil, err
	}
	want, err := engine.Candidate(name, o.Preference)
	if err != nil {
		return nil, fmt.Errorf("leader: %w", err)
	}
	return &Election{s: s, name: name, opt: o, want: want, heard: heard, waits: make(map[*context.CancelCauseFunc]bool)}, nil
}

// String returns the name and the state, such as `election "jobs/mails": leading, term 7`. It checks the
// clock and sends no command.
func (e *Election) String() string {
	state := "not leading"
	if t := e.present(); !t.over() {
		state = fmt.Sprintf("leading, term %d", t.Number)
	} else if e.isPaused() {
		state += ", paused"
	}
	return fmt.Sprintf("election %q: %s", e.name, state)
}

// IsLeader reports whether this process leads. It checks the clock, so it never returns true after the
// session's lease is over. But leadership may end a moment later, so work under the context that
// [Election.Campaign] returns.
func (e *Election) IsLeader() bool { return !e.present().over() }

func (e *Election) present() *term {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.term
}

func (e *Election) isPaused() bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.paused != nil
}

// Publish stores value with the present term of this process. Until the term ends, every process
// can read it with [Election.Leader] and [Election.Observe]. The value may have at most 64 KiB. If
// two calls are concurrent, either value may remain.
//
// The error is [ErrLost] if this process does not lead; otherwise it is ctx's error or the store's.
func (e *Election) Publish(ctx context.Context, value []byte) error {
	if err := checkValue(value); err != nil {
		return err
	}
	t := e.present()
	if t.over() {
		return fmt.Errorf("leader: publish in %q: this process does not lead: %w", e.name, ErrLost)
	}
	if err := t.hold.Publish(ctx, value); err != nil {
		return fmt.Errorf("leader: publish in %q: %w", e.name, err)
	}
	return nil
}

// Resign ends the present term of this process, if there is one. It cancels the term's context with the cause
// [ErrResigned] and releases the leadership, so that the next leader can be elected at once. But if the term belongs to
// [Election.Run], Run's function first gets the session's grace to return. Resign waits until the function has returned
// or the grace is over. It does not wait if ctx is the term's context or was made from it, as inside the function.
//
// A process that campaigns again, as Run does, joins the queue behind candidates of the same preference.
//
// ctx bounds only the wait. If the error is nil, the store has the resignation, there was no term to end, or Resign did
// not wait. Otherwise it is ctx's error; [ErrLost] if the term was lost before the store had the resignation;
// dsync.ErrRefused; or, if the session was closed before that, dsync.ErrNotReleased or dsync.ErrClosed. After ErrLost,
// nobody is elected before the session's lease is over. The term has ended in any case.
func (e *Election) Resign(ctx context.Context) error {
	t := e.present()
	if t == nil {
		return nil
	}
	if err := t.resign(ctx); err != nil {
		return fmt.Errorf("leader: resign from %q: %w", e.name, err)
	}
	return nil
}

// ResignAfter resigns like [Election.Resign], but nobody is elected for d from now, by the store's clock,
// even if this process ends in the meantime. Use it if the effects of the work last longer than the work
// itself. If d is the session's TTL, others wait as long as after a crash. After d the first candidate in
// the queue is elected, which may be this process.
//
// d must be between 1 ms and 50 years. If the work takes longer than d to stop, the next leader is elected when the
// work has stopped or the grace is over. admin.Inspector.Break ends the delay at once.
//
// ResignAfter also works if the term has just ended because the ctx of Run or Campaign has ended, for
// example on a signal. It must then be called within the session's grace and, with Run, before its
// function has returned. The function itself can call it as its last step, with its own ctx.
//
// The error is [ErrNotLeader] if this process does not lead, or has resigned; [ErrLost] if the term was lost before the
// store had the resignation; or ctx's error. ctx bounds only the wait.
func (e *Election) ResignAfter(ctx context.Context, d time.Duration) error {
	if d < time.Millisecond || d > driver.MaxDuration {
		return fmt.Errorf("leader: resign from %q after %v: the delay must be between 1ms and %v; to resign immediately, call Resign", e.name, d, driver.MaxDuration)
	}
	if err := e.present().resignBy(ctx, driver.Release{Keep: d}); err != nil {
		return fmt.Errorf("leader: resign from %q after %v: %w", e.name, d, err)
	}
	return nil
}

// resignBy is like resign, but releases the term with the options in l. The error is ErrNotLeader if there is no term,
// if the term was already resigned, or if its release can no longer be changed. Otherwise it is ctx's error or an error
// of [engine.Hold.ReleasedBy].
func (t *term) resignBy(ctx context.Context, l driver.Release) error {
	if t == nil || errors.Is(context.Cause(t.ctx), ErrResigned) || !t.hold.ReleaseBy(l) {
		return ErrNotLeader
	}
	if err := t.end(ctx); err != nil || t.contains(ctx) {
		return err
	}
	return t.hold.ReleasedBy()
}

// resign ends and releases the term as [Election.Resign] documents.
func (t *term) resign(ctx context.Context) error {
	before := false // the term's hold had already finished
	select {
	case <-t.hold.Finished():
		before = true
	default:
	}
	if err := t.end(ctx); err != nil || before || t.contains(ctx) {
		return err
	}
	return t.hold.NotReleased()
}

// end ends the term. Unless ctx is the term's context or was made from it, end then waits until the term's hold has
// finished. The error is ctx's.
func (t *term) end(ctx context.Context) error {
	t.cancel(ErrResigned)
	t.hold.WindDown(context.Cause(t.ctx))
	if !t.run {
		_ = t.hold.Release(ctx) // returns at once if another call releases it already; the wait for both is below
	}
	if t.contains(ctx) {
		return nil
	}
	select {
	case <-t.hold.Finished():
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// Pause resigns like [Election.Resign], and keeps this process from campaigning until
// [Election.Resume]. Until then, calls of Campaign and Run wait outside the queue. Pause returns
// the errors of Resign, but pauses the election in any case.
func (e *Election) Pause(ctx context.Context) error {
	e.mu.Lock()
	if e.paused == nil {
		e.paused = make(chan struct{})
	}
	for cancel := range e.waits {
		(*cancel)(ErrPaused)
	}
	e.mu.Unlock()
	return e.Resign(ctx)
}

// Resume ends a pause that [Election.Pause] began.
func (e *Election) Resume() {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.paused != nil {
		close(e.paused)
		e.paused = nil
	}
}
