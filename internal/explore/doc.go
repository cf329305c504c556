// Package explore runs small worlds of sessions through every order of events: some Cores, a store in
// memory, and a network that delays, loses and repeats messages. It has tests only.
//
// A world is a value, and an action makes the next one: a command arrives now, late, twice or never; its
// reply or a notice arrives, late or never; the clock moves to the next thing that is due; a process
// freezes, or is cut off; the store's clock steps within the margin; a caller locks, gives up, unlocks; a
// session closes; somebody asks for the key. Time passes only when nothing is under way that is not late,
// so a network without faults takes no time. Each kind of fault has a budget.
//
// After each step: while Lost of a hold is open, and for the grace after it, nobody else is given the key;
// tokens grow; within a process nobody is served before the holder is done. From every state there is a way
// without further faults in which everybody is served and nothing is left of living sessions.
//
// Worlds that behave alike are visited once: see [github.com/leasehold-go/leasehold/internal/core.Core.State].
package explore
