// Package explore runs small worlds of sessions through every order of events: some Cores, a store in
// memory, and a network that delays, loses and repeats messages. It has tests only.
//
// A world is a value, and an action makes the next one: a command arrives now, late, twice or never, or is
// refused; its reply or a notice arrives, late or never; a listener becomes ready, late, or breaks; the
// clock moves to the next thing that is due; a process freezes, is cut off, or crashes, and another learns of that; the
// store's clock steps within the margin, and the store is swept of sessions; a caller locks, gives up, gives notice,
// reports progress or hangs, extends a lease, unlocks, and once more; a session closes, and hurries; somebody asks for the key. Time
// passes only when nothing is under way that is not late, so a network without faults takes no time. Each
// kind of fault has a budget.
//
// After each step: while Lost of holds is open, and for the grace after it, the store has their claims, and
// their weights fit into the key; so does what is kept; no end moves the wrong way; a key is granted to
// nobody whose tick is over, and nobody else is told that it is; the last tick that has succeeded only
// grows, keeps its result, and removes no waiter with a later one; whoever names a successor learns whether
// it was granted the key; tokens grow; within a process nobody is served before the holder is done, unless
// they share or there is room; every caller gets one answer, and every hold is freed once, after its holder
// is done. From every state there is a way without further faults in which everybody is served, what was
// asked for is given up, and nothing is left of living sessions, in the store and in the Cores. That takes as long as with
// locks, also if the store has a lease that nobody has: three TTLs in a small world.
//
// Small worlds are explored completely, large ones by random walks: see the tests.
//
// The store has the short commands of dsync/mongo, and uses them wherever their conditions are met.
//
// Worlds that behave alike are visited once: see
// [github.com/leasehold-go/leasehold/internal/core.Core.State]. Commands that are only about their session
// are answered in the moment in which they are executed, unless a fault delays the answer.
package explore
