package dsync

import (
	"context"
	"time"

	"github.com/leasehold-go/leasehold/dsync/driver"
)

// Hooks are functions that a [Session] calls when something happens. Any of them may be nil.
//
// Hooks are called one at a time, in the order of the events, on a goroutine of their own. A hook that blocks
// delays later hooks, but no heartbeat, lock or loss signal. Panics are logged. A hook may call anything, even
// [Session.Close]. Granted, Released and Lost are never dropped. While a hook is slow, only the latest Heartbeat
// is kept.
type Hooks struct {
	// Granted is called when a hold begins. Readers of one process that share a hold count as one. When the hold
	// ends, either Released or Lost is called.
	Granted func(HoldInfo)

	// Released is called when the holder ends its hold. The key may not be free yet.
	Released func(HoldInfo)

	// Lost is called when a hold ends before its holder releases it, also by [Session.Close] or when a leader
	// resigns.
	Lost func(HoldInfo)

	// SessionStarted is called when the process has registered with the store, for the first time or under a
	// new id after a loss.
	SessionStarted func(id string)

	// SessionLost is called when the session registered as id is lost, and with it all its holds except leases.
	SessionLost func(id string, cause error)

	// Heartbeat is called when a heartbeat was answered or has failed. left is what remains of the session's
	// lease by the local clock.
	Heartbeat func(took, left time.Duration, err error)

	// StoreError is called each time a command fails, whether or not it is repeated. op is its purpose, such as
	// "Acquire". The log reports fewer errors.
	StoreError func(op string, err error)

	// ClockJump is called when the store's clock has moved, relative to the local clock, by more than the margin
	// since the last heartbeat or registration. d is the distance, negative after a jump back. After a jump forward,
	// a key may have been granted before its holder saw the loss.
	ClockJump func(d time.Duration)

	// Deadlock is called once for each possible deadlock of this session: members[i] holds keys[i] and waits for
	// keys[i+1], the last member for keys[0]. One member means that a call waits for a key that its own context
	// holds. See type Deadlock of package dsync/admin.
	Deadlock func(members, keys []string)
}

// AddHooks registers further hooks, which are called until stop is called or the session ends.
func (s *Session) AddHooks(h *Hooks) (stop func()) {
	if h == nil {
		return func() {}
	}
	return s.report.add(*h)
}

// A HoldInfo describes a hold to a hook.
type HoldInfo struct {
	Key   string
	Kind  driver.Kind
	Token int64

	// Of Granted.
	Context context.Context // the call's context, with a tracer's span, for example
	Wait    time.Duration   // from the call to the grant
	Local   bool            // handed off within this process, without a command

	// Of Released and Lost.
	Held time.Duration // since the grant

	// Of Lost.
	Cause    error // matches ErrLost and the reason
	ByHolder bool  // the holder wanted the end: a leader resigned, or a lease is over
}
