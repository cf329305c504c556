// Package engine is the mechanism behind packages dsync and leader: everything that waits,
// retries, times, queues and decides. Those packages document what they promise, and package
// driver documents what a store promises. This comment explains how the engine builds the
// former on the latter.
//
// # The states
//
// To the store, a session is in one of these states:
//
//	unknown ──Register──► alive ◄──Heartbeat──► overdue ──Expire──► expired
//	                        └────────────Unregister─────────────────►
//
// Its own process sends Register, Heartbeat and Unregister. The session is overdue (it has
// lapsed) when, by the store's clock, its last heartbeat is a TTL old. Then, and not before, any
// process that waits for it may expire it. Expired is final: the id is never used again. So a
// process that knows that a session has expired can act on it at any later time, and whichever
// process uses the key next drops the session's claims.
//
// To its own process, a session is live until its deadline,
//
//	send of the last acknowledged heartbeat + TTL·0.999 − Margin − Grace
//
// on the local monotonic clock, time in suspend included. After that it is lost. A timer
// enforces the deadline even while a heartbeat hangs, and every method that reports on a lock
// compares the clock. When the session is lost, every hold that lives with it is lost. Nothing is
// sent under its id again, except to extend or release a fixed lease. It is not unregistered,
// because its holders' grace is running. Its waiters request their keys again under a new id.
//
// The safety argument is the distance between the two deadlines. The store counts the TTL from
// when it executed the heartbeat. The process counts it from before it sent the heartbeat, and
// subtracts Margin and Grace. So Lost closes, then the grace passes, and only then can another
// process expire the session and drop its claims.
//
// A claim is one request of the session for part or all of a key. A hold is one caller's use of
// a granted claim:
//
//	claim:  pending ──► granted ──► releasing ──► gone
//	hold:                live ──► windingDown ──► done
//
// A hold winds down when its session is lost or closes, when its holder resigns, or when it is
// revoked: somebody called Break or ForceLock, and the session learned of it from a notice or
// a heartbeat reply. A lost claim is gone at once, while its last hold winds down.
//
// Every primitive is a claim with a weight out of the key's limit. A Mutex has 1 of 1, a writer
// of an RWMutex the whole limit and a reader 1, a Semaphore n of its size. A Once has 1 of 1 and
// then seals the key, which is never granted again.
//
// The store makes a grant in whatever command makes room: a release, a command that drops
// expired sessions, or the request itself. The waiter learns of it by a [driver.Notice]. The
// session whose command made the grant sends the notice once the grant is committed and cannot
// be rolled back. A notice may be lost, late, repeated or out of order. So every waiter also
// requests again from time to time, and when a session ahead of it may have expired.
//
// Every request to join carries a time of the store's clock after which it does not count. Until
// then a request that was never answered, or a copy of one that was, can make its claim join after
// it was released. So after that time the session discards the claims that have left, many with one
// command. It releases such a claim earlier if a notice or a reply names it.
//
// Within one process, callers of one key first queue here, however many mutexes name the key.
// One at a time has the turn to request the key from the store. What the process holds can be
// used again without the store, as long as the session lives and the bounds are kept:
//
//	held by a goroutine ──Unlock──► held by the next, with the next token   for HandOffTime
//	                         └────► lingers, kept for the next caller       for Linger
//	held by readers     ──RLock───► held by one more, with the same token
//
// Their tokens come from the gap that the store leaves between two grants. A claim that may be
// kept beyond a turn says so in the store (Yield). Then the session that becomes first in the
// queue behind it notifies this one with each of its requests, and the claim is released at the
// next Unlock, or at once if nobody uses it. A session that would not receive the notice keeps
// the claim for a shorter time.
//
// # How to read it
//
// A Lock on a free key: Session.Acquire and enter (queue.go) take the turn in this process and
// make the claim (claim.go). claim.attempt sends the request (acquire.go) on a goroutine of the
// session (command.go), which passes the reply to claim.answered. claim.outcome begins the hold
// (claim.begin). Between attempts claim.waitInQueue waits for a notice (notices.go), for the
// expiry of a session ahead (expiry.go) or for the next poll. Hold.Unlock hands the claim off
// (queue.go) or releases it (release.go).
//
//	session.go    Session: New, Close, what everything else shares
//	lease.go      a registration and its heartbeats, deadline and loss
//	queue.go      this process's queue for one key: turns, hand-offs, lingering
//	acquire.go    requests, until the claim is granted or given up
//	claim.go      the claim and its states
//	hold.go       the hold and its states
//	release.go    Unlock, releases, and claims that are remembered after their end
//	discard.go    claims that a late copy of a request may have put back
//	successor.go  a release to a named claim
//	notices.go    the listener; receiving and sending notices
//	expiry.go     what is known of other sessions, and how they are expired
//	break.go      Break, revocations, Resize
//	observe.go    observers of a key
//	status.go     what a session reports about itself
//	uses.go       what this process holds and waits for
//	sweep.go      clean-up of the store
//	command.go    one command to the store: its lane, its time, its retries
package engine
