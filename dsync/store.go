package dsync

import (
	"context"
	"time"
)

// A Store keeps sessions and claims for all processes that share it. It is the
// seam between this package, which decides, waits, retries and counts time, and
// a database, which makes each of the commands below atomic and durable.
//
// # What a store holds
//
// Sessions: one record per [Member], with the store's own time of its last
// heartbeat. A session is alive, lapsed (its last heartbeat is at least TTL ago
// by the store's clock, but nobody said so yet) or dead. Dead is for ever: no
// later command, repeated or late, makes a dead id alive again. An id is dead
// once [Store.Bury] found it lapsed or unknown, or its owner called
// [Store.Unregister].
//
// Keys: per key the claims that hold it, the line of those that wait, a kind, a
// limit, the last token, and, of [KindElection], the number of grants and what
// the holder has published. The sum of the weights of the holders never exceeds
// the limit (but after [Store.Resize] to a lower one, until enough are released). Every command that changes a key is "edit, then settle", in one
// atomic step: edit what the command asks for, then, while the first claim in
// line fits, grant it: move it to the holders with a fresh token. Claims are
// granted strictly in the order in which they joined; a light one does not
// overtake a heavy one. So it does not matter whose command it is that lets the
// next one in.
//
// Tokens: every grant of a key carries a token that is greater than every
// earlier token of that key by at least 1024, and by at least 65,536 than that of
// an earlier claim that has all of the key (Weight = Limit) and Yield. The values
// between two grants are left for hand-overs inside one process. This stays true
// after clean-up of the key's record by [Store.Sweep] and after a fail-over.
//
// A sealed key has a result for ever, and is granted to nobody any more.
//
// # Rules for every method
//
// Time is the store's: "now" is one reading of the store's own clock per
// command, the same in everything the command writes. No time of the caller's
// host may decide anything.
//
// A nil error means that what the method reports is committed so that no
// fail-over can undo it (on MongoDB: majority). When that is not known the
// method returns an error: outcome unknown.
//
// Errors that are answers, tested with errors.Is: [ErrSessionDead],
// [ErrSessionExists], [ErrMismatch], [ErrNotHeld], and [ErrRefused] for what repeating can't mend
// (no rights, a broken configuration, a full line). The command has then not done
// what it was asked for, and never will; claims of the dead and holders whose end
// has come may have been dropped.
// Every other error means that the command may or may not have been applied,
// now or a little later. The caller repeats it; every method may be repeated,
// and a repeated or late command must do no harm, as each method says.
//
// Durations are rounded up to the store's resolution, so that a positive one never
// becomes zero, which means "without end".
//
// A method makes one attempt, without a loop, a timer or a wait of its own, and
// returns soon after ctx ends. Values of ctx are never used. All methods may be
// called concurrently.
type Store interface {
	// Register makes the session m.ID alive and starts its TTL. It returns the
	// time it recorded as the first heartbeat. An id that is known already, of a
	// session that lives, has lapsed or is dead, is refused with ErrSessionExists,
	// and nothing changes: of several that register one id one succeeds. So a
	// Register whose answer was lost is not repeated: the next one takes a new id.
	// The fields At and Dead of m are ignored.
	Register(ctx context.Context, m Member) (now time.Time, err error)

	// Heartbeat records now as the session's last heartbeat, and returns it with
	// all revocations that stand for the session, after taking those in given off
	// that list. A session that has lapsed but was not buried is alive again.
	// ErrSessionDead if it is dead or unknown.
	Heartbeat(ctx context.Context, session string, given []Revocation) (Pulse, error)

	// Bury makes the session dead if it has lapsed, that is if now is not
	// before its last heartbeat + TTL, or if it is unknown. It returns 0 if the
	// session is dead (by this call or before it), else the time that is left
	// until it lapses, and then changes nothing.
	Bury(ctx context.Context, session string) (left time.Duration, err error)

	// Unregister makes the session dead at once. Only its owner calls it.
	// A dead or unknown session is not an error; an unknown one becomes dead.
	Unregister(ctx context.Context, session string) error

	// Revoke asks the session to give a claim up: the revocation stands for it
	// until a Heartbeat takes it off. One that stands already is not added again;
	// whether the claim exists is not looked at. ErrSessionDead if the session is
	// dead or unknown.
	Revoke(ctx context.Context, session string, r Revocation) error

	// Observe records which keys the session observes, in place of those that it
	// observed before, so that Observers finds it. It is no heartbeat. seq counts the
	// session's lists: one that comes later than one with a greater seq changes
	// nothing. ErrSessionDead if the session is dead or unknown.
	//
	// The list is a part of the session's record until that is deleted. Where a
	// heartbeat writes or logs the record whole, as MongoDB 4.4 does, the list costs
	// its length again with each.
	Observe(ctx context.Context, session string, seq int64, keys []string) error

	// Acquire asks for c. In one atomic step it
	//
	//   - drops every claim that waits for a session in dead, every holder with
	//     no end of its own whose session is in dead, and every holder whose end
	//     has come (now is not before it);
	//   - puts c at the end of the line (at its head if c.First), unless it is there
	//     or holds already, or now is after notAfter, or 10,000 claims are in line
	//     (ErrRefused), or the key is sealed;
	//   - settles;
	//   - if !wait, takes c out of the line again.
	//
	// So repeating it is harmless, it joins nothing once the store's clock has
	// passed notAfter, and an Acquire that changes nothing writes nothing.
	// Granting a claim whose Lease is positive sets its end to now + Lease; granting
	// one of KindElection counts the key's term up by one.
	//
	// If others hold the key or wait for it under another kind or limit than
	// c's, c joins nothing and the error is a [*MismatchError]; on a key that
	// nobody holds or waits for, c's kind and limit are taken over. A limit of c's
	// that the key had before a Resize counts as the present one, on a free key
	// too; c.Weight must not exceed that (else a [*MismatchError] as well). A
	// sealed key of another kind is a mismatch too.
	//
	// The state is as it is after the command; c is held if and only if the
	// state's Holders have c.ID. Acquire does not look whether c.Session is alive.
	//
	// One command may bound how many claims it grants, at 1,000 or more; the next
	// command on the key grants on.
	Acquire(ctx context.Context, c Claim, wait bool, dead []string, notAfter time.Time) (State, error)

	// Release takes c out of the line or the holders, found by c.ID alone, and
	// settles. With a positive o.Keep a claim that holds stays instead, whatever
	// becomes of its session, and ends at now + o.Keep, or at the end it has
	// already if that is earlier; one that waits is taken out. With o.Seal, if c
	// holds and its end has not come, the key is sealed with o.Result, and
	// everyone is taken out of the line. Holders whose end
	// has come may be dropped as well. found reports whether c was there; that it
	// was not is no error.
	Release(ctx context.Context, c Claim, o Outcome) (found bool, err error)

	// Extend moves the end of a held claim with a positive Lease to
	// now + c.Lease, or leaves it if it is later already, and returns the hold as it is
	// then. Its Until is the end, and its Token that of its present grant: a claim
	// whose end has come may have been granted again by a repeated Acquire.
	// ErrNotHeld if c does not hold, has no end, or its end has come, even if
	// nobody else holds the key since.
	Extend(ctx context.Context, c Claim) (Holder, error)

	// Publish stores value, up to 64 KiB, for all to read for as long as c holds.
	// seq counts what c publishes, from 1: a value that comes later than one of c's
	// with a greater seq changes nothing. ErrNotHeld if c does not hold, or its end
	// has come.
	Publish(ctx context.Context, c Claim, seq int64, value []byte) error

	// Resize makes limit the key's limit for claims of kind, and settles. Claims
	// that come with the limit it had until then, or with from, count as if they came
	// with the new one, until the key's record is swept, or a claim takes over the
	// key with a limit that it never had. At least the last 8 former limits are
	// known. Holders keep what they have.
	//
	// If the key is held or waited for as another kind the error is a
	// [*MismatchError]; it is ErrRefused if a claim in line has a greater weight.
	// Where that changes nothing nothing is written. A Resize that comes late, after
	// another, sets the limit all the same: it is for people, one at a time.
	Resize(ctx context.Context, key string, kind Kind, from, limit int64) error

	// Watch calls f, one call at a time, for what concerns the session's claims
	// (see [EventType]) and for changes of the keys, of which there may be none or more than a thousand,
	// until ctx ends or the watch breaks, and returns why. It may miss events
	// and repeat them, but reports nothing that is not committed as above. The
	// first event is EventReady: what is committed from then on will be seen.
	// A store that can't push returns an error that is errors.ErrUnsupported,
	// at once; its callers poll.
	Watch(ctx context.Context, session string, keys []string, f func(Event)) error

	// Listen calls f, one call at a time, after each Notify of the session, until ctx
	// ends or the listener breaks, and returns why. It calls f once when it has begun,
	// and may call it for nothing, merge calls, and miss some. A store that can't
	// notify returns an error that is errors.ErrUnsupported, at once.
	Listen(ctx context.Context, session string, f func()) error

	// Notify has f called by whoever listens for the session. It is best effort: that
	// nobody listens is no error, nor need a call that is lost be one. What the session
	// is to find must be committed before.
	Notify(ctx context.Context, session string) error

	// Load reads the state of a key. A key without a record is the zero State
	// with Key and Now.
	Load(ctx context.Context, key string) (State, error)

	// Keys reads the states of up to n keys, at most 1,000, that begin with prefix
	// and come after the key after, in the order of their bytes, each as Load has
	// it, but with at most 8 claims in Ahead.
	Keys(ctx context.Context, prefix, after string, n int) ([]State, error)

	// Members reads the sessions with these ids, up to 1,000, and the time of the
	// reading. Unknown ids are left out; the dead are among them. Without ids it reads all
	// that are not known to be dead and have not lapsed, at most 1,000. The reading may be stale:
	// it serves to set timers and to show, never to decide.
	Members(ctx context.Context, ids ...string) (m []Member, now time.Time, err error)

	// Lives reads of the sessions with these ids, up to 1,000, what their lives
	// hang on: it is Members, of which only ID, At, TTL and Dead are set. Without
	// ids it reads none.
	Lives(ctx context.Context, ids ...string) (m []Member, now time.Time, err error)

	// Observers reads up to n sessions, at most 1,000, which observe key, are not
	// known to be dead, have not lapsed, and whose ids come after the id after, in the
	// order of their bytes. The reading may be stale, as that of Members. It may pass
	// over the records of all sessions to find them.
	Observers(ctx context.Context, key, after string, n int) ([]Member, error)

	// Line reads all claims in line for key, in their order, of which Load has the
	// first 1,000.
	Line(ctx context.Context, key string) ([]Waiter, error)

	// Sweep deletes from one bounded slice of the store, of at most 1,000 records,
	// what has been idle for longer than retention: records of keys that nobody holds
	// or waits for, unless a token of theirs could then be given twice, or they count
	// terms or are sealed, and records of dead or lapsed sessions.
	//
	// The store has one [SweepState] for everybody. If its Turn is that of last, the
	// slice begins after its cursor, and Sweep returns the state as it is after that
	// slice, with session as By. Else somebody swept since last was read: Sweep then
	// changes nothing and returns the state that there is. Of several calls with the
	// same last one advances the state; the others may have deleted what is idle, too,
	// and return what that one made of it. The zero state is that of a store that was
	// never swept, but for Now.
	Sweep(ctx context.Context, session string, last SweepState, retention time.Duration) (SweepState, error)
}

// A SweepState is how far the sweeping of a store has come: see [Store.Sweep].
type SweepState struct {
	// Turn counts the slices that were swept. By is the session that swept the last
	// of them, and At the store's time when that was done.
	Turn int64
	By   string
	At   time.Time

	// Now is the store's time of the reading.
	Now time.Time

	// After is the cursor: the next slice begins after it, at the beginning if it is "".
	After string

	// Seen is how many records the last slice had, Deleted how many of them were
	// deleted.
	Seen, Deleted int64

	// Round is how many records were seen since the last beginning, and LastRound how
	// many in the whole round before, 0 if there was none.
	Round, LastRound int64
}

// An Outcome says what becomes of a claim when it is released.
type Outcome struct {
	// Keep, if positive, keeps a held claim for that long from now on by the
	// store's clock, without its session. The first in line is told
	// ([EventWake]), so that it can wait for that end.
	Keep time.Duration

	// Seal seals the key for ever with Result, up to 64 KiB: see [Once].
	Seal   bool
	Result []byte
}

// A Pulse is what a session's heartbeat is answered with.
type Pulse struct {
	Now     time.Time // the store's clock, as recorded
	Revoked []Revocation
}

// A Revocation asks the session of a claim to give the claim up: to tell its
// holder, and to release it when that one is done, or the grace is over.
type Revocation struct {
	Key, Claim string
}
