package leader

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/leasehold-go/leasehold/dsync"
	"github.com/leasehold-go/leasehold/internal/calls"
)

// An Election is one process's part in the election of a leader among all
// processes that use the same name on the same store. Make one with [New]; it
// must not be copied. All methods may be called concurrently.
type Election struct {
	s     *dsync.Session
	name  string
	opt   Options
	hooks calls.Queue
	heard context.Context // when it ends the session tells the hooks of nothing more

	mu     sync.Mutex
	term   *term         // of this process: the present or the last one
	paused chan struct{} // closed by Resume; nil: not paused
	waits  map[*context.CancelCauseFunc]bool
	calls  int  // of Run, Campaign and TryCampaign that have not returned
	looks  bool // the session observes for the hooks
	seen   seen // what the hooks were told last
}

// New returns the election of that name on s. It does not contact the store.
// Elections of different names don't concern each other; a name can't be a
// dsync.Mutex's key at the same time. It refuses a nil session, a name that
// dsync.CheckKey refuses, and a value that is too long.
func New(s *dsync.Session, name string, opt *Options) (*Election, error) {
	return newElection(context.Background(), s, name, opt)
}

// newElection is New for an election whose hooks the session knows until heard ends.
func newElection(heard context.Context, s *dsync.Session, name string, opt *Options) (*Election, error) {
	if s == nil {
		return nil, errors.New("leader: the session is nil; make one with Open or Connect of dsync/mongo, or dsync.New")
	}
	if err := dsync.CheckKey(name); err != nil {
		return nil, fmt.Errorf("leader: name of the election: %w", err)
	}
	o, err := opt.withDefaults()
	if err != nil {
		return nil, err
	}
	e := &Election{s: s, name: name, opt: o, heard: heard, waits: make(map[*context.CancelCauseFunc]bool)}
	if f := o.Hooks.StoreError; f != nil {
		stop := s.Listen(&dsync.Hooks{StoreError: f})
		context.AfterFunc(heard, stop)
	}
	return e, nil
}

// Name returns the election's name.
func (e *Election) Name() string { return e.name }

// IsLeader reports whether this process leads. It compares the clock, so it is
// never true past the end of the lease, but it may be over a moment later: work
// under the context of [Election.Campaign].
func (e *Election) IsLeader() bool { return !e.present().over() }

// Running reports whether this process takes part in the election: from the call of
// [Election.Run] until it returns, so also between two terms, and while it is paused;
// and from the call of [Election.Campaign] until the end of the term that it returned,
// or until it returned an error. One that only observes does not run.
func (e *Election) Running() bool {
	e.mu.Lock()
	called, t := e.calls > 0, e.term
	e.mu.Unlock()
	return called || !t.over()
}

// enter notes that a call began that campaigns. Its caller must call leave.
func (e *Election) enter() (leave func()) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.calls++
	return func() {
		e.mu.Lock()
		defer e.mu.Unlock()
		e.calls--
	}
}

func (e *Election) present() *term {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.term
}

// Publish stores value with the present term of this process, for all to read
// with [Election.Leader] and [Election.Observe]. It is gone with the term. value
// has at most 64 KiB; a small one costs less, see [Options]. Of two calls at about
// the same time either may win: where the order matters, put a version into it.
//
// The error is [ErrLost] if this process does not lead, ctx's, or the store's.
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

// Resign ends the present term of this process, if there is one: its context ends
// with the cause [ErrResigned], and the leadership is given up. It says that the
// work is done, so the next leader may lead at once; but a function of [Election.Run] is
// given the session's grace to return first, and Resign waits for that, unless it
// is called with a context of that term, as from inside the function.
//
// It is no farewell: whoever campaigns again, as Run does, is a candidate again,
// behind those that wait.
//
// ctx bounds the wait only; the error is its.
func (e *Election) Resign(ctx context.Context) error {
	t := e.present()
	if t == nil {
		return nil
	}
	t.cancel(ErrResigned)
	t.hold.Drain(context.Cause(t.ctx))
	if !t.run {
		_ = t.hold.Release(ctx) // it goes on in the background: see below
	}
	if inside, ok := TermFrom(ctx); ok && inside == t.Term {
		return nil
	}
	select {
	case <-t.hold.Passed():
		return nil
	case <-ctx.Done():
		return fmt.Errorf("leader: resign from %q: %w", e.name, ctx.Err())
	}
}

// Pause resigns, as [Election.Resign] does, and keeps this process from
// campaigning until [Election.Resume]: calls of Campaign and Run wait, out of line.
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

// Resume ends what [Election.Pause] began.
func (e *Election) Resume() {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.paused != nil {
		close(e.paused)
		e.paused = nil
	}
}

// Paused reports whether the election is paused in this process.
func (e *Election) Paused() bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.paused != nil
}
