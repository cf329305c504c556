package leader

import "context"

// Hooks are functions that an [Election] calls when something happens, in the style of
// net/http/httptrace.ClientTrace. Any of them may be nil.
//
// Hooks are called one at a time, in the order of the events, on a goroutine of their own. A
// hook that blocks or panics delays later hooks, but no heartbeat, and costs no leadership. A
// hook may call anything: Campaign, Resign, Pause, or Close of the session. Elected, Lost and
// NewLeader are never dropped. If Cycle reports queue up behind a slow hook, only the latest is
// kept.
//
// NewLeader, Cycle, Joined, Left and StoreError are called on every process that campaigns or
// observes, from its first call of Campaign, TryCampaign, Run or Observe until its session ends.
// For the first four the process reads the election after every change, also when a candidate joins
// or leaves; if more than 8 changes come at once, it reads ten times a second. With more than some
// hundred candidates, set these four hooks in a few processes only. The other hooks cost nothing.
type Hooks struct {
	// Elected is called when a term of this process begins. ctx is the context that
	// [Election.Campaign] returns: it has the values of Campaign's ctx, such as a tracer's span,
	// and may have ended by now.
	Elected func(ctx context.Context, t Term)

	// Lost is called when a term of this process has ended, once for each Elected, however the
	// term ended. cause is the cause of the term's context.
	Lost func(t Term, cause error)

	// NewLeader is called when the leader has changed, or leads in another term. before or now
	// is the zero Leader if nobody led, or nobody leads.
	NewLeader func(before, now Leader)

	// Cycle is called each time the election was read: after changes, and every
	// dsync.Options.PollInterval.
	Cycle func(Status)

	// StoreError is called when a command of the session failed. The work that it was for goes
	// on. op is the name of the driver.Store method.
	StoreError func(op string, err error)

	// Joined and Left are called when a member has joined the election, or has left it or died.
	// Changes among processes that only observe are noticed when the election is next read,
	// within dsync.Options.PollInterval. If either hook is set, each reading costs as much as
	// [Election.Members].
	Joined, Left func(Member)

	// Returned is called when a function of Run returned after its term had ended, in which
	// case Run does not return its error.
	Returned func(t Term, err error)
}

// A Status is the state of an election as this process last read it.
type Status struct {
	Leader   Leader
	IsLeader bool  // this process leads
	Err      error // the store's error, if reading failed; then Leader is the last known leader
}
