package driver

import (
	"fmt"
	"time"
)

// An Edit describes a change of a key: see [Store].Edit. Either exactly one part is set, or both Release and Acquire
// are. In the latter case the claim of Acquire replaces the claim of Release. Both claims must then have the same
// session, key, Kind, Limit and Tick, and Claim must be the only field of Release that is set.
type Edit struct {
	Release *Release
	Acquire *Acquire
	Extend  *Extend
	Publish *Publish
	Resize  *Resize
	Forget  *Forget
}

// Key returns the key that e edits.
func (e Edit) Key() string {
	switch {
	case e.Acquire != nil:
		return e.Acquire.Claim.Key
	case e.Release != nil:
		return e.Release.Claim.Key
	case e.Extend != nil:
		return e.Extend.Claim.Key
	case e.Publish != nil:
		return e.Publish.Claim.Key
	case e.Resize != nil:
		return e.Resize.Key
	case e.Forget != nil:
		return e.Forget.Key
	}
	return ""
}

// Check returns an error that matches [ErrRefused] if no store can make the edit. Then the edit has no part, parts that
// can't be combined, or a value out of range. Every Store calls it first.
func (e Edit) Check() error {
	parts := 0
	for _, has := range []bool{e.Release != nil, e.Acquire != nil, e.Extend != nil, e.Publish != nil, e.Resize != nil, e.Forget != nil} {
		if has {
			parts++
		}
	}
	replaces := parts == 2 && e.Release != nil && e.Acquire != nil
	switch {
	case parts != 1 && !replaces:
		return fmt.Errorf("%w: an edit has %d parts; it must have one, or Release and Acquire", ErrRefused, parts)
	case replaces && (e.Release.Keep != 0 || e.Release.Seal != 0 || e.Release.Successor != ""):
		return fmt.Errorf("%w: a Release with an Acquire has Keep, Seal or a Successor; it must have none", ErrRefused)
	case replaces && e.Release.Claim.Key != e.Acquire.Claim.Key:
		return fmt.Errorf("%w: an edit has claims of the keys %q and %q; both must be of one key", ErrRefused, e.Release.Claim.Key, e.Acquire.Claim.Key)
	case e.Acquire != nil && (e.Acquire.Claim.Weight < 1 || e.Acquire.Claim.Weight > e.Acquire.Claim.Limit):
		// A claim heavier than its limit could never be granted, and would block the queue.
		return fmt.Errorf("%w: the claim's weight is %d; it must be from 1 to its limit, %d", ErrRefused, e.Acquire.Claim.Weight, e.Acquire.Claim.Limit)
	case e.Acquire != nil && len(e.Acquire.Claim.Value) > MaxClaimValue:
		return fmt.Errorf("%w: the claim's value has %d bytes; it may have at most %d", ErrRefused, len(e.Acquire.Claim.Value), MaxClaimValue)
	case e.Acquire != nil && e.Acquire.Claim.Tick < 0:
		return fmt.Errorf("%w: the claim's tick is %d; it must not be negative", ErrRefused, e.Acquire.Claim.Tick)
	case e.Release != nil && e.Release.Seal < 0:
		return fmt.Errorf("%w: the tick to seal up to is %d; it must not be negative", ErrRefused, e.Release.Seal)
	case e.Release != nil && e.Release.Seal > 0 && len(e.Release.Result) > MaxValue:
		return fmt.Errorf("%w: the result has %d bytes; it may have at most %d", ErrRefused, len(e.Release.Result), MaxValue)
	case e.Extend != nil && e.Extend.Seq < 1:
		return fmt.Errorf("%w: the number of the Extend is %d; it must be at least 1", ErrRefused, e.Extend.Seq)
	case e.Publish != nil && len(e.Publish.Value) > MaxValue:
		return fmt.Errorf("%w: the value has %d bytes; it may have at most %d", ErrRefused, len(e.Publish.Value), MaxValue)
	case e.Resize != nil && e.Resize.Limit < 1:
		return fmt.Errorf("%w: the limit is %d; it must be at least 1", ErrRefused, e.Resize.Limit)
	}
	return nil
}

// An Acquire requests Claim. In one atomic step the store
//
//   - drops every waiting claim whose session is in Expired, every holder without an end of its own
//     whose session is in Expired, and every holder whose end has come (now is not before it);
//   - puts the claim at the end of the queue (ahead of claims with later ticks, if it has a tick), or at the head if
//     Claim.First is set. It does not do so if the claim is already in the queue or a holder, if now is after NotAfter,
//     if the key is sealed up to the claim's Tick or a later one, or if the queue has [MaxQueue] claims (ErrRefused);
//   - settles the key;
//   - removes the claim from the queue again if Wait is false.
//
// So it is harmless to repeat an Acquire, and after NotAfter no Acquire adds a claim to the queue. An Acquire that
// changes nothing writes nothing, except perhaps an empty record for a new key. Until Extend sets its end, a claim with
// a positive Lease lives with its session, like every other claim, because the session may not know of the grant yet.
// The grant of a claim of KindElection increments the key's term, and every grant publishes the claim's Value, if there
// is one.
//
// If the network delivers a copy of a request after the claim was released or given up, the claim may join the queue
// again until NotAfter. So the caller later removes the claim with Discard, unless the State has Final set.
//
// If others hold the key or wait for it, or if it is sealed, its kind and limit must be those of the claim. If they
// differ, the claim does not join the queue, and the error is a [*MismatchError]. But if the key is sealed for the
// claim's tick, only the kind matters. If nobody holds the key or waits for it, and it is not sealed, the key takes the
// kind and limit of the claim. A limit that the key had before a Resize counts as the present limit, even if nobody
// holds the key or waits for it. If Claim.Weight exceeds the present limit, the error is a [*MismatchError] too.
//
// Acquire does not check whether Claim.Session is alive. A store may limit how many claims it grants in one command, to
// 1,000 or more; later commands that settle the key grant the rest.
//
// The notices are
//
//   - NoticeGrant for the sessions of other claims that this command granted;
//   - after every Acquire that leaves the claim first in the queue, NoticeYield for the sessions of the holders that
//     have Yield (a store may notify only 1,000 of them);
//   - NoticeChange for observers of the key.
type Acquire struct {
	Claim    Claim
	Wait     bool      // a claim that is not granted at once stays in the queue
	Expired  []string  // ids of sessions that have expired
	NotAfter time.Time // by the store's clock

	// Repeated means that the session has sent an Acquire of this claim before. It is only a hint, and does not change
	// what Acquire does: such a claim is usually in the queue already, and its key usually has other claims.
	Repeated bool
}

// A Release removes Claim, found by its ID alone, from the queue or the holders, and the store settles
// the key. It is not an error if the claim was not there: see [Edited].Found. Holders whose end has come
// may be dropped as well.
//
// The notices are
//
//   - NoticeGrant for the sessions of claims that this command granted, but with Seal a store may omit it;
//   - if Keep has set the end of the hold, NoticeWake for the session of the first claim in the queue;
//   - if Seal has sealed the key, NoticeWake for the sessions of the claims that it removed, and for the session of the
//     first claim that remains, if these claims were among the first 1,000 in the queue;
//   - NoticeChange for observers of the key.
//
// There is no NoticeYield: if others still wait, the grant's notice has Crowded set.
type Release struct {
	Claim Claim

	// Keep, if positive, sets the end of a held claim to now + Keep, by the store's clock, unless its end is already
	// earlier. The claim ends at that time, whatever happens to its session. A waiting claim is removed instead. The
	// first waiter is notified ([NoticeWake]), so that it can wait for that end.
	Keep time.Duration

	// Seal, if positive, is the tick that has succeeded. Result, of up to [MaxValue] bytes, is the result of that tick.
	// The key is sealed if the claim holds it, the end of the hold has not come, and the key is not yet sealed up to
	// that tick. Then all claims whose Tick is not greater are removed from the queue; the others stay. The seal lasts
	// until a Forget.
	Seal   int64
	Result []byte `json:"-"`

	// Successor, if not "", is the id of the waiting claim that the store must serve next. Claim is then removed only
	// if it holds the key, and the successor moves to the head of the queue before the key is settled. The other
	// waiters keep their order. If Claim holds the key but the successor is not in the queue, Claim keeps holding the
	// key, and the error is ErrNotWaiting. If Claim does not hold the key, even if it waits, Found is false and nothing
	// is removed. So once Claim is released, a repeated or late Release moves nobody to the head. If a Release got no
	// answer, and its repetition does not find Claim, the first Release has moved the successor to the head of the
	// queue, unless the hold was lost. Successor is ignored with Keep or Seal.
	Successor string

	// Early lets the store answer before the removal of the claim is committed, if nobody waits for the key or observes
	// it: see Edited.Applied. If a fail-over undoes the release, nobody else gets the key: the claim holds the key
	// again, and its session discards the claim. A store may ignore Early, and does so with Keep, Seal and Successor.
	Early bool
}

// An Extend sets the end of a held claim with a positive Lease to now + Claim.Lease, unless its end is already later.
// From the first Extend on, the claim ends at that time, whatever happens to its session. The error is ErrNotHeld if
// the claim does not hold the key with Claim.Token, or its end has come, even if nobody else has held the key since. If
// the token differs, the claim was released and has joined again. An Extend of a claim without a Lease returns
// ErrNotHeld, too. Seq is at least 1, and greater than that of every Extend of the claim that was sent earlier. If one
// with the same or a greater Seq has been executed, Extend changes nothing and returns the hold as it is. So a copy that
// the network delivers late can't make the end later without its session's knowledge. There are no notices.
type Extend struct {
	Claim Claim
	Seq   int64
}

// A Publish stores Value, up to [MaxValue] bytes, which everybody can read as long as the claim holds the key. Seq
// numbers the values that the claim publishes, starting at 1. If a value of the claim with a greater Seq is already
// stored, Publish changes nothing. The error is ErrNotHeld if the claim does not hold the key, or its end has come. The
// notices are for observers of the key (NoticeChange).
type Publish struct {
	Claim Claim
	Seq   int64
	Value []byte `json:"-"`
}

// A Resize sets the key's limit for claims of Kind, and the store settles the key. From then on, claims whose limit is
// the key's previous limit or From count as if they had the new limit. This lasts until a Forget or a Sweep removes the
// former limits. It also ends when the key is free and a claim takes it with another kind, or with a limit that the key
// never had. A store remembers at least the last 8 limits. Claims that already hold the key keep holding it.
//
// If the key is held, waited for or sealed as another kind, the error is a [*MismatchError]. If a claim in the queue
// has a greater weight than Limit, the error is ErrRefused. A Resize that changes nothing writes nothing. A Resize that
// arrives late overrides a newer one, so only one person at a time should resize a key.
//
// The notices are for the sessions of claims that this command granted (NoticeGrant), and for observers of the key
// (NoticeChange).
type Resize struct {
	Key         string
	Kind        Kind
	From, Limit int64
}

// A Forget removes what the store keeps about a key that nobody holds or waits for: its seal with the result, its
// number of terms, and its former limits. The record itself stays, with the last token, until [Store.Sweep] finds that
// it has been idle for long enough. So tokens keep growing.
//
// A Forget takes effect only if the last token in the key's [State] still equals the Token of the Forget. So a repeated
// or late Forget removes nothing newer. [Edited].Found reports whether the key was free and had that token. If it was
// not, the Forget removes nothing except holders whose end has come. The notices are for observers of the key
// (NoticeChange).
type Forget struct {
	Key   string
	Token int64
}

// An Edited is the reply to an [Edit].
type Edited struct {
	// State is the state of the key after an Acquire, as seen by its claim; without an Acquire it is not set. The
	// claim is held if and only if the State's Holders contain it.
	State State

	// Found reports whether the claim of a Release was there, or whether the key of a Forget was free and had the given
	// Token.
	Found bool

	// Holder is the hold after an Extend.
	Holder Holder

	// Applied is set after a Release with Early that a fail-over can still undo. If the reply to a later heartbeat has
	// a Committed of the same Term that is not before Applied, no fail-over can undo the release any more.
	Applied OpTime

	Notices []Notice // to be sent with [Store].Notify
}

// An OpTime is a position in the store's log of writes. Term grows with each fail-over, and Time grows within a term.
// The zero OpTime means none.
type OpTime struct {
	Term int64
	Time uint64
}
