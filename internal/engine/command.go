package engine

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/leasehold-go/leasehold/dsync/driver"
)

// maxCommands is how many commands of a session may be under way at once, not counting heartbeats.
// maxPolls is how many of them may be repeated attempts to acquire: a thousand goroutines that
// poll must not keep an Unlock waiting. A store's client should have maxCommands connections, plus
// one for heartbeats and two for the listener.
const (
	maxCommands = 32
	maxPolls    = 8
)

// The longest that one command, and the pause before a retry, may take however long the TTL is. A
// request that a silent network has swallowed is repeated after that time.
const (
	maxAttemptTime = 5 * time.Second
	maxBackoff     = 2500 * time.Millisecond
)

// attemptTime returns how long one command may take.
func (o *Options) attemptTime() time.Duration { return min(o.TTL/6, maxAttemptTime) }

func (s *Session) attemptTime() time.Duration { return s.opt.attemptTime() }

// backoff returns a new backoff for retries of a command.
func (s *Session) backoff() backoff { return backoff{cap: min(s.opt.TTL/12, maxBackoff)} }

// An answer is what one command returned.
type answer[T any] struct {
	v   T
	err error
}

// request sends one command, as [command] does, on a goroutine of the session. It returns the store's
// answer, ctx's error, or ErrClosed. A caller that gives up does not cancel the command.
func request[T any](ctx context.Context, s *Session, op string, f func(context.Context) (T, error)) (T, error) {
	var none T
	if err := ctx.Err(); err != nil {
		return none, err
	}
	select {
	case a := <-background(s, command, op, f):
		return a.v, a.err
	case <-ctx.Done():
		return none, ctx.Err()
	case <-s.closing:
		return none, ErrClosed
	}
}

// background sends one command with send, which is [command] or [attempt], on a goroutine of the
// session. The channel has capacity for the answer, so nobody has to receive it; it is never closed.
func background[T any](s *Session, send func(*Session, string, func(context.Context) (T, error)) answer[T],
	op string, f func(context.Context) (T, error)) <-chan answer[T] {
	ch := make(chan answer[T], 1)
	if !s.spawn(func() { ch <- send(s, op, f) }) {
		ch <- answer[T]{err: ErrClosed}
	}
	return ch
}

// command waits for a lane and then makes an attempt in it.
func command[T any](s *Session, op string, f func(context.Context) (T, error)) answer[T] {
	select {
	case s.lanes <- struct{}{}:
	case <-s.base.Done():
		return answer[T]{err: ErrClosed}
	}
	defer func() { <-s.lanes }()
	return attempt(s, op, f)
}

// attempt runs one command to the store under a deadline. The context is the session's, never the
// caller's: a caller that is cancelled must not leave a command half sent, since the server may
// still execute it, and a caller's transaction must not include the command.
func attempt[T any](s *Session, op string, f func(context.Context) (T, error)) answer[T] {
	ctx, cancel := context.WithTimeout(s.base, s.attemptTime())
	defer cancel()
	v, err := f(ctx)
	if err != nil && !isAnswer(err) && s.base.Err() == nil {
		s.storeError(op, err)
	}
	return answer[T]{v, err}
}

// isAnswer reports whether err is an answer of the store, which then has changed nothing, rather
// than a failure to get an answer. ErrSessionExists is not counted as an answer: waiters try again
// under another id, and an operator should learn of it.
func isAnswer(err error) bool {
	return errors.Is(err, driver.ErrSessionExpired) || errors.Is(err, driver.ErrMismatch) ||
		errors.Is(err, driver.ErrNotHeld) || errors.Is(err, driver.ErrNotWaiting) ||
		errors.Is(err, driver.ErrRefused) || errors.As(err, new(*SealedError))
}

// maxIdle is how many idle goroutines of a session wait for work.
const maxIdle = 4

// workers run a session's background work, each function on a goroutine of its own. A few
// goroutines wait for more work when they are done. A new goroutine would first have to grow its
// stack several times to what a driver needs, which costs more than everything else about it.
type workers struct {
	ctx  context.Context // ends the idle goroutines
	wg   sync.WaitGroup  // counts all goroutines
	work chan func()     // work for an idle goroutine
	idle chan struct{}   // has one element for each idle goroutine
}

func newWorkers(ctx context.Context) *workers {
	return &workers{ctx: ctx, work: make(chan func()), idle: make(chan struct{}, maxIdle)}
}

// do calls f on a goroutine. It must not be called concurrently with wg.Wait.
func (w *workers) do(f func()) {
	select {
	case w.work <- f:
	default:
		w.wg.Go(func() { w.run(f) })
	}
}

func (w *workers) run(f func()) {
	for {
		f()
		select {
		case w.idle <- struct{}{}:
		default:
			return // enough goroutines are idle
		}
		select {
		case f = <-w.work:
			<-w.idle
		case <-w.ctx.Done():
			return
		}
	}
}

// A backoff spaces the retries of one operation. The wait doubles, with jitter, up to cap. After a
// success, reset starts it again.
type backoff struct {
	step, cap time.Duration
}

// next returns how long to wait before the next retry.
func (b *backoff) next() time.Duration {
	const first = 20 * time.Millisecond
	b.step = min(max(2*b.step, first), b.cap)
	return b.step/2 + rand.N(b.step/2+1)
}

func (b *backoff) reset() { b.step = 0 }

// jitter returns d ± part of it.
func jitter(d time.Duration, part float64) time.Duration {
	return time.Duration(float64(d) * (1 - part + 2*part*rand.Float64()))
}

// Forever calls f until it succeeds. It makes a Lock, which returns no error, of a LockContext. If
// the session is closed already, or f returns a *driver.MismatchError, it panics: waiting cannot
// fix that. If the session closes later, Forever never returns, since a panic in a goroutine that
// waits would end a program while it shuts down.
func (s *Session) Forever(key string, f func(context.Context) error) {
	if s.ends() {
		panic(fmt.Sprintf("dsync: lock %q: the session is closed", key))
	}
	retry := backoff{cap: min(s.opt.TTL/2, 6*maxBackoff)}
	for {
		err := f(context.Background())
		switch {
		case err == nil:
			return
		case errors.Is(err, driver.ErrMismatch):
			panic(err)
		}
		s.Warn("dsync: Lock goes on waiting", "key", key, "err", err)
		if s.wait(context.Background(), retry.next()) != nil {
			select {}
		}
	}
}
