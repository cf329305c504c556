// Package explore runs small worlds of sessions through every order of events. A world has some Cores, a store in
// memory, and a network that delays, loses and repeats messages. The package has only tests.
//
// A world is a value, and an action turns it into the next one. The actions: a command arrives now, late, twice or
// never, or is refused; its reply or a notice arrives, late or never; a listener becomes ready, late, or breaks;
// the clock moves to the next due time; a process freezes, is cut off, or crashes, and another learns of the crash;
// the store's clock steps within the margin; a Sweep removes expired sessions; a caller locks, gives up, resigns,
// reports progress or hangs, extends a lease, unlocks, or unlocks again; a session closes, and hurries; somebody
// revokes the key. Time passes only when nothing is under way except late messages, so a network without faults
// takes no time. Each kind of fault has a budget.
//
// After each step it checks:
//
//   - While Lost of a hold is open, and for the grace after it, the store has its claim. The weights of such claims,
//     and of kept ones, fit into the key. No end moves the wrong way.
//   - A key is granted to nobody whose tick is over, and only callers whose tick is over are told so. The last tick that
//     succeeded only grows, keeps its result, and removes no waiter with a later tick.
//   - A holder that names a successor learns whether that was granted the key. Tokens grow.
//   - Within a process, nobody is served before the holder is done, unless they share or there is room. Every caller
//     gets one answer, and every hold is freed once, after its holder is done.
//
// From every state, without further faults, everybody can be served, revoked claims are given up, and living
// sessions leave nothing behind, in the store or in the Cores. Even if the store has a lease that nobody knows of,
// that takes no longer than with locks: three TTLs in a small world.
//
// The tests explore small worlds completely, and large ones by random walks.
//
// The store has the short commands of dsync/mongo, and uses them whenever their conditions are met.
//
// Worlds that behave alike are visited once: see [github.com/leasehold-go/leasehold/internal/core.Core.State].
// Commands that concern only their own session are answered as soon as they are executed, unless a fault delays the
// answer.
package explore
