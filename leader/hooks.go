package leader

// Hooks are functions that an [Election] calls on what happens, in the style of
// net/http/httptrace.ClientTrace. Any may be nil.
//
// They are called one at a time, in the order of what they report, on a
// goroutine of their own: a hook that blocks or panics delays later hooks, but no
// renewal, and costs no leadership. A hook may call anything: Campaign, Resign,
// Pause, or Close of the session. Elected, Lost and NewLeader are never dropped;
// of Cycles that wait behind a slow hook only the latest is kept.
//
// NewLeader, Cycle, Joined and Left are called on every process that campaigns or
// observes, from its first call of Campaign, TryCampaign, Run or Observe until
// its session ends.
type Hooks struct {
	// Elected: a term of this process began.
	Elected func(Term)

	// Lost: a term of this process ended; once per Elected, however it ended. The
	// cause is that of the term's context.
	Lost func(t Term, cause error)

	// NewLeader: the leader is another than before, or the same in another term. The
	// one or the other is the zero Leader when nobody led, or nobody does.
	NewLeader func(before, now Leader)

	// Cycle: the election was looked at, which is done at every change, and every
	// dsync.Options.Poll.
	Cycle func(Status)

	// StoreError: a command of the session failed. What was to be done goes on.
	StoreError func(op string, err error)

	// Joined and Left: a member of the election has come, or has gone or died. A change
	// among those that only observe is seen at the next look, within dsync.Options.Poll.
	// Each look costs what [Election.Members] costs, where one of the two is set.
	Joined, Left func(Member)

	// Returned: a function of Run has returned after its term had ended, so that
	// Run does not return what it returned.
	Returned func(t Term, err error)
}

// A Status is what an election looks like from here.
type Status struct {
	Leader   Leader
	IsLeader bool  // this process leads
	Err      error // of the store, at this look; Leader is then what was known before
}
