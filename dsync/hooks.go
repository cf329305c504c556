package dsync

import (
	"slices"
	"time"
)

// Hooks are functions that a [Session] calls on what happens, in the style of
// net/http/httptrace.ClientTrace. Any may be nil.
//
// They are called one at a time, in the order of what they report, on a
// goroutine of their own: a hook that blocks or panics delays later hooks, but
// no heartbeat, no lock and no loss signal. A hook may call anything,
// [Session.Close] included, which does not wait for a hook that is running. A
// panic of a hook is logged and goes no further. Granted, Released and Lost are
// never dropped; of reports of heartbeats that wait behind a slow hook only the
// latest is kept.
type Hooks struct {
	// Granted: a hold began. Readers of one process that share a hold in the store
	// have one hold.
	Granted func(Grant)

	// Released: a hold was ended by its holder, the last of them if it was shared:
	// by an Unlock of any form, a Release, or the end of a run of a [Once]. The
	// release is not sent yet, or the claim is handed on in this process, or kept.
	//
	// Each hold of which Granted told ends in one of two ways: Released tells of it,
	// or Lost does, once.
	Released func(Release)

	// Lost: a hold ended before its holder released it, by loss, by [Session.Break],
	// by [Session.Close] or by [Hold.Drain].
	Lost func(Loss)

	// SessionStarted: the process has an identity in the store, its first or a
	// new one after a loss.
	SessionStarted func(id string)

	// SessionLost: the identity is lost, and with it all holds that live with it.
	SessionLost func(id string, cause error)

	// Heartbeat: a heartbeat was answered or failed. left is what remains of the
	// lease, by the local clock.
	Heartbeat func(took, left time.Duration, err error)

	// StoreError: a command failed; it will be repeated where the lock's method
	// promises to. op is the [Store]'s method.
	StoreError func(op string, err error)

	// ClockJump: the store's clock moved by d against the local one between two
	// heartbeats, by more than the margin. A jump ahead can have shortened
	// leases: it is the one thing the margin must be larger than.
	ClockJump func(d time.Duration)
}

// Listen has the functions of h called as well, until stop is called or the
// session ends. It is for packages that build on this one.
func (s *Session) Listen(h *Hooks) (stop func()) {
	s.listening.Lock()
	defer s.listening.Unlock()
	s.listeners = append(s.listeners[:len(s.listeners):len(s.listeners)], h)
	return func() {
		s.listening.Lock()
		defer s.listening.Unlock()
		s.listeners = slices.DeleteFunc(slices.Clone(s.listeners), func(l *Hooks) bool { return l == h })
	}
}

// each calls f for all hooks.
func (s *Session) each(f func(*Hooks)) {
	s.listening.Lock()
	listeners := s.listeners
	s.listening.Unlock()
	for _, h := range listeners {
		f(h)
	}
}

// A Grant tells of a hold that began.
type Grant struct {
	Key   string
	Kind  Kind
	Token int64
	Wait  time.Duration // from the call to the grant, time in the local queue included
	Local bool          // it was handed on in this process, without the store
}

// A Release tells of a hold that its holder ended.
type Release struct {
	Key   string
	Kind  Kind
	Token int64
	Held  time.Duration // since the grant; 0 if no hook of holds was set at that time
}

// A Loss tells of a hold that ended before it was released.
type Loss struct {
	Key     string
	Kind    Kind
	Token   int64
	Cause   error         // ErrLost, and what led to it
	Held    time.Duration // as in Release
	Drained bool          // by [Hold.Drain]: by its holder, as when a leader resigns
}

// ofHolds reports whether one of the hooks is about holds.
func (h *Hooks) ofHolds() bool { return h.Granted != nil || h.Released != nil || h.Lost != nil }
