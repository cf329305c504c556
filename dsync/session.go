package dsync

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/leasehold-go/leasehold/internal/calls"
)

// A Session is this process's presence in a [Store]: what makes, keeps alive
// and gives up the locks of one process. Make one per process with [New], or
// with Open or Connect of a store's package; a Session must not be copied.
//
// It registers with the store when the first lock is asked for, under an id
// that is made up then, and keeps everything it holds and waits for alive with
// one heartbeat. When the heartbeats don't get through in time, everything it
// holds is lost, before the store can grant it to anyone else, and the session
// goes on under a new id: who waits asks again.
//
// All methods may be called concurrently.
type Session struct {
	store Store
	opt   Options
	hooks calls.Queue

	base context.Context // of all commands: no caller's values, ends with Close
	stop context.CancelFunc

	closing chan struct{} // closed when Close begins
	closed  chan struct{} // closed when Close is done
	workers *workers      // all goroutines but hooks

	// Lanes bound how many commands are under way at once: heartbeats have a way of
	// their own, so that they never wait behind the session's other requests.
	lanes     chan struct{} // of all but heartbeats and what begins or ends a session
	pollLanes chan struct{} // of those, of repeated attempts to acquire

	asking   sync.WaitGroup // of callers that ask for a claim
	retiring sync.WaitGroup // of goroutines that release a claim

	mu          sync.Mutex
	finished    bool // no goroutine may start any more
	gaveUp      bool // Close waits for releases: it does not wait for those that begin now
	closeErr    error
	presence    *presence
	registering *registration
	holds       map[string]*hold    // by claim id: all claims that the store may know
	queues      map[string]*queue   // by key: who has the turn in this process, and who waits for it
	overdue     map[*hold]time.Time // holds that ended before their release, and when: until their holder is done
	glance      *time.Timer         // looks for what ended while the machine slept; nil: not running
	renewed     stamp               // of the last presence: before the send of the heartbeat that its lease counted from
	peers       peers
	observed    observed

	listening sync.Mutex // guards listeners; taken under mu, and nothing under it
	listeners []*Hooks
}

// New returns a session on store. It does not contact the store: errors are
// those of nonsense in opt. See [Options] for the defaults of a nil opt.
func New(store Store, opt *Options) (*Session, error) {
	if store == nil {
		return nil, errors.New("dsync: the store is nil; pass one, as of dsync/mongo or dsync/dsynctest")
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
		holds:   make(map[string]*hold),
		queues:  make(map[string]*queue),
		overdue: make(map[*hold]time.Time),
		peers:   make(peers),
	}
	s.Listen(o.Hooks)
	return s, nil
}

// ID returns the id under which the session is registered now, or "" if it is
// not. It changes when the session is lost.
func (s *Session) ID() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.presence == nil {
		return ""
	}
	return s.presence.id
}

// Name returns the identity that the session shows: [Options].Name.
func (s *Session) Name() string { return s.opt.Name }

// TTL returns the session's [Options].TTL.
func (s *Session) TTL() time.Duration { return s.opt.TTL }

// Margin returns the session's [Options].Margin.
func (s *Session) Margin() time.Duration { return s.opt.Margin }

// Mutex returns a mutex for key, unlocked. All mutexes of one key exclude each
// other, in this process and in all others. It panics if [CheckKey] refuses the
// key.
func (s *Session) Mutex(key string) *Mutex {
	mustKey(key)
	return &Mutex{s: s, key: key, kind: KindMutex, limit: 1}
}

// RWMutex returns a reader/writer mutex for key, unlocked. It panics if
// [CheckKey] refuses the key.
func (s *Session) RWMutex(key string) *RWMutex {
	mustKey(key)
	return &RWMutex{w: Mutex{s: s, key: key, kind: KindRWMutex, limit: rwLimit}}
}

// Semaphore returns a semaphore for key whose holders have up to size together, in
// all processes. All processes must name the same size, but see
// [Semaphore.Resize]. It panics if size is less than 1, or [CheckKey] refuses the
// key.
func (s *Session) Semaphore(key string, size int64) *Semaphore {
	mustKey(key)
	if size < 1 {
		panic(fmt.Sprintf("dsync: semaphore %q of size %d; it must be at least 1", key, size))
	}
	m := &Semaphore{s: s, key: key}
	m.size.Store(size)
	return m
}

// Once returns the once for key. It panics if [CheckKey] refuses the key.
func (s *Session) Once(key string) *Once {
	mustKey(key)
	return &Once{s: s, key: key}
}

func mustKey(key string) {
	if err := CheckKey(key); err != nil {
		panic(err.Error())
	}
}

// Close ends the session. Every holder is told (Lost closes), whoever waits gets
// [ErrClosed] (but see [Mutex.Lock]), holds are given up as soon as their
// holders unlock or their grace is over, and the session is unregistered.
//
// ctx bounds the wait for holders only. When it ends, what is still held is not
// taken from them: the store keeps it for the rest of the grace and the margin, and
// frees it by itself, which who waits for it notices by polling. So Close with an ended
// ctx takes about one round trip to the store.
//
// An error says what the store did not answer; what was left there lapses
// within one TTL, but a [Lease] only at its own end. It may be only that the session is not unregistered, the last of
// the commands: all was given up before, so nobody waits for it, but it is listed
// among the members until it lapses. The session is closed all the same.
//
// Close waits for all goroutines of the session but running hooks. A second Close
// waits for the first and returns its error.
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
	for _, h := range s.holds {
		if h.state == asking {
			h.notify()
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
	if s.glance != nil {
		s.glance.Stop()
	}
	if s.presence != nil {
		s.presence.lose(ErrClosed)
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

// spawn runs f on a goroutine that Close waits for. It reports whether it did:
// not once Close is past waiting.
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

// maxCommands is how many commands of a session are under way at once, beside its
// heartbeats, and maxPolls how many of them are repeated attempts to acquire: a
// thousand goroutines that poll must not keep an Unlock waiting. A store's own client
// should have a connection for each of these, one for heartbeats and one for a watch.
const (
	maxCommands = 32
	maxPolls    = 8
)

// attemptTime bounds one command.
func (s *Session) attemptTime() time.Duration { return s.opt.TTL / 6 }

// backoff returns a new backoff for retries of a command.
func (s *Session) backoff() backoff { return backoff{cap: s.opt.TTL / 12} }

// An answer is what one command returned.
type answer[T any] struct {
	v   T
	err error
}

// call runs one command of the store on a goroutine of the session's own, and what
// else [command] says. So a caller that gives up leaves the answer to whoever
// cleans up. The channel has room for the answer; it is never closed.
func call[T any](s *Session, op string, f func(context.Context) (T, error)) <-chan answer[T] {
	return background(s, func() answer[T] { return command(s, op, f) })
}

// send is call for who is in a lane, which it leaves when the command has ended.
func send[T any](s *Session, op string, leave func(), f func(context.Context) (T, error)) <-chan answer[T] {
	return background(s, func() answer[T] {
		defer leave()
		return attempt(s, op, f)
	})
}

func background[T any](s *Session, f func() answer[T]) <-chan answer[T] {
	ch := make(chan answer[T], 1)
	if !s.spawn(func() { ch <- f() }) {
		ch <- answer[T]{err: ErrClosed}
	}
	return ch
}

// command is attempt in a lane, for which it waits.
func command[T any](s *Session, op string, f func(context.Context) (T, error)) answer[T] {
	select {
	case s.lanes <- struct{}{}:
	case <-s.base.Done():
		return answer[T]{err: ErrClosed}
	}
	defer func() { <-s.lanes }()
	return attempt(s, op, f)
}

// attempt runs one command of the store under a deadline and a context of the
// session's own, never the caller's: a cancelled caller must not leave a command half
// sent (the server may still execute it), and a caller inside a transaction must not
// pull it in.
func attempt[T any](s *Session, op string, f func(context.Context) (T, error)) answer[T] {
	ctx, cancel := context.WithTimeout(s.base, s.attemptTime())
	defer cancel()
	v, err := f(ctx)
	if err != nil && !isAnswer(err) && s.base.Err() == nil {
		s.storeError(op, err)
	}
	return answer[T]{v, err}
}

// isAnswer reports whether err is an answer of the store, which then has
// changed nothing, and not a failure to get one. ErrSessionExists is not among them:
// who waits tries again, under another id, and an operator should hear of it.
func isAnswer(err error) bool {
	return errors.Is(err, ErrSessionDead) || errors.Is(err, ErrMismatch) ||
		errors.Is(err, ErrNotHeld) || errors.Is(err, ErrRefused) || errors.As(err, new(*sealedError))
}

func (s *Session) storeError(op string, err error) {
	s.warn("dsync: a command failed", "op", op, "err", err)
	s.each(func(h *Hooks) {
		if h.StoreError != nil {
			s.report(func() { h.StoreError(op, err) })
		}
	})
}

// report has f called in the order of reports, on the goroutine of hooks. Log
// records go the same way: a logger that blocks must not delay a heartbeat.
func (s *Session) report(f func()) { s.hooks.Add(f) }

func (s *Session) info(msg string, args ...any) { s.record(slog.LevelInfo, msg, args) }
func (s *Session) warn(msg string, args ...any) { s.record(slog.LevelWarn, msg, args) }

func (s *Session) record(level slog.Level, msg string, args []any) {
	if s.opt.Logger != nil {
		s.report(func() { s.opt.Logger.Log(context.Background(), level, msg, args...) })
	}
}

// sleep waits for d, or until ctx or the session ends.
func (s *Session) sleep(ctx context.Context, d time.Duration) error { return s.pause(ctx, nil, d) }

// pause is sleep that ends early when ready is closed.
func (s *Session) pause(ctx context.Context, ready <-chan struct{}, d time.Duration) error {
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
		return ErrClosed
	}
}
