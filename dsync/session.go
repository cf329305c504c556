package dsync

import (
	"context"
	"errors"
	"fmt"
	"maps"

	"github.com/leasehold-go/leasehold/dsync/driver"
	"github.com/leasehold-go/leasehold/internal/engine"
	"github.com/leasehold-go/leasehold/internal/hostdir"
)

// A Session registers this process with a [driver.Store] and keeps its locks alive. Make one per process with
// [New], or with Open or Connect of a store's package.
//
// The session registers when the first lock is requested, and one heartbeat renews everything that it holds and
// waits for. If no heartbeat is acknowledged in time, everything it holds except leases is lost. The session then
// registers again under a new id, and its waiters request their locks again.
type Session struct {
	handle // the engine, for packages of this module: see engine.Of

	options Options // with the defaults filled in, except that of PollInterval
	report  *reporter
}

type handle = engine.Handle

// New returns a session on store. It does not contact the store; an error means that store is nil or that opt
// is invalid. A nil opt means the defaults; see [Options].
func New(store driver.Store, opt *Options) (*Session, error) {
	if store == nil {
		return nil, errors.New("dsync: the store is nil; pass one, for example from dsync/mongo or dsync/dsynctest")
	}
	o, err := opt.withDefaults()
	if err != nil {
		return nil, err
	}
	var dir *hostdir.Dir
	if o.HostDir != "" {
		if dir, err = hostdir.Open(o.HostDir); err != nil {
			return nil, fmt.Errorf("dsync: HostDir is %q: %w", o.HostDir, err)
		}
	}
	config := o.config(opt)
	report := newReporter(store, config, o.Logger)
	if o.Hooks != nil {
		report.add(*o.Hooks)
	}
	return &Session{engine.New(store, config, o.member(), dir, report).Handle(), o, report}, nil
}

// CheckKey returns nil if key can name a lock: if it has 1 to 512 bytes of UTF-8 and no NUL. Otherwise the
// error matches [ErrInvalidKey] and says what is wrong.
func CheckKey(key string) error { return engine.CheckKey(key) }

// ID returns the id under which the session is registered now, or "" if it is not. The id changes when the session is
// lost; [Hooks].SessionStarted gets each id.
func (s *Session) ID() string { return engine.Of(s).ID() }

// Options returns the options that are in force, with the defaults filled in.
func (s *Session) Options() Options {
	o := s.options
	o.Meta, o.PollInterval = maps.Clone(o.Meta), engine.Of(s).PollInterval()
	return o
}

// Mutex returns an unlocked mutex for key. It panics if [CheckKey] returns an error for key.
func (s *Session) Mutex(key string) *Mutex {
	mustKey(key)
	return &Mutex{s: engine.Of(s), key: key, kind: driver.KindMutex, limit: 1}
}

// RWMutex returns an unlocked reader/writer mutex for key. It panics if [CheckKey] returns an error.
func (s *Session) RWMutex(key string) *RWMutex {
	mustKey(key)
	return &RWMutex{w: Mutex{s: engine.Of(s), key: key, kind: driver.KindRWMutex, limit: rwLimit}}
}

// Semaphore returns a semaphore for key of the given size, which must be the same in all processes: see
// [Semaphore.Resize]. It panics if size is less than 1, or if [CheckKey] returns an error.
func (s *Session) Semaphore(key string, size int64) *Semaphore {
	mustKey(key)
	if size < 1 {
		panic(fmt.Sprintf("dsync: semaphore %q of size %d; it must be at least 1", key, size))
	}
	m := &Semaphore{s: engine.Of(s), key: key}
	m.size.Store(size)
	return m
}

// Once returns the once for key. It panics if [CheckKey] returns an error.
func (s *Session) Once(key string) *Once {
	mustKey(key)
	return &Once{t: ticks{s: engine.Of(s), key: key, kind: driver.KindOnce}}
}

// Periodic returns the periodic for key. It panics if [CheckKey] returns an error.
func (s *Session) Periodic(key string) *Periodic {
	mustKey(key)
	return &Periodic{ticks{s: engine.Of(s), key: key, kind: driver.KindPeriodic}}
}

func mustKey(key string) {
	if err := CheckKey(key); err != nil {
		panic(err.Error())
	}
}

// Healthy returns nil, or an error that says what is wrong with this process's use of locks. It sends no command. The
// error is one of these, or joins several:
//
//   - [ErrNotRenewed]: the session holds or waits for something, and no heartbeat was acknowledged for
//     1.1·HeartbeatInterval + min(TTL/6, 5 s), or it could not register for that long.
//   - [ErrStillInUse]: a hold was lost, its grace is over, and its holder has not stopped: it has not
//     released the hold, resigned the term, or returned from Do or leader.Election.Run. Somebody else
//     may hold the key by now.
//   - [ErrNotReleased]: the store refuses to release a key, for example because a database user has lost a privilege.
//     The session keeps trying, and the key stays held as long as the session lives.
//   - [ErrClosed]: Close has begun.
//
// Any of them means that the process is not ready. Only ErrStillInUse should fail a liveness probe: a restart
// stops a process that still uses what it lost, but does not help if the store is unreachable.
func (s *Session) Healthy() error { return engine.Of(s).Healthy() }

// Close ends the session. Holders are notified (Lost closes), and waiters other than [Mutex.Lock] get
// [ErrClosed]. Each hold is released as soon as its holder unlocks or its grace is over. Then the session is
// unregistered.
//
// While ctx lives, Close waits for holders, at most for the grace, and repeats commands that get no answer. It gives up
// when the grace is over and the store has answered nothing for one attempt (a sixth of the TTL, at most 5 s). When ctx
// ends, Close sends each remaining command once. It then returns within one attempt, or in about two round trips if the
// store answers.
//
// If Close returns nil, the session is unregistered, and what it held is released, or will be when its holder's
// grace ends. An unreleased lease stays held until it ends, and what was lost before, until its session expires.
// Otherwise the error is one of these, or both:
//
//   - [ErrNotReleased], as a [*NotReleasedError] with the keys that the store may still hold, because it
//     refused their release, has not answered, or may undo it in a fail-over. They become free within one
//     TTL, a lease at its end.
//   - [ErrNotUnregistered]: the session may stay listed for up to one TTL.
//
// The session is closed even then. Close waits for the session's goroutines except running hooks. A second
// Close returns when the first does, with the same error; its ctx bounds both.
func (s *Session) Close(ctx context.Context) error { return engine.Of(s).Close(ctx) }
