package dsync

import (
	"context"
	"fmt"

	"github.com/leasehold-go/leasehold/dsync/driver"
	"github.com/leasehold-go/leasehold/internal/engine"
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
	engine *engine.Session
	hooks  *Hooks // of its Options
}

func init() {
	engine.Of = func(s any) *engine.Session { return s.(*Session).engine }
}

// New returns a session on store. It does not contact the store; an error means that store is
// nil or that opt is invalid. A nil opt means the defaults; see [Options].
func New(store driver.Store, opt *Options) (*Session, error) {
	e, err := engine.New(store, opt.engine())
	if err != nil {
		return nil, err
	}
	var hooks *Hooks
	if opt != nil {
		hooks = opt.Hooks
	}
	return &Session{e, hooks}, nil
}

// CheckKey returns nil if key can name a lock: if it has 1 to 512 bytes of UTF-8 and no NUL.
// Otherwise it returns an error that matches [ErrInvalidKey] and says what is wrong. It is for keys
// that come from outside the program.
func CheckKey(key string) error { return engine.CheckKey(key) }

// ID returns the id under which the session is registered now, or "" if it is not registered.
// It registers when the first lock is requested. The id changes when the session is lost; [Hooks].SessionStarted
// gets each.
func (s *Session) ID() string { return s.engine.ID() }

// Options returns the options that are in force, with the defaults filled in, for logs and diagnosis.
// PollInterval is that of now: its default depends on whether the session listens for notices.
func (s *Session) Options() Options { return options(s.engine.Options(), s.hooks) }

// Mutex returns an unlocked mutex for key. All mutexes of one key exclude each other, in this
// process and in all others. Mutex panics if [CheckKey] returns an error for key.
func (s *Session) Mutex(key string) *Mutex {
	mustKey(key)
	return &Mutex{s: s.engine, key: key, kind: driver.KindMutex, limit: 1}
}

// RWMutex returns an unlocked reader/writer mutex for key. It panics if [CheckKey] returns an
// error for key.
func (s *Session) RWMutex(key string) *RWMutex {
	mustKey(key)
	return &RWMutex{w: Mutex{s: s.engine, key: key, kind: driver.KindRWMutex, limit: rwLimit}}
}

// Semaphore returns a semaphore for key of the given size. All processes must use the same
// size; to change it see [Semaphore.Resize]. Semaphore panics if size is less than 1, or if
// [CheckKey] returns an error for key.
func (s *Session) Semaphore(key string, size int64) *Semaphore {
	mustKey(key)
	if size < 1 {
		panic(fmt.Sprintf("dsync: semaphore %q of size %d; it must be at least 1", key, size))
	}
	m := &Semaphore{s: s.engine, key: key}
	m.size.Store(size)
	return m
}

// Once returns the once for key. It panics if [CheckKey] returns an error for key.
func (s *Session) Once(key string) *Once {
	mustKey(key)
	return &Once{t: ticks{s: s.engine, key: key, kind: driver.KindOnce}}
}

// Periodic returns the periodic for key. It panics if [CheckKey] returns an error for key.
func (s *Session) Periodic(key string) *Periodic {
	mustKey(key)
	return &Periodic{ticks{s: s.engine, key: key, kind: driver.KindPeriodic}}
}

func mustKey(key string) {
	if err := CheckKey(key); err != nil {
		panic(err.Error())
	}
}

// Healthy returns nil, or an error that says what is wrong with this process's use of locks.
// errors.Is tells which of these it is; several may be joined:
//
//   - [ErrNotRenewed]: the session holds or waits for something, and no heartbeat was
//     acknowledged for 1.1·HeartbeatInterval + min(TTL/6, 5 s), so its lease is running out. That is
//     the longest that one interval and one attempt take when nothing fails. It is also
//     returned if somebody waits and the session could not register for that long, for the
//     first time or after a loss. A failed heartbeat that the next one makes up for in time
//     is not reported, nor is anything while the session neither holds nor waits.
//   - [ErrStillInUse]: a hold was lost, its grace is over, and its holder has not stopped:
//     Unlock or Release was not called, the function of a Do or of a leader.Election.Run
//     has not returned, or a term of leader.Election.Campaign was not resigned. Somebody
//     else may hold the key by now. The error goes away when the holder stops. A lease
//     needs no release and never causes it.
//   - [ErrNotReleased]: the store refuses to release a key that was unlocked, for example
//     because a right was revoked. The key stays held as long as the session lives, and the
//     session keeps trying to release it.
//   - [ErrClosed]: Close has begun.
//
// Healthy sends no command: it checks the clock and what the session knows. In Kubernetes, any
// of these errors means that the process is not ready, but only ErrStillInUse should fail a
// liveness probe. A restart does not help a process that cannot reach the store, nor a store to
// which a whole fleet reconnects; but it does stop a process that continues to use what it
// lost:
//
//	http.HandleFunc("GET /readyz", func(w http.ResponseWriter, r *http.Request) {
//		if err := locks.Healthy(); err != nil {
//			http.Error(w, err.Error(), http.StatusServiceUnavailable)
//		}
//	})
//	http.HandleFunc("GET /livez", func(w http.ResponseWriter, r *http.Request) {
//		if err := locks.Healthy(); errors.Is(err, dsync.ErrStillInUse) {
//			http.Error(w, err.Error(), http.StatusServiceUnavailable)
//		}
//	})
func (s *Session) Healthy() error { return s.engine.Healthy() }

// Close ends the session. Holders are notified (Lost closes), and waiters get [ErrClosed],
// except in [Mutex.Lock]. Each hold is released as soon as its holder unlocks or its grace is
// over. Then the session is unregistered.
//
// Close is bounded, whether or not the store answers. While ctx lives, Close waits for holders, at most
// for the grace, and repeats what has no answer. It gives up when the grace is over and the store
// has answered nothing for one attempt, a sixth of the TTL and at most 5 s. When ctx ends, everything
// that is left to send is sent once, all together, and Close returns within one attempt from then on;
// with a ctx that has ended and a store that answers, in about two round trips. What is
// still held then is not taken away: the store keeps it for the rest of the grace and the margin and then
// frees it; waiters notice that by polling.
//
// If Close returns nil, all that the session held or waited for is released, or is left in the store for the rest
// of its holder's grace, and the session is unregistered; a lease that was not released is held until its end. Otherwise
// the error is one of these, or both:
//
//   - [ErrNotReleased], as a [*NotReleasedError] that names the keys that the store may still hold,
//     because it refused their release or has not answered. They become free within one TTL, but a
//     lease only at its own end.
//   - [ErrNotUnregistered]: the session may stay listed as a member for up to one TTL. Without
//     ErrNotReleased, everything is released.
//
// The session is closed even if Close returns an error. A hold that was lost before Close is not counted.
//
// Close waits for all goroutines of the session except running hooks. A second Close waits for
// the first and returns its error; its ctx bounds the first, too.
func (s *Session) Close(ctx context.Context) error { return s.engine.Close(ctx) }
