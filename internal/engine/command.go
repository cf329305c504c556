package engine

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	mathrand "math/rand/v2"
	"runtime"
	"sync"
	"time"

	"github.com/leasehold-go/leasehold/dsync/driver"
	"github.com/leasehold-go/leasehold/internal/core"
	"github.com/rs/xid"
)

// maxCommands is how many commands of a session may be under way at once, not counting heartbeats, unless the store says
// otherwise (see [driver.Limiter]). At most maxPolls of these may be repeated requests and notices: a thousand polling
// goroutines must not keep an Unlock waiting. A store's client should have maxCommands connections, plus one for
// heartbeats and two for the listener.
const (
	maxCommands = 32
	maxPolls    = 8
)

// MaxAttempt bounds the time for one command, for any TTL, so that a request that the network has silently dropped is
// soon repeated.
const MaxAttempt = 5 * time.Second

// pause returns how long to wait before retrying a command that has failed this many times before.
func (s *Session) pause(failed int) time.Duration {
	return core.Pause(s.config.Retry, s.config.Backoff, failed, mathrand.Int64N)
}

// execute sends a command for the Core and passes the answer to it. If the Core then sends another command, such as the
// notice of a grant, execute sends it too, because that is quicker than starting another goroutine.
func (s *Session) execute(f *core.Send) {
	for f != nil {
		r, read := s.answer(f), f.Op == core.Read
		f = nil
		s.mu.Lock()
		if !s.finished {
			s.next = &f
			s.step(r)
			s.next = nil
		}
		s.mu.Unlock()
		if read && s.hostDir != nil {
			s.lookForDeaths()
		}
	}
}

// answer sends a command, reports how it went, and returns the Reply. The command's context is derived from the
// session's, never from a caller's. Otherwise a caller could cancel a command that the server then still executes, or
// make the command part of its own transaction.
func (s *Session) answer(f *core.Send) *core.Reply {
	ctx, cancel := context.WithTimeout(s.base, s.config.Attempt)
	defer cancel()
	r := &core.Reply{Command: f.ID}
	r.Err = s.call(ctx, f.Command, r)
	r.Lost = r.Err != nil && !isAnswer(r.Err)
	if r.Lost && ctx.Err() == context.DeadlineExceeded {
		r.Err = s.tooSlow(r.Err)
	}
	switch {
	case r.Err == nil:
		s.report.Succeeded(f.Op.String())
	case r.Lost && s.base.Err() == nil,
		// The store refused the command, and perhaps nobody else reports a refusal of such a command.
		f.Op == core.Discard && !r.Lost,
		f.Op == core.Release && !r.Lost && !errors.Is(r.Err, driver.ErrNotWaiting),
		(f.Op == core.Heartbeat || f.Op == core.Publish) && errors.Is(r.Err, driver.ErrRefused) && !f.Asked:
		s.report.Failed(f.Op.String(), r.Err)
	}
	return r
}

// call sends cmd to the store, and puts the answer into r.
func (s *Session) call(ctx context.Context, cmd *core.Command, r *core.Reply) (err error) {
	var edited driver.Edited
	switch cmd.Op {
	case core.Register:
		r.Session, r.Now, err = s.register(ctx)
		if l, ok := s.store.(driver.Limiter); ok {
			r.Lanes = l.MaxCalls()
		}
	case core.Heartbeat:
		var hb driver.HeartbeatReply
		hb, err = s.store.Heartbeat(ctx, cmd.Session, cmd.Revoked)
		r.Now, r.Revoked, r.Committed = hb.Now, hb.Revoked, hb.Committed
	case core.Unregister:
		_, err = s.store.Expire(ctx, cmd.Session, true)
		s.unlockFile(cmd.Session)
	case core.Expire:
		r.Left, err = s.store.Expire(ctx, cmd.Session, cmd.Died)
	case core.Read:
		r.Members, r.Now, err = s.store.Sessions(ctx, cmd.Sessions)
	case core.Load:
		r.State, err = s.store.Load(ctx, cmd.Key, cmp.Or(cmd.Waiters, maxShown))
	case core.Keys:
		r.States, err = s.store.Keys(ctx, cmd.Keys)
	case core.Revoke:
		r.Notices, err = s.store.Revoke(ctx, cmd.Session, cmd.Revoked[0])
	case core.Announce:
		err = s.store.Observe(ctx, cmd.Session, cmd.Seq, cmd.Observed)
	case core.Acquire, core.Release, core.Extend, core.Publish, core.Forget, core.Resize:
		edited, err = s.store.Edit(ctx, cmd.Edit)
		if r.Notices = edited.Notices; err == nil {
			r.State, r.Found, r.Holder, r.Applied = edited.State, edited.Found, edited.Holder, edited.Applied
		}
	case core.Discard:
		r.Notices, err = s.store.Discard(ctx, cmd.Claims)
	case core.Sweep:
		r.Swept, err = s.store.Sweep(ctx, cmd.Session, cmd.Last, s.config.Retention)
	case core.Notify:
		err = s.store.Notify(ctx, cmd.Notices)
	}
	return err
}

// register registers the session under a new id. If the last attempt got no answer, register first checks whether that
// attempt succeeded after all: otherwise each attempt at a slow store would leave another record.
func (s *Session) register(ctx context.Context) (id string, now time.Time, err error) {
	if s.tried != "" {
		switch hb, err := s.store.Heartbeat(ctx, s.tried, nil); {
		case err == nil:
			id, s.tried = s.tried, ""
			return id, hb.Now, nil
		case !errors.Is(err, driver.ErrSessionExpired):
			return "", now, err
		}
		s.forgetTried()
	}
	m := s.process
	m.ID = sessionID()
	s.lockFile(&m)
	now, err = s.store.Register(ctx, m)
	switch {
	case err == nil:
	case isAnswer(err) || errors.Is(err, driver.ErrSessionExists):
		s.unlockFile(m.ID) // no session has that id
	default:
		s.tried = m.ID
	}
	return m.ID, now, err
}

// forgetTried gives up the id of an unanswered registration.
func (s *Session) forgetTried() {
	s.unlockFile(s.tried)
	s.tried = ""
}

// sessionID returns an id that no session has had. An xid alone is not enough: in two containers with process id 1
// and the same machine id, only its 24-bit counter differs. So 65 random bits from crypto/rand follow it.
func sessionID() string { return xid.New().String() + "-" + rand.Text()[:13] }

// ask sends a caller's command as soon as a lane is free (see core.Config). It returns the reply with the store's error,
// ctx's error, or ErrClosed. A caller that gives up does not cancel the command. a.Answer, if not nil, gets the reply even
// then, unless the session has been closed; s.mu is held.
func (s *Session) ask(ctx context.Context, a core.Ask) (*core.Reply, error) {
	none := new(core.Reply)
	if err := ctx.Err(); err != nil {
		return none, err
	}
	answered := make(chan *core.Reply, 1)
	s.mu.Lock()
	if s.finished {
		s.mu.Unlock()
		return none, core.ErrClosed
	}
	first := a.Answer
	a.Answer = func(r *core.Reply) {
		if first != nil {
			first(r)
		}
		answered <- r
	}
	s.step(&a)
	s.mu.Unlock()
	select {
	case r := <-answered:
		return r, r.Err
	case <-ctx.Done():
		return none, ctx.Err()
	case <-s.closing:
		return none, core.ErrClosed
	}
}

// tooSlow adds the time limit of a command to its error. With a short TTL, even a working link can take longer than the
// limit, and then no command ever succeeds.
func (s *Session) tooSlow(err error) error {
	d := s.config.Attempt.Round(time.Millisecond)
	if d < MaxAttempt {
		return fmt.Errorf("no answer within %v, a sixth of the TTL; if the store or the link is slower than that, set a longer TTL: %w", d, err)
	}
	return fmt.Errorf("no answer within %v: %w", d, err)
}

// isAnswer reports whether err is the store's answer to a command, rather than a failure to get an answer. A command
// with such an answer has changed nothing. ErrSessionExists does not count as an answer: the session registers again
// under another id, and the log should report the error.
func isAnswer(err error) bool {
	return errors.Is(err, driver.ErrSessionExpired) || errors.Is(err, driver.ErrMismatch) ||
		errors.Is(err, driver.ErrNotHeld) || errors.Is(err, driver.ErrNotWaiting) ||
		errors.Is(err, driver.ErrRefused) || errors.As(err, new(*SealedError))
}

// startListening starts a listener that replaces the previous one. s.mu must be held.
func (s *Session) startListening(f *core.Listen) {
	s.stopListening()
	ctx, cancel := context.WithCancel(s.base)
	s.stopListen = cancel
	s.workers.wg.Go(func() { s.listen(ctx, f) })
}

func (s *Session) stopListening() {
	if s.stopListen != nil {
		s.stopListen()
		s.stopListen = nil
	}
}

func (s *Session) listen(ctx context.Context, f *core.Listen) {
	err := s.store.Listen(ctx, f.Session, f.Keys, func(n driver.Notice) {
		s.mu.Lock()
		if ctx.Err() == nil {
			s.step(core.Noticed{Listener: f.Number, Notice: n})
		}
		s.mu.Unlock()
		runtime.Gosched() // let the notified waiter run before this goroutine waits for more notices
	})
	s.mu.Lock()
	defer s.mu.Unlock()
	if ctx.Err() != nil || s.finished {
		return
	}
	s.listenErr = err
	unsupported := errors.Is(err, errors.ErrUnsupported)
	if unsupported {
		s.info("dsync: the store can't notify; waiters poll", "why", err)
	} else {
		s.report.Failed("Listen", err)
	}
	s.step(core.ListenerBroken{Listener: f.Number, Unsupported: unsupported})
}

// maxIdle is how many idle goroutines a session keeps for further work.
const maxIdle = 4

// workers run a session's background work. Each function runs on a goroutine of its own, but a few idle goroutines are
// kept for reuse. In a driver's code, the stack of a new goroutine would have to grow several times, and that costs
// more than everything else that the goroutine does.
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

// Forever calls f until it succeeds. Lock, which returns no error, uses it. If the session is closed already, or f
// returns a *driver.MismatchError, Forever panics, because waiting cannot help. If the session is closed during the
// call, Forever never returns: a panic in a waiting goroutine would crash a program that is shutting down.
func (s *Session) Forever(key string, f func(context.Context) error) {
	if s.ends() {
		panic(fmt.Sprintf("dsync: lock %q: the session is closed", key))
	}
	for failed := 0; ; failed++ {
		err := f(context.Background())
		switch {
		case err == nil:
			return
		case errors.Is(err, driver.ErrMismatch):
			panic(err)
		}
		s.Warn("dsync: Lock is still waiting", "key", key, "err", err)
		if s.wait(context.Background(), core.Pause(s.config.Retry, 6*s.config.Backoff, failed, mathrand.Int64N)) != nil {
			select {}
		}
	}
}
