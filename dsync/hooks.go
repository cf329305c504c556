package dsync

import (
	"context"
	"time"

	"github.com/leasehold-go/leasehold/dsync/driver"
	"github.com/leasehold-go/leasehold/internal/engine"
)

// Hooks are functions that a [Session] calls when something happens, in the style of
// net/http/httptrace.ClientTrace. Any of them may be nil.
//
// Hooks are called one at a time, in the order of the events, on a goroutine of their own. A
// hook that blocks or panics delays later hooks, but no heartbeat, no lock and no loss signal.
// A hook may call anything, including [Session.Close], which does not wait for a running hook.
// A panic in a hook is logged and recovered. Granted, Released and Lost are never dropped. If
// Heartbeat reports queue up behind a slow hook, only the latest is kept for each [Hooks].
type Hooks struct {
	// Granted is called when a hold begins. Readers of one process that share a hold in the
	// store have one hold.
	//
	// Every hold that Granted reports is reported once more when it ends: by Released or by
	// Lost.
	Granted func(GrantedInfo)

	// Released is called when the holder ends its hold: by any form of Unlock, by Release, or
	// at the end of a [Once]'s run. For a shared hold that is the last of its readers. The key
	// need not be free yet: the release may not have been sent, or the hold is handed off in
	// this process, or the key is kept.
	Released func(ReleasedInfo)

	// Lost is called when a hold ends before its holder releases it: because it was lost, by
	// force, as with [Mutex.ForceHold], by [Session.Close], or because a leader resigned.
	Lost func(LostInfo)

	// SessionStarted is called when the process has registered with the store, for the first
	// time or under a new id after a loss.
	SessionStarted func(id string)

	// SessionLost is called when the session registered as id is lost, and with it all holds
	// that live with it.
	SessionLost func(id string, cause error)

	// Heartbeat is called when a heartbeat was answered or has failed. left is what remains of
	// the session's lease by the local clock.
	Heartbeat func(took, left time.Duration, err error)

	// StoreError is called each time a command failed. The command is repeated where the
	// documentation of the lock's method promises it. op says what it was to do: Register,
	// Heartbeat, Expire, Read, Acquire, Release, Extend, Notify, Listen, Sweep and the like. The log
	// has fewer lines: for each op when it begins to fail, every ten seconds, and at the end.
	StoreError func(op string, err error)

	// ClockJump is called when the store's clock moved by d relative to the local clock between
	// two heartbeats, by more than the margin. A registration counts as one, so a jump by which
	// the session expired is reported when it registers again. A jump ahead may have shortened
	// leases, so that a key was granted before its holder saw the loss.
	ClockJump func(d time.Duration)

	// Deadlock is called once for each possible deadlock that this session finds itself in: a cycle of
	// processes, each of which holds a key and waits for that of the next, or one call that waits for a key
	// that its own context holds. The session looks when one of its waits has lasted for half a TTL (at least
	// 5 s and at most 15 s), and each time that its age has doubled. The same is logged, as a warning. Type
	// Deadlock of package dsync/admin says what is found, and what is not.
	Deadlock func(DeadlockInfo)
}

// AddHooks registers further hooks, which are called until stop is called or the session ends. Nil adds none.
// It is for packages that build on this one.
func (s *Session) AddHooks(h *Hooks) (stop func()) { return s.engine.AddHooks(h.engine()) }

// A GrantedInfo describes a hold that began.
type GrantedInfo struct {
	// Context is the context of the call that the hold was granted to, such as
	// [Mutex.LockContext], or context.Background() if the call has none, such as [Mutex.Lock]. It
	// is for its values: a tracer finds the caller's span in it. It may have ended by now. Of
	// readers that share a hold it is the first one's.
	Context context.Context

	Key   string
	Kind  driver.Kind
	Token int64
	Wait  time.Duration // from the call to the grant, including time in the local queue
	Local bool          // it was handed off within this process, without a command to the store
}

// A ReleasedInfo describes a hold that its holder ended.
type ReleasedInfo struct {
	Key   string
	Kind  driver.Kind
	Token int64
	Held  time.Duration // since the grant
}

// A LostInfo describes a hold that ended before it was released.
type LostInfo struct {
	Key      string
	Kind     driver.Kind
	Token    int64
	Cause    error         // ErrLost, wrapped together with the reason
	Held     time.Duration // as in ReleasedInfo
	ByHolder bool          // the hold ended as its holder wanted, as when a leader resigns or the time of a lease is over
}

// A DeadlockInfo describes a deadlock: Members[i] holds Keys[i] and waits for Keys[i+1], the last one for
// Keys[0]. If the same work holds and waits in each of them, all wait forever.
type DeadlockInfo struct {
	Members []string // their processes, for people, such as "pod-7 (process 4711 on web-1)"
	Keys    []string
}

// String says what each member holds and waits for.
func (d DeadlockInfo) String() string { return engine.DeadlockInfo(d).String() }

// engine returns h as the engine's hooks.
func (h *Hooks) engine() *engine.Hooks {
	if h == nil {
		return nil
	}
	e := &engine.Hooks{
		SessionStarted: h.SessionStarted,
		SessionLost:    h.SessionLost,
		Heartbeat:      h.Heartbeat,
		StoreError:     h.StoreError,
		ClockJump:      h.ClockJump,
	}
	if f := h.Granted; f != nil {
		e.Granted = func(g engine.GrantedInfo) { f(GrantedInfo(g)) }
	}
	if f := h.Released; f != nil {
		e.Released = func(r engine.ReleasedInfo) { f(ReleasedInfo(r)) }
	}
	if f := h.Deadlock; f != nil {
		e.Deadlock = func(d engine.DeadlockInfo) { f(DeadlockInfo(d)) }
	}
	if f := h.Lost; f != nil {
		e.Lost = func(l engine.LostInfo) { f(LostInfo(l)) }
	}
	return e
}
