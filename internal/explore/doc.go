// Package explore runs small worlds of sessions through every order of events. A world has some Cores, a store in
// memory, and a network that delays, loses and repeats messages. The package has only tests.
//
// A world is a value, and an action makes the next world from it. These are the actions:
//
//   - The store receives a command at once, late, two or three times or never, or refuses it.
//   - A reply or a notice arrives at once, late or never.
//   - A listener becomes ready at once or late, or breaks.
//   - The clock moves to the next due time, or the store's clock steps within the margin.
//   - A process freezes, and then first looks at its clock or unlocks. It is cut off, crashes, or learns that another
//     process has crashed. Two sessions of one process freeze and crash together. Their margins may differ.
//   - A Sweep removes expired and lapsed sessions.
//   - A caller locks, gives up, resigns, names its successor, reports progress, hangs, extends a lease, publishes
//     a value, unlocks, or unlocks a second time.
//   - A caller calls Break, or observes a key.
//   - A session closes, or the context of its Close ends.
//   - Somebody revokes the key, or deletes its record or the record of a session.
//   - The store fails over. For a while, the deposed primary still answers commands from its own data: early releases,
//     readings, and commands that have nothing to write. Other commands that reach it have no effect and no answer.
//
// Time passes only when no messages are under way except late ones, so without faults the network has no delay. Each
// kind of fault has a budget.
//
// After each step the package checks:
//
//   - While a hold's Lost is open, and for the grace after Lost has closed, the store has the hold's claim. The total
//     weight of these claims and of kept claims never exceeds the key's limit. A release never moves the end of a hold
//     to a later time, and an Extend never to an earlier one.
//   - Waiters are granted the key in the order of the queue, which is FIFO, except that claims for earlier ticks, and so
//     the more preferred candidates, come first. A named successor may overtake. A semaphore is never handed off within
//     a process.
//   - Only a caller whose tick is over is told so, and such a caller is never granted the key. The last successful
//     tick never decreases, its result does not change, and its seal does not remove a waiter for a later tick.
//   - A holder that names a successor learns whether the successor was granted the key. Tokens grow.
//   - Within a process, no caller is served before the holder is done, unless both share the hold or the key has room
//     for both. Callers without ticks are served in FIFO order, except for tries, callers with First, and readers
//     that share. Every caller gets one answer. Every hold is freed once, after its holder is done.
//   - Only sessions that the store has expired are named as expired.
//   - Close returns within an attempt's time after the grace, or after the store's last answer. What it returns is true:
//     it names the keys that the store may still have, and no key that the store has answered it has released. It says
//     that the session may still be listed if it is, and not if the store has answered that it is not.
//   - The pause before a command is sent again doubles with each failure, and starts again after a success.
//   - No Extend is sent for a lease whose hold has ended.
//   - A lease ends at the time that its own margin and grace require, which may differ from the session's.
//   - No more commands and polls are under way than there are lanes for them.
//   - No Tick is due at once after a step, and not a hundred Ticks in a row have no effect. A step ends, without a panic.
//   - Once a listener is ready, observers are told that their keys may have changed.
//   - When Break returns, the holds that it had to end are over, and so are their graces.
//   - No hold ends because of a stale reading, or because the record of another key was deleted. A lease does not end
//     with its session, unless the store has denied that it has the lease. If the store has a lease that ended so, it is
//     released.
//   - If there are no faults: Once a waiter has learned that all sessions ahead are dead, it gets the key a margin later.
//     If it does not learn that, it gets the key when they have lapsed. A reader shares a hold of its process at once if
//     nobody else waits. If the ends of leases and kept holds have come, a waiter gets the key with its next poll. It
//     learns of a grant by a notice, or with its next poll if the store can't notify. A holder learns of a revocation
//     with its next heartbeat. A call of Break reads the key at once, and returns when a notice says that what it waits
//     for is over, or with its next poll.
//
// From every state, the package also checks what happens if there are no further faults: every caller is served,
// revoked claims are given up, the store learns which keys are observed, and live sessions leave nothing behind in the
// store or in the Cores. In a small world
// this takes at most three TTLs, even if the store has an abandoned lease, which no process knows of.
//
// The tests explore small worlds completely, and large worlds by random walks.
//
// The store makes its edits with package model. It also implements the short commands of dsync/mongo, and uses them
// whenever their conditions are met.
//
// If several worlds behave alike, only one of them is visited: see
// [github.com/leasehold-go/leasehold/internal/core.Core.State]. Commands that concern only their own session are
// answered as soon as they are executed, unless a fault delays the answer.
package explore
