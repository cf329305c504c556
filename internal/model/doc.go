// Package model specifies, as code, what a store does with the record of a key: [Record.Edit] makes one [driver.Edit].
// It has no clock, no lock and no I/O. The in-memory stores run on it: dsynctest.Memory, and the store of package
// explore. The probe of package mongo compares a server with this package. The pipelines of package mongo are the only
// other implementation.
//
// An edit has three parts, which are one atomic step:
//
//  1. An Acquire and a Forget first drop the holders whose end has come. Other edits leave such holders in the record,
//     but a store may drop them then, too. An Acquire also names expired sessions. It drops their waiters, and their
//     holders that have no end of their own.
//  2. The edit itself changes one claim, the limit, or the seal. If it returns an error, the record is unchanged.
//  3. Settling grants the key: while the first waiter fits, it becomes a holder.
//
// These are the rules of [driver.Store], with the functions that enforce them:
//
//   - Kind and limit: a free key without a seal takes those of the next claim. Otherwise a claim must have them, or a
//     limit from before a Resize: see suits. A claim for a tick that is over needs only the kind.
//   - Order: waiters are served in the order in which they joined, except that a claim with First goes to the head, a
//     claim for a tick goes ahead of those for later ticks, and a Release may name its successor: see enqueue and
//     toHead. A light claim does not overtake a heavy one: see settle.
//   - Tokens: each is greater than the one before by at least TokenStep, or by TokenRoom after a claim with Yield that
//     takes the whole limit. No token is behind the clock, so tokens grow even after the record was swept: see settle,
//     and [Record.Idle].
//   - Late requests: an Acquire after its NotAfter does not join, and an Acquire of a claim that is there already
//     does not add it again. A Release finds its claim by the id alone, and frees nothing else.
//   - Ends: a kept hold may only end earlier, and a lease only later, and only by an Extend with a greater Seq. A hold
//     with an end outlives its session.
//   - Ticks: a seal only grows, its result stays, and it removes the waiters whose ticks are over.
//   - Values: a holder's value is removed with its hold, and only a value with a greater Seq replaces it.
//   - Notices: see [Effect].
//
// Where [driver.Store] leaves the choice of a limit to the store, this package has the same limit as package mongo.
package model
