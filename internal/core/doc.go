// Package core decides what a session does. It has no goroutine, clock, lock or I/O: [Core.Step] takes one event
// and returns effects, which package engine carries out. So the same events always have the same effects, and
// package explore can try every order of events.
//
// A Core is one session: a series of registrations in the store, and the claims made under them. Only Step changes it.
// It answers every [Call] with one [Deliver], and reports the end of every hold once with [Freed].
//
// # The session
//
// To the store, a session is alive until its last heartbeat is a TTL old by the store's clock. From then on, any
// process that waits behind it may expire it. A process that has learned that the session's process has [Died] may
// expire the session one margin later. Expiry is final: the id is never used again. So once a process has learned that
// a session has expired, it need not check again. The next process that uses a key drops the claims of expired
// sessions.
//
//	none ──Acquire──► registering ──reply──► live ──deadline, or expired by the store──► none
//
// To its own process, a session is live until its deadline,
//
//	send of the last acknowledged heartbeat + TTL·0.999 − Margin − Grace
//
// regardless of events. After that it is lost: its holds end, its waiters request again under the next id, and nothing
// more is sent under the old id, except for leases. The session is not unregistered, because its holders' grace is
// running.
//
// Safety rests on the gap between the two deadlines. The store counts the TTL from when it executed the heartbeat. The
// process counts it from before it sent the heartbeat, and subtracts Margin and Grace. So Lost closes first, then the
// grace passes, and only then can another process expire the session and drop its claims.
//
// # The claim
//
// A claim is one stored request of the session for part or all of a key. Every primitive is a claim with a weight out
// of the key's limit: see package driver. [Core.move] makes most transitions; this table lists all of them ("here"
// means in this process):
//
//	state        event                           next         effect
//	joining      reply: granted                  held         Deliver; a lease: dating, Send an Extend
//	joining      reply: queued                   waiting      timer: poll, or a session ahead may lapse
//	joining      reply: queued, and a wake came  joining      Send
//	joining      reply: held, and it is a try    checking     asks whether the sessions in the way have expired
//	joining      reply: used as another kind     checking     reads the key, and then asks the same
//	joining      reply: tick over, or refused    leaving      Deliver an error
//	joining      reply: too late, or no answer   joining      again after a pause
//	waiting      notice: granted                 held         Deliver
//	waiting      wake; poll; one has expired     joining      Send
//	waiting      a session ahead may have lapsed waiting      Send an Expire
//	checking     one has expired                 joining      Send, naming it
//	checking     none has                        leaving      Deliver an error
//	joining,     granted, and a run here for an  leaving      its caller waits here; if that run's claim is held, that
//	  waiting      earlier tick is not done                   hold ends
//	dating       Extend answered                 held         Deliver
//	dating       no answer                       dating       again after a pause
//	any above    given up, closing               leaving      Send a release, when no request is under way
//	any above    revoked, or the lease is over   leaving      its caller requests another
//	  by force   revoked                         (as it is)   asks for the grant; then held, and windingDown at once
//	any above    session lost                    gone         its caller requests another under the next id
//	dating       session lost, and an Extend     leaving      the same; Send a release
//	               was sent
//	held         done, the next here fits        held         Deliver to the next (a hand-off)
//	held         done, may be kept               lingering    timer
//	held         done, the next here waits       leaving      Send a request for the next that also releases this
//	held         done                            leaving      Send a release
//	held         progress                        held         timer: its limit, if it has one
//	held,        a reading does not show it      (as it is)   a heartbeat, and when that is acknowledged a look
//	  lingering
//	held         the look does not show it, or   windingDown  End; timer: grace
//	               another has the key for sure
//	lingering    the same                        leaving      Send a release
//	held         revoked, resigned, closing, or  windingDown  End; timer: grace
//	               no progress within the limit
//	held         session lost, lease over, or    lost         End; timer: grace
//	               for a lease: closing
//	held         lease over, and an Extend of    windingDown  End; timer: grace
//	               it had no answer
//	lingering    wanted here                     held         Deliver
//	lingering    others wait, time over          leaving      Send a release
//	windingDown  done, grace over                leaving      Send a release
//	windingDown  session lost                    lost
//	lost         done, or for Auto grace over    gone
//	leaving      answered                        gone         Freed
//	leaving      answered, and released with     kept         Freed
//	               Keep
//	leaving      no answer                       leaving      again after a pause
//	leaving      refused                         leaving      Freed; again after a pause
//	leaving      closing, and refused, or no     gone         Freed; Close reports it as not released
//	               answer after a Hurry
//	leaving      not there                       leaving      again after an acknowledged heartbeat: then gone
//	leaving      ReleaseBy                       leaving      too late: Freed reports that this was not done
//	kept         time over                       gone
//	kept         revoked                         leaving      Send a release
//	leaving,     session lost                    gone
//	  kept
//	windingDown, Close's time is over            gone         Freed; Close reports it as not released
//	  leaving
//	windingDown  hurry                           leaving      Send a release that keeps it for the grace
//	(unknown id in a notice or reply)            leaving      Send a release
//
// Within a process, a hold's slot is freed only when its holder is done, as with a sync.Mutex, even if the hold was
// lost or its claim was released at the end of the grace. The slots of leases and of holds with Auto are freed without
// waiting for the holder.
//
// Any command that makes room for a claim also grants it: a release, a command that drops expired sessions, or the
// request itself. The session whose command made the grant notifies the waiter with a [driver.Notice], once the command
// cannot be rolled back. A notice may be lost, late, repeated or out of order. So every waiter also requests again from
// time to time, and when a session ahead of it has expired.
//
// Only sessions may change a key's record. A holder must find out if anything else does. So after every acknowledged
// heartbeat the Core reads some of the held keys, in rotation. It compares every state of a held key that it receives
// with the hold. While a claim is in doubt, its holder cannot hand it off.
//
// Every request to join carries a time, by the store's clock, from which on the store ignores it. Before that time, an
// unanswered request, or a copy of an answered one, can make a claim join again after the claim's release. So the Core
// remembers released claims as past claims, and discards them after that time, many per command.
//
// # How to read it
//
//	core.go      Core: New, Step and what it needs
//	event.go     the events, effects and commands
//	timers.go    when things are due; lanes, which bound the commands under way
//	session.go   the registration, its heartbeats, deadline and loss; revocations
//	queue.go     this process's queue for one key: turns, hand-offs, lingering; the end of a hold
//	claim.go     the claim, its states and requests, until it is held
//	release.go   releases, past claims and their discards
//	closing.go   Close: its bound, and what it could not do
//	others.go    waiting: what is known of other sessions, how they are expired, and deaths
//	look.go      readings of what is held, in case somebody deletes its record
//	listener.go  when the session listens; receiving notices
//	notices.go   sending notices
//	sweep.go     clean-up of the store
//	state.go     what a Core shows: to Status, and to package explore
//
// To follow a Lock on a free key, read acquire and admit (queue.go), newClaim and join (claim.go) and, for the reply,
// joinAnswered, granted and begin. To follow its Unlock, read done (queue.go), release and releaseAnswered (release.go).
package core
