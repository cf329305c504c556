package driver

import (
	"context"
	"time"
)

// A Store keeps sessions and claims for all processes that share it. It is the interface
// between package dsync, which decides, waits, retries and counts time, and a database, which
// makes each of the commands below atomic and durable.
//
// # What a store holds
//
// Sessions: one record per [Member], with the time of its last heartbeat by the store's own
// clock. A session is alive, lapsed or expired. It has lapsed when its last heartbeat is at
// least TTL ago by the store's clock; a heartbeat makes a lapsed session alive again. It has
// expired when [Store.Expire] found it lapsed or unknown, or its owner called
// [Store.Unregister]. Expiry is final: no later command, repeated or late, makes an expired id
// alive again.
//
// Keys: for each key the claims that hold it, the queue of claims that wait for it, a kind, a
// limit and the last token, and, for [KindElection], the number of grants and what the holder
// has published. The sum of the weights of the holders never exceeds the limit, except after
// [Store.Resize] to a lower limit until enough claims are released.
//
// Every command that changes a key does two things in one atomic step. It makes the edit that
// it is for. Then it settles the key: while the first claim in the queue fits, it grants that
// claim, which moves to the holders with a new token. Claims are granted strictly in the order
// in which they joined; a light claim does not overtake a heavy one. So whichever session's
// command makes room, that command grants the next claim.
//
// Tokens: every grant of a key has a token that is greater than every earlier token of that key
// by at least [TokenStep]. If the earlier claim has Yield and takes the whole limit (Weight =
// Limit), it is greater by at least [TokenRoom]. The values between two grants are reserved for hand-offs
// within one process. This holds also after [Store.Sweep] deleted the key's record, and after a
// fail-over.
//
// A sealed key has a result forever, and is never granted again.
//
// # Rules for every method
//
// Time is the store's. "Now" is one reading of the store's own clock per command, the same in
// everything that the command writes. No time of the caller's host may decide anything.
//
// A nil error means that what the method reports is committed so that no fail-over can undo it
// (on MongoDB: by a majority). If that is not known, the method returns an error.
//
// Some errors are answers, to be tested with errors.Is: [ErrSessionExpired],
// [ErrSessionExists], [ErrMismatch], [ErrNotHeld], [ErrNotWaiting], and [ErrRefused] for what
// repeating cannot help (missing rights, a broken configuration, a full queue). They mean that
// the command has not done what it was for, and never will. It may have dropped claims of
// expired sessions, and holders whose end has come.
//
// Every other error means that the command may or may not have been applied, now or a little
// later. The caller repeats the command. Every method may be repeated, and a repeated or late
// command must do no harm, as documented for each method.
//
// Methods that return notices return those that are due for what the command has done; the
// caller sends them with [Store.Notify]. They are for sessions on stores that can listen,
// whether or not they listen at the moment. The caller's own session is included if another of
// its claims is concerned. The claim that the command is about gets none, because the reply
// says what happened to it. If the reply of a command is lost and the command is repeated, the
// repetition returns no notices for what the first one did. A NoticeChange may be returned
// though nothing has changed. With an error no notices are returned, except by an Acquire of a claim
// with Replaces.
//
// Durations are rounded up to the store's resolution, so that a positive duration never becomes
// zero, which means "without end". No duration is longer than [MaxDuration].
//
// A method makes one attempt, without a loop, a timer or a wait of its own, and returns soon
// after ctx ends. Values of ctx are never used. All methods may be called concurrently.
type Store interface {
	// Register makes the session m.ID alive and starts its TTL. It returns the time that it
	// recorded as the first heartbeat. If the id is known already, as that of a session that is
	// alive, lapsed or expired, the error is ErrSessionExists and nothing changes. So only one
	// of several Registers of one id succeeds. A caller that got no answer does not repeat
	// Register with the same id, but uses a new one. The fields LastHeartbeat and Expired of m
	// are ignored.
	Register(ctx context.Context, m Member) (now time.Time, err error)

	// Heartbeat records now as the session's last heartbeat. It removes the revocations in
	// given from the session, and returns now and the remaining revocations. A session that has
	// lapsed but not expired is alive again. The error is ErrSessionExpired if the session has
	// expired or is unknown.
	Heartbeat(ctx context.Context, session string, given []Revocation) (HeartbeatReply, error)

	// Expire expires the session if it has lapsed, that is if now is not before its last
	// heartbeat + TTL, or if it is unknown. It returns 0 if the session has expired, by this
	// call or before it. Otherwise it changes nothing and returns the time left until the
	// session lapses.
	Expire(ctx context.Context, session string) (left time.Duration, err error)

	// Unregister expires the session at once, also if it is unknown. It is not an error if the
	// session has expired before. Only its owner calls it.
	Unregister(ctx context.Context, session string) error

	// Revoke asks the session to give up a claim: it adds the revocation to the session, until
	// a Heartbeat removes it. A revocation that is there already is not added again. Revoke
	// does not check whether the claim exists. The error is ErrSessionExpired if the session
	// has expired or is unknown. The notice, if there is one, is for the session
	// (NoticeRevoke); if the revocation was there already, the notice may be omitted.
	Revoke(ctx context.Context, session string, r Revocation) ([]Notice, error)

	// Observe records the keys that the session observes, replacing those that it observed
	// before, so that Observers finds the session. It is not a heartbeat. seq counts the
	// session's lists: if a list with a greater seq is recorded, Observe changes nothing. The
	// error is ErrSessionExpired if the session has expired or is unknown.
	//
	// The list has at most [MaxObserved] bytes: of a session that observes more, some keys are
	// left out. It is part of the session's record until the record is deleted. Where a heartbeat
	// writes or logs the whole record, as on MongoDB 4.4, every heartbeat costs more by the
	// length of the list.
	Observe(ctx context.Context, session string, seq int64, keys []string) error

	// Acquire requests c. In one atomic step it
	//
	//   - drops every claim that waits for a session in expired, every holder without an
	//     end of its own whose session is in expired, and every holder whose end has come
	//     (now is not before it);
	//   - puts c at the end of the queue, or at its head if c.First, unless c is in the
	//     queue or holds already, now is after notAfter, 10,000 claims are in the queue
	//     (ErrRefused), or the key is sealed;
	//   - settles the key;
	//   - removes c from the queue again if !wait.
	//
	// If c.Replaces is not nil, Acquire first releases that claim, as Release does without
	// options, even if now is after notAfter. It does so in the same step, or in one before it;
	// then others may come between. If it returns an error, the claim may have been released or
	// not. If it is known to have been released, in a step of its own, the notices of that
	// release are returned with the error.
	//
	// So repeating it is harmless, it adds nothing to the queue once the store's clock has
	// passed notAfter, and an Acquire that changes nothing writes nothing. The grant of a claim
	// whose Lease is positive sets its end to now + Lease. The grant of a claim of KindElection
	// increments the key's term.
	//
	// If others hold the key or wait for it with another kind or limit than c's, c does not
	// join and the error is a [*MismatchError]. If nobody does, the key takes the kind and
	// limit of c. A limit that the key had before a Resize counts as the present limit, also if
	// nobody holds the key or waits for it. If c.Weight exceeds the present limit, or the key
	// is sealed with another kind, the error is a [*MismatchError] too.
	//
	// The state is as it is after the command. c is held if and only if the state's Holders
	// contain c.ID. Acquire does not check whether c.Session is alive.
	//
	// A command may limit how many claims it grants, to 1,000 or more; the next command on the
	// key grants more.
	//
	// The notices are for the sessions of other claims that this command granted (NoticeGrant);
	// for the sessions of all holders that have Yield, after every Acquire that leaves c first
	// in the queue (NoticeYield); and for those who observe the key (NoticeChange). With
	// c.Replaces they include the notices of its Release.
	Acquire(ctx context.Context, c Claim, wait bool, expired []string, notAfter time.Time) (State, []Notice, error)

	// Release removes c, found by c.ID alone, from the queue or the holders, and settles the
	// key. found reports whether c was there; if it was not, that is not an error. Holders
	// whose end has come may be dropped as well.
	//
	// With a positive o.Keep, a claim that holds stays, whatever happens to its session, and
	// ends at now + o.Keep, or at its own end if that is earlier. A claim that waits is
	// removed. With o.Seal, if c holds and its end has not come, the key is sealed with
	// o.Result, and all claims are removed from the queue.
	//
	// With o.Successor, c is removed only if it holds, and the claim with that id then moves to
	// the head of the queue before the key is settled. The other waiters keep their order. If c
	// holds but that claim is not in the queue, c still holds after the command, and the error
	// is ErrNotWaiting. If c does not hold, also if it waits, found is false and nothing is
	// removed. So a repeated or late Release prefers nobody once c is released, and if a
	// Release without an answer is repeated and c is not found, the first one has granted what
	// it could to that claim.
	//
	// The notices are for the sessions of claims that this command granted (NoticeGrant); if an
	// o.Keep has set the end of the hold, for the session of the first claim in the queue
	// (NoticeWake); if an o.Seal has sealed the key, for the sessions of up to 1,000 claims
	// that were in the queue (NoticeWake); and for those who observe the key (NoticeChange).
	// There is no NoticeYield: if others still wait, the grant's notice has Crowded set.
	Release(ctx context.Context, c Claim, o ReleaseOptions) (found bool, notices []Notice, err error)

	// Extend moves the end of a held claim with a positive Lease to now + c.Lease, unless its
	// end is later already, and returns the hold as it is then. Its Token is that of the
	// present grant: a claim whose end had come may have been granted again by a repeated
	// Acquire. The error is ErrNotHeld if c does not hold the key, has no end, or its end has
	// come, even if nobody else has held the key since.
	Extend(ctx context.Context, c Claim) (Holder, error)

	// Publish stores value, up to 64 KiB, for all to read as long as c holds the key. seq
	// counts the values that c publishes, from 1: if a value of c with a greater seq is stored,
	// Publish changes nothing. The error is ErrNotHeld if c does not hold the key, or its end
	// has come. The notices are for those who observe the key (NoticeChange).
	Publish(ctx context.Context, c Claim, seq int64, value []byte) ([]Notice, error)

	// Resize sets the key's limit for claims of kind, and settles the key. From then on, claims
	// with the limit that the key had before, or with from, count as if they had the new limit.
	// This lasts until the key's record is deleted by Sweep, or a claim takes over the free key
	// with a limit that it never had. At least the last 8 former limits are known. Holders keep
	// what they have.
	//
	// If others hold the key or wait for it as another kind, the error is a [*MismatchError].
	// If a claim in the queue has a greater weight than limit, the error is ErrRefused. A
	// Resize that changes nothing writes nothing. A Resize that arrives late, after another,
	// sets the limit all the same: it is meant for people, one at a time.
	//
	// The notices are for the sessions of claims that this command granted (NoticeGrant), and
	// for those who observe the key (NoticeChange).
	Resize(ctx context.Context, key string, kind Kind, from, limit int64) ([]Notice, error)

	// Listen calls f, one call at a time, for the notices that are sent to the session and to
	// those who observe one of the keys, until ctx ends or the listener breaks. It then returns
	// the reason. keys may be empty or have more than a thousand elements. If session is "",
	// Listen is for the keys only. Listen may miss notices and repeat them.
	//
	// The first call of f has a NoticeReady: what is sent from then on will be received, and
	// from then on commands that change one of the keys return a NoticeChange. NoticeReady is
	// repeated whenever notices may have been missed.
	//
	// A store that cannot notify returns an error that matches errors.ErrUnsupported, at once;
	// its callers poll.
	Listen(ctx context.Context, session string, keys []string, f func(Notice)) error

	// Notify sends notices, which a command on this store returned. It is best effort: it is
	// not an error if nobody listens, and a lost notice need not be an error. A store that
	// cannot notify does nothing.
	Notify(ctx context.Context, notices []Notice) error

	// Load returns the state of a key. If the key has no record, only Key and Now are set.
	Load(ctx context.Context, key string) (State, error)

	// Keys returns the states of up to n keys, at most 1,000, that begin with prefix and come
	// after the key after, in byte order. Each state is as from Load, but has at most 8 claims
	// in WaitersAhead.
	Keys(ctx context.Context, prefix, after string, n int) ([]State, error)

	// Members returns the sessions with the given ids, up to 1,000, and the time of the
	// reading. Unknown ids are left out; expired sessions are included. Without ids it returns
	// the first 1,000 of all sessions that are alive, in byte order of their ids; Observers reads
	// the rest. The reading may be stale: it serves to set timers and for display, never to decide.
	Members(ctx context.Context, ids ...string) (m []Member, now time.Time, err error)

	// Liveness is Members, but sets only the fields ID, LastHeartbeat, TTL and Expired. Without
	// ids it returns no sessions.
	Liveness(ctx context.Context, ids ...string) (m []Member, now time.Time, err error)

	// Observers returns up to n sessions, at most 1,000, that observe key, are alive, and whose
	// ids come after the id after, in byte order. With key "" it returns those of all sessions,
	// whatever they observe. The reading may be stale, as with Members. It may scan the records of
	// all sessions.
	Observers(ctx context.Context, key, after string, n int) ([]Member, error)

	// Queue returns all claims in the queue for key, in order. Load returns only the first
	// 1,000.
	Queue(ctx context.Context, key string) ([]Waiter, error)

	// Sweep scans one slice of the store, of at most 1,000 records, and deletes what has been
	// idle for longer than retention: records of keys that nobody holds or waits for, and
	// records of expired or lapsed sessions. It keeps the record of a key that counts terms or
	// is sealed, or if a token of the key could be granted twice without it.
	//
	// The store has one [SweepState] for all callers. If its Turn is that of last, the slice
	// begins after its cursor, and Sweep returns the new state, with session as By. If not,
	// somebody else has swept since last was read; then Sweep changes nothing and returns the
	// present state. If several calls have the same last, one of them advances the state, and
	// the others return the state that it wrote; they may have deleted idle records, too. In a
	// store that was never swept, all fields but Now are zero.
	Sweep(ctx context.Context, session string, last SweepState, retention time.Duration) (SweepState, error)
}

// A SweepState is how far the sweeping of a store has progressed: see [Store.Sweep].
type SweepState struct {
	// Turn counts the slices that were swept. By is the session that swept the last slice, and
	// At the time of that, by the store's clock.
	Turn int64
	By   string
	At   time.Time

	// Now is the time of the reading, by the store's clock.
	Now time.Time

	// After is the cursor: the next slice begins after it, or at the beginning if it is "".
	After string

	// Seen is the number of records in the last slice, and Deleted how many of them were
	// deleted.
	Seen, Deleted int64

	// Round is the number of records seen since the last beginning. LastRound is the number in
	// the whole round before that, or 0 if there was none.
	Round, LastRound int64
}

// ReleaseOptions say what becomes of a claim that is released.
type ReleaseOptions struct {
	// Keep, if positive, keeps a held claim for that long from now, by the store's clock,
	// independent of its session. The first waiter is notified ([NoticeWake]), so that it can
	// wait for that end.
	Keep time.Duration

	// Seal seals the key forever with Result, of up to 64 KiB, as a Once does.
	Seal   bool
	Result []byte

	// Successor, if not "", is the id of the waiting claim that is served first when c is
	// released. It is ignored with Keep or Seal.
	Successor string
}

// A HeartbeatReply is the reply to a heartbeat.
type HeartbeatReply struct {
	Now     time.Time // the time that was recorded, by the store's clock
	Revoked []Revocation
}

// A Revocation asks a session to give up a claim: to notify the claim's holder, and to release
// the claim when the holder is done or its grace is over.
type Revocation struct {
	Key, Claim string
}
