// Package program turns bytes into programs that use locks and elections, runs them, and checks the promises of
// packages dsync and leader while they run. It fuzzes the public API.
//
// A [Program] is what some goroutines of some sessions do with a few keys. Any bytes decode to a program
// ([Decode]); few bytes make a small one. [Run] runs it in a [World]: in a bubble, with a store in memory and links
// that can be cut or noisy ([InMemory]), or on a server, in real time. It checks:
//
//   - Exclusion and tokens, with package rules: each grant is checked against all holds of its key.
//   - Losses have a reason: a link that was cut or noisy, a closed session, a Break, the end
//     of a lease. Unlock reports each loss.
//   - Every call returns when its context ends, or as documented, with an error that its documentation allows in
//     that situation.
//   - Nobody waits, and no try fails, for a key that has long been free. If every session is notified of every
//     change, not even for a second.
//   - Once: at most one run succeeds. If one does, it is sealed, and every caller gets that run's value.
//   - Elections: a term has one leader. After a Transfer that returned nil, the candidate that
//     it named leads the next term. A refused Transfer ends no term.
//   - In the end, when everything is unlocked, no living session has a claim left, and each can still
//     lock each key. After they are closed, nobody holds a key or waits for one.
//
// A failure prints the program twice, as bytes for Decode and as text, and what happened, with times since the
// start.
package program
