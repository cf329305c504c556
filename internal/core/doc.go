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
// regardless of events. After that it is lost: its holds end, and its waiters request again under the next id. Nothing
// more is sent under the old id, except for leases. The session is not unregistered, because its holders' grace is
// running.
//
// Safety rests on the gap between the two deadlines. The store counts the TTL from when it executed the heartbeat. The
// process counts it from before it sent the heartbeat, and subtracts Margin and Grace. So a hold's Lost channel closes
// first, then the grace passes, and only then can another process expire the session and drop its claims.
//
// # The claim
//
// A claim is one stored request of the session for part or all of a key. Every primitive is a claim with a weight out
// of the key's limit: see package driver. Its states are
//
//	gone         this process does not have the claim: not yet, or no longer
//	joining      its request is under way, or due after a pause
//	waiting      the store has queued it
//	checking     it was refused; the Core finds out whether the sessions in the way have expired
//	dating       a lease that was granted, until an Extend has set its end in the store
//	held         a caller holds it
//	lingering    nobody holds it; it is kept for the next caller of this process
//	windingDown  the hold has ended, and its holder's grace is running
//	lost         the store may have granted the key to another
//	leaving      its release is under way, or due
//	kept         released, but the store keeps it for a time that the holder chose
//	past         it has left the store, and is gone once nothing about it can arrive late
//
// Only the rows of this table change a claim's state. Of the rows for the state and the trigger, the first whose
// condition holds decides. A trigger that has no row in a state comes too late and has no effect. "Ungiven" stands for
// joining, waiting, checking and dating. The last two columns name methods of Core; table.go says what the triggers
// mean. A Break, which has no claim in the store, uses the rows of a claim that waits: see break.go.
//
//	state                       trigger                                                if                next         effect
//	gone                        requested                                              breaks            joining
//	gone                        requested                                                                joining      join
//	gone                        replaces                                                                 joining      joinInPlace
//	gone                        appeared                                                                 leaving      releaseOrphan
//	joining                     again, laneFree, timeOver                                                joining      join
//	joining                     wake                                                                     joining      noteWake
//	joining                     queued                                                 missedWake        joining      join
//	joining                     queued                                                                   waiting      waits
//	joining                     blocked                                                                  checking     check
//	joining                     mismatched                                                               checking     load
//	waiting                     timeOver                                               beforePoll        waiting      expireAhead
//	waiting                     again, timeOver, wake                                                    joining      join
//	checking                    laneFree                                                                 checking     load
//	checking                    again                                                                    joining      join
//	joining, waiting, checking  granted                                                isLease           dating       extend
//	joining, waiting, checking  granted                                                earlierTickRuns   leaving      requestAnew
//	joining, waiting, checking  granted                                                                  held         begin
//	dating                      laneFree, timeOver                                                       dating       extend
//	dating                      extended                                                                 held         begin
//	dating                      leaseOver                                                                leaving      requestAnew
//	joining, checking, dating   unanswered                                             onlyTries         leaving      refuse
//	joining, checking           unanswered                                                               joining      retry
//	dating                      unanswered                                                               dating       retry
//	joining, waiting            refused, closes                                        breaks            gone         endBreak
//	joining, waiting            sessionEnd                                             breaks            joining      breakAnew
//	ungiven                     refused, closes                                                          leaving      refuse
//	ungiven                     revoke                                                 isForced          as before    learnGrant
//	ungiven                     revoke                                                                   leaving      requestAnew
//	dating                      sessionEnd                                             extendUnanswered  leaving      readmitAndRelease
//	ungiven                     sessionEnd                                                               gone         readmit
//	held                        done                                                   saysHow           leaving      releaseAsSaid
//	held                        done                                                   nextFits          held         handOffToNext
//	held                        done                                                   mayLinger         lingering    linger
//	held                        done                                                   mayReplace        leaving      replace
//	held                        done                                                                     leaving      releaseDone
//	held                        progress                                               isLease           held
//	held                        progress                                                                 held         limitProgress
//	held                        revoke, resigned                                                         windingDown  windDown
//	held                        timeOver                                               extendUnanswered  windingDown  windDownLease
//	held                        timeOver                                               isLease           lost         loseLease
//	held                        timeOver                                                                 windingDown  stalled
//	held                        deleted                                                leaseIsOver       lost         loseLease
//	held                        deleted                                                                  windingDown  windDown
//	held                        excluded, sessionEnd                                                     lost         loseHold
//	held                        closes                                                 isLease           lost         loseHold
//	held                        closes                                                                   windingDown  windDown
//	lingering                   wanted                                                 fitsCaller        held         handOff
//	lingering                   timeOver, revoke, othersCame, wanted, deleted, closes                    leaving      release
//	lingering                   sessionEnd                                                               gone         settle
//	windingDown                 done                                                   mayLeaveAsSaid    leaving      releaseAsSaid
//	windingDown                 done                                                                     leaving      releaseDone
//	windingDown                 timeOver, hurries                                                        leaving      release
//	windingDown                 revoke                                                                   windingDown  dropKeep
//	windingDown                 sessionEnd                                                               lost         loseRelease
//	lost                        done                                                                     past         settle
//	leaving                     again, laneFree, timeOver                                                leaving      release
//	leaving                     done                                                   waitsForHolder    leaving      settle
//	leaving                     revoke                                                 holderIsDone      leaving      dropKeep
//	leaving                     unanswered                                                               leaving      retryRelease
//	leaving                     refused                                                                  leaving      releaseRefused
//	leaving                     unwaited                                                                 leaving      releaseToFirst
//	leaving                     unknown                                                                  leaving      doubtRelease
//	leaving                     keeps                                                  nobodyWants       kept         keep
//	leaving                     keeps                                                                    leaving      releaseKept
//	leaving                     sessionEnd                                             inUse             lost         endUnreleased
//	leaving                     sessionEnd                                                               gone         endUnreleased
//	kept                        done                                                                     kept         settle
//	kept                        revoke                                                 mayEndKeep        leaving      releasePlainly
//	kept                        sessionEnd                                             inUse             lost
//	kept                        sessionEnd                                                               gone
//	windingDown, leaving        left                                                   inUse             lost         leaveStore
//	windingDown, leaving        left                                                                     past         leaveStore
//	lost                        timeOver                                               unused            past         leaveStore
//	kept                        timeOver                                               inUse             lost         leaveStore
//	kept                        timeOver                                                                 past         leaveStore
//
// The effect of a row makes no other transition. What follows from it, such as a slot that is free for the next caller,
// is a task, which the same Step does afterwards: see [Core.work].
//
// Within a process, a hold's slot is freed only when its holder is done, as with a sync.Mutex, even if the hold was
// lost or its claim was released at the end of the grace. The slots of leases and of holds with Auto are freed without
// waiting for the holder.
//
// Any command that makes room for a claim also grants it: a release, a command that drops expired sessions, or the
// request itself. The session whose command made the grant notifies the waiter with a [driver.Notice], once the command
// cannot be rolled back. A notice may be lost, late, repeated or out of order. So every waiter also requests again from
// time to time, when a session ahead of it has expired, and when the listener may have missed notices. If many wait
// then, the Core reads their keys, many per command, and only those that were granted request again.
//
// Only sessions may change a key's record. If anything else changes it, the holder must find out. So after every
// acknowledged heartbeat the Core reads some of the held keys, in rotation. It compares each received state of a held
// key with the hold. While a claim is in doubt, its holder cannot hand it off.
//
// Every request to join carries a time by the store's clock, after which the store ignores the request. Until then, an
// unanswered request, or a copy of an answered one, can make a claim join again after the claim's release. So the Core
// remembers released claims as past claims, and discards them after that time and a heartbeat, many per command.
//
// # How to read it
//
//	core.go      Core: New, Step, when a Tick is due; and what all files use: sending, clocks, pauses
//	config.go    the settings
//	event.go     the events, effects and commands
//	errors.go    the errors that callers and holders get
//	table.go     the claim's states, triggers and rows; tasks
//	claim.go     the claim
//	queue.go     this process's queue for one key: turns, and who is admitted
//	request.go   before a claim is held: its requests and their replies
//	break.go     the Break: a wait for others to give up a key
//	wait.go      while it waits in the store's queue: polls, and sessions ahead that may have lapsed
//	hold.go      while it is held: the hold's end, hand-offs, lingering
//	look.go      readings of what is held, in case somebody deletes its record, and of what many claims wait for
//	release.go   while it leaves: its release
//	past.go      when it has left: past claims, their discards, claims that appear again
//	others.go    what is known of other sessions
//	session.go   the registration, its heartbeats, deadline and loss; revocations
//	closing.go   Close: its bound, and what it could not do
//	listener.go  when the session listens; notices that it receives
//	ask.go       commands that callers ask for, such as readings and Extends
//	outbox.go    the lanes, which bound the commands under way; notices to others
//	timers.go    the timers of claims and messages
//	sweep.go     clean-up of the store
//	status.go    what a Core shows to package engine
//	state.go     what a Core shows to package explore
//
// To follow a Lock on a free key, read acquire and admit (queue.go), newClaim (claim.go), join and, for the reply,
// joinAnswered and granted (request.go), and begin (hold.go). To follow its Unlock, read done (hold.go), release and
// releaseAnswered (release.go), and leaveStore (past.go).
package core
