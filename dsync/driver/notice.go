package driver

// A Notice tells a session, or the observers of a key, what a command has changed. Methods of [Store] that change
// something return the notices that are due, [Store.Notify] sends them, and [Store.Listen] receives them.
//
// A notice may be lost, late, repeated or out of order. But it is never untrue, because it is sent only after the
// change is committed.
type Notice struct {
	Type NoticeType

	Session string // the recipient; "" for NoticeReady, and for NoticeChange, which is for all observers of the key
	Key     string // set for all but NoticeReady
	Claim   string // set for all but NoticeReady and NoticeChange

	// For NoticeGrant only:
	Token   int64
	Term    int64 // for KindElection, else 0
	Crowded bool  // others wait behind the claim

	// Address says where the recipients listen. Only the store interprets it: senders must not change it.
	Address int
}

// A NoticeType is the type of a [Notice].
type NoticeType int

const (
	// NoticeReady is never sent. Listen calls f with it to report that it receives everything sent from now on. Earlier
	// notices may have been missed, so the session must then find out which of its waiting claims have been granted.
	NoticeReady NoticeType = iota + 1

	// NoticeGrant: the claim was granted, with the token.
	NoticeGrant

	// NoticeWake: the session should request the claim again, because what it waits for has changed. Either the
	// holder has set an end to its hold (then only the first waiter is notified), or the key was sealed up to a tick:
	// see [Release].
	NoticeWake

	// NoticeYield: the claim holds the key with Yield set, and others wait.
	NoticeYield

	// NoticeRevoke: the session was asked to give up the claim. See [Store.Revoke].
	NoticeRevoke

	// NoticeChange: the key may have changed: its holders, its queue, its published value, its limit or its seal. An
	// [Extend] does not count as a change.
	NoticeChange
)
