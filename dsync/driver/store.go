package driver

import (
	"context"
	"time"
)

// A Store keeps sessions and claims for all processes that share it. It is the interface between package dsync and a
// database. Package dsync decides, waits, retries and measures time; the database makes each of the commands below
// atomic and durable.
//
// # What a store holds
//
// Sessions: one record per [Member], with the time of its last heartbeat by the store's own clock. A session is alive,
// lapsed or expired. It has lapsed when its last heartbeat is at least TTL ago by the store's clock; a heartbeat makes
// a lapsed session alive again. It has expired once a call of [Store.Expire] has found it lapsed or unknown. It has
// also expired once Expire has been called with owner set. Expiry is final: no later command, repeated or late, makes
// an expired id alive again.
//
// Keys: for each key, the claims that hold it and the values that they have published, the queue of claims that wait
// for it, a kind, a limit, the last token and, for [KindElection], the number of grants. The sum of the weights of the
// holders never exceeds the limit, except after a [Resize] to a lower limit, until enough claims have been released.
//
// Every command that changes a key, except [Extend] and [Publish], does two things in one atomic step. First it makes
// its edit. Then it settles the key: while the first claim in the queue fits, it grants that claim, which moves to the
// holders with a new token. Claims are granted strictly in the order of the queue; a light claim does not overtake a
// heavy one. So a command that makes room, from whatever session, also grants the next claim.
//
// Tokens: every grant of a key has a token that is greater than every earlier token of that key by at least
// [TokenStep]. If the earlier claim has Yield and takes the whole limit (Weight = Limit), the new token is greater by
// at least [TokenRoom]. The values between two grants are reserved for hand-offs within one process. Tokens keep
// growing like this after [Store.Sweep] has deleted the key's record, and after a fail-over.
//
// Ticks: a key that is sealed up to a tick has a result, and is not granted again for that tick or an earlier one,
// unless a [Forget] removes the seal. Without a Forget, the sealed tick never decreases.
//
// # Rules for every method
//
// Only the store's clock counts. Each command reads the store's own clock once; "now" is that reading. The clock of a
// caller's host must not decide anything.
//
// A nil error means that no fail-over can undo what the method reports, because it is committed (on MongoDB: by a
// majority). If the store can't be sure of that, the method returns an error. The exceptions are a [Release] with
// Early, and what Sessions reads.
//
// Some errors are definite answers, to be tested with errors.Is: [ErrSessionExpired], [ErrSessionExists],
// [ErrMismatch], [ErrNotHeld], [ErrNotWaiting] and [ErrRefused]. ErrRefused is for failures that repeating the command
// cannot fix (missing privileges, a broken configuration, a full queue). A definite answer means that the command has
// not had its effect, and never will. The command may still have dropped claims of expired sessions, and holders whose
// end has come.
//
// Every other error means that the command may or may not have been applied, or may still be applied a little later.
// The caller repeats the command, unless it is a Register. A repeated or late command must do no harm, as documented
// for each method.
//
// Methods that return notices return all notices that are due for what the command has done; the caller then passes
// them to [Store.Notify]. Notices are for all sessions whose store can listen, whether or not they listen at the
// moment. There is one for the caller's own session if another of its claims is affected. There is none for the
// command's own claim, because the reply says what happened to that claim. If the reply of a command is lost and the
// command is repeated, the repetition need not return notices for what the first command did. A NoticeChange may be
// returned even if nothing has changed. Only an Edit with Release and Acquire, and a Discard, may return notices with
// an error.
//
// Durations are rounded up to the store's resolution, so that a positive duration never becomes
// zero, which means "without end". No duration is longer than [MaxDuration].
//
// Only a Store may change what it keeps. If an operator or a clean-up job deletes the record of a key anyway, its
// claims are gone, and the store grants the key anew. The sessions that held the key find out: see Keys, and
// dsync.ErrRecordDeleted.
//
// Methods leave retries to the caller, and return soon after ctx ends. Only Listen keeps running, until ctx ends or its
// listener breaks. Methods never use the values of ctx. All methods may be called concurrently.
type Store interface {
	// Register makes the session m.ID alive and starts its TTL. It returns the time that it recorded as the first
	// heartbeat. If the id is known already, for a session that is alive, lapsed or expired, the error is
	// ErrSessionExists and nothing changes. So only one of several calls of Register with the same id succeeds. A
	// caller that got no answer does not repeat Register with the same id. It sends a Heartbeat to find out whether the
	// session was registered, and uses a new id if it was not. The fields LastHeartbeat and Expired of m are ignored.
	Register(ctx context.Context, m Member) (now time.Time, err error)

	// Heartbeat records now as the session's last heartbeat. It removes the given revocations from the session, and
	// returns now and the remaining revocations. A session that has lapsed but not expired is alive again. The error is
	// ErrSessionExpired if the session has expired or is unknown.
	Heartbeat(ctx context.Context, session string, given []Revocation) (HeartbeatReply, error)

	// Expire expires the session if it is unknown or has lapsed, that is, if now is not before its last heartbeat +
	// TTL. If owner is true, it expires the session at once, whatever its state; only the session's owner, or somebody
	// who knows that the owner's process has ended, may pass true. Expire returns 0 if the session has expired, by this
	// call or before it. Otherwise it changes nothing and returns the time left until the session lapses, but at most
	// TTL, even if the clock was set back after the last heartbeat.
	Expire(ctx context.Context, session string, owner bool) (left time.Duration, err error)

	// Revoke asks the session to give up a claim: it adds the revocation to the session, until a Heartbeat removes
	// it. A revocation that is already there is not added again. Revoke does not check whether the claim exists.
	// The error is ErrSessionExpired if the session has expired or is unknown. The notice, if there is one, is for
	// the session (NoticeRevoke); if the revocation was already there, the notice may be omitted.
	Revoke(ctx context.Context, session string, r Revocation) ([]Notice, error)

	// Observe records the list of keys that the session observes, so that Sessions can find the session by these keys.
	// The list replaces the session's previous list. Observe is not a heartbeat. seq counts the session's lists: if a
	// list with the same seq or a greater one is recorded, Observe changes nothing. The error is ErrSessionExpired if
	// the session has expired or is unknown.
	//
	// The list has at most [MaxObserved] bytes; if a session observes more, some keys are left out. The list stays in
	// the session's record until another list replaces it or the record is deleted. On servers that write or log the
	// whole record with each heartbeat, such as MongoDB 4.4, a long list makes every heartbeat more expensive.
	Observe(ctx context.Context, session string, seq int64, keys []string) error

	// Edit makes one edit of a key: see [Acquire], [Release], [Extend], [Publish], [Resize] and [Forget] for what each
	// does, which errors it has, and which notices are due. The error is ErrRefused if e's Check returns an error.
	//
	// If e has both Release and Acquire, the store makes both in one step, or first Release and then Acquire in a
	// second step. In the latter case other commands may come between the two. The store makes Release even if now is
	// after the NotAfter of Acquire. If Edit returns an error, Release may or may not have been made. If the store
	// knows that it made Release in a step of its own, it returns the notices of Release with the error.
	Edit(ctx context.Context, e Edit) (Edited, error)

	// Discard removes claims that were released or given up, because a late copy of a request may have made them join
	// again. It removes each in a step of its own, like a Release without options. It keeps holders that have an end,
	// because a Release has kept them on purpose. Usually there is nothing to remove; then Discard writes nothing. Only
	// Key, ID and Session of the claims are used. Discard returns the notices that Release would have returned for the
	// removed claims. If it fails to remove some claims, it still tries to remove the others, and returns their notices
	// with the first error. A deposed primary may answer that nothing is left. So a session calls Discard only after a
	// Heartbeat that was executed after the NotAfter of all requests of the claims.
	Discard(ctx context.Context, claims []Claim) ([]Notice, error)

	// Listen calls f, one call at a time, for the notices that are sent to the session and to observers of the
	// keys, until ctx ends or the listener breaks. It then returns the reason. keys may be empty or have more than
	// a thousand elements. If session is "", Listen is for the keys only. Listen may miss some notices, and may deliver
	// others more than once.
	//
	// The first call of f has a NoticeReady: from then on, everything sent is received, and commands that change one of
	// the keys return a NoticeChange. NoticeReady is repeated whenever notices may have been missed.
	//
	// A store that cannot notify returns an error that matches errors.ErrUnsupported, at once;
	// its callers poll.
	Listen(ctx context.Context, session string, keys []string, f func(Notice)) error

	// Notify sends notices that a command on this store returned. It is best effort: it is not an error if nobody
	// listens, and a lost notice need not be an error. A store that cannot notify does nothing.
	Notify(ctx context.Context, notices []Notice) error

	// Load returns the state of a key. Its WaitersAhead has the first claims in the queue. The argument waiters, which
	// is at least 1, limits the number of these claims; [MaxQueue] requests all. If the key has no record, only Key and
	// Now are set. Load and Keys show only what is committed, but what they show may be stale, because a deposed
	// primary may answer them.
	Load(ctx context.Context, key string, waiters int) (State, error)

	// Keys returns the states of the keys that q selects, in byte order. Each state is what Load would return, but with
	// at most 8 claims in WaitersAhead.
	Keys(ctx context.Context, q KeyQuery) ([]State, error)

	// Sessions returns the sessions that q selects, and the time of the reading. The reading may be stale: use it to
	// set timers and for display, never for decisions.
	Sessions(ctx context.Context, q SessionQuery) (m []Member, now time.Time, err error)

	// Sweep scans one slice of the store, of at most 1,000 records. It deletes records that have been idle for longer
	// than retention: those of keys that nobody holds or waits for, and those of expired or lapsed sessions. It keeps
	// the record of a key that counts terms or is sealed. It also keeps every record without which a token of its key
	// might be granted twice.
	//
	// The store has one [SweepState] for all callers. If the state's Turn equals last.Turn, the slice begins after the
	// state's cursor, and Sweep returns the new state, whose By is the given session. If it does not, somebody else has
	// swept since Sweep returned last. Then Sweep changes nothing and returns the current state. If several calls pass
	// the same state, one of them advances it, and the others return the new state. All of them may have deleted idle
	// records. Before the first sweep of a store, all fields of its state but Now are zero.
	Sweep(ctx context.Context, session string, last SweepState, retention time.Duration) (SweepState, error)
}

// A SweepState describes how far the sweeping of a store has progressed: see [Store.Sweep].
type SweepState struct {
	// Turn counts the slices that were swept. By is the session that swept the last slice, and At is the time of that
	// sweep, by the store's clock.
	Turn int64
	By   string
	At   time.Time

	// Now is the time of the reading, by the store's clock.
	Now time.Time

	// After is the cursor: the next slice begins after it, or at the beginning if it is "".
	After string

	// Seen is the number of records in the last slice, and Deleted is the number of these that were deleted.
	Seen, Deleted int64

	// Round is the number of records seen so far in the current round, which began at the beginning of the store.
	// LastRound is the number of records in the previous round, which is complete, or 0 if there was none.
	Round, LastRound int64
}

// A SessionQuery selects the sessions that [Store.Sessions] reads.
type SessionQuery struct {
	// IDs are the ids of the sessions, up to 1,000. Unknown ids are left out; expired sessions are
	// included. If IDs is empty, the query is for sessions that are alive, in byte order of their
	// ids, and the next three fields narrow it.
	IDs []string

	// Observing, if not "", selects only the sessions that observe this key. The store may scan the records of all
	// sessions to find them.
	Observing string

	// After, if not "", selects only the sessions whose ids are greater than After.
	After string

	// Limit is the greatest number of sessions to return, at most 1,000. Default 1,000.
	Limit int

	// Liveness means that only the fields ID, LastHeartbeat, TTL and Expired of each session are set.
	Liveness bool
}

// A KeyQuery selects the keys that [Store.Keys] reads.
type KeyQuery struct {
	// Keys are up to 1,000 keys, without duplicates. Keys that were never used, or no longer have a record, are left
	// out. If Keys is empty, the query is for all keys, and the next three fields narrow it.
	Keys []string

	// Prefix and After select only the keys that begin with Prefix and are greater than After in byte order.
	Prefix, After string

	// Limit is the greatest number of states to return, at most 1,000.
	Limit int

	// Session, if not "", is the id of a session that checks which of Keys it holds. Only Key and Holders of each state
	// are then set. Holders contains only the holds of that session, each with Claim, Session, Token and Until.
	Session string
}

// A Namer is a [Store] that can tell where it keeps the record of a key. A Store need not implement it.
type Namer interface {
	// RecordName returns the location of the key's record, for people who want to find it in the database.
	RecordName(key string) string
}

// A Limiter is a [Store] that says how many calls of its methods a session may make at once, besides heartbeats. Without
// it, and if MaxCalls returns 0, these are 32. More are of use only if several calls share a command: others would wait
// within the store for a connection, which uses up their time limit. Heartbeats must not wait for other calls.
type Limiter interface {
	// MaxCalls returns the number for a session that is open. The session asks when it registers.
	MaxCalls() int

	// MaxReleases returns the number for a session that closes, whose calls are mostly Releases. A number below the one
	// before has no effect.
	MaxReleases() int
}

// A HeartbeatReply is the reply to a heartbeat.
type HeartbeatReply struct {
	Now     time.Time // the time that was recorded, by the store's clock
	Revoked []Revocation

	// No fail-over can undo the writes of Committed's term up to and including the one at Committed. Zero means that
	// the store can't tell.
	Committed OpTime
}

// A Revocation asks a session to give up a claim: to notify the claim's holder, and to release the claim when the
// holder is done or its grace is over.
type Revocation struct {
	Key, Claim string
}
