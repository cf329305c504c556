// Package program turns bytes into programs that use locks and elections, runs them and
// checks what packages dsync and leader promise while they run: fuzzing by the public API.
//
// A [Program] is what some goroutines of some sessions do with a few keys. Any
// bytes are one ([Decode]); short ones are small. [Run] runs it in a [World]: a
// store in the memory of a bubble, whose links can be cut and noisy ([InMemory]), or a
// server, in real time. What it checks:
//
//   - Exclusion and tokens, by package rules. Each grant is checked with all holds of its key.
//   - Losses have a reason: a link that was cut or noisy, a closed session, a Break, the end
//     of a lease. Unlock reports each.
//   - Every call returns when its context ends, or when its documentation says, and
//     with an error that its documentation allows for what has happened.
//   - Nobody waits, and no try fails, for a key that has long been free; where every
//     session is notified of every change, not for a second.
//   - Once: at most one run succeeds, it is sealed if one does, and every caller is
//     given that run's value.
//   - Elections: a term has one leader. After a Transfer that returned nil, the candidate that
//     it named leads the next term; one that was refused ends no term.
//   - In the end, when everything was unlocked, no living session has a claim left;
//     each can still have each key; after they were closed nobody holds a key or
//     waits for one.
//
// A failure prints the program, twice: as bytes for Decode, and as text; and what
// happened, with times since the start.
package program
