// Package program turns bytes into programs that use locks and elections, runs them, and checks the promises of
// packages dsync and leader while they run. It fuzzes the public API.
//
// A [Program] lists what a few goroutines in a few sessions do with a few keys. [Decode] turns any bytes into a
// program; fewer bytes give a smaller program. [Run] runs it in a [World]: in a bubble, with a store in memory and
// links that can be cut or noisy ([InMemory]), or on a server, in real time. The store in memory can fail over, which
// undoes releases, and a link can then lead to the former primary. In some programs, the store says State.Final as
// package mongo does. Run checks:
//
//   - Holds exclude each other and tokens grow: package rules checks each grant against all holds of its key.
//   - Every loss has a reason: a link that was cut or noisy, a closed session, a Break or
//     ForceHold, or the end of a lease. Hold.Release reports each loss.
//   - Every call returns in time: when its context ends, or within the limit that its documentation gives. If a call
//     returns an error, its documentation allows that error in that situation.
//   - No call waits for a key that has long been free, and no try for such a key fails. If every session is notified
//     of every change, no call waits even a second for a free key.
//   - Once: at most one run succeeds. If a run succeeds, the key is sealed, and every caller gets that run's value.
//   - A calm session discards no claim whose requests can't arrive late.
//   - Elections: a term has one leader. If Transfer returns nil, nobody but the named candidate leads the next term. A
//     refused Transfer does not end the term.
//   - Soon after everything is unlocked at the end, no living session has a claim left, and each can still lock each
//     key. After all sessions are closed, nobody holds a key or waits for one.
//
// A failed run prints what happened, with times since the start. It also prints the program: as bytes for Decode, and
// as text.
package program
