// Package history records what several processes do with locks, and checks it.
//
// Each process appends lines of JSON to a file of its own, by a [Recorder]; [Read]
// makes one [History] of all of them. Times are those of CLOCK_MONOTONIC, which all
// processes of a machine share and nobody sets. A line is written before what it
// announces and after what it reports, so a process that is killed leaves no more
// than calls without an end.
//
// # What is certain
//
// A hold is certain from the return of the call that asked for it, if it has a token
// then, to its holder's last look that found Lost open, or to the call of Unlock if
// that returned nil. A look counts from the moment before it. So a process that is
// frozen is certain of nothing from its last look on: what it can't be told in time
// is not held against the library, and what it is told wrongly by its first look
// afterwards is.
//
// # What is checked
//
// The rules of [Check]:
//
//   - overlap: no grant while the certain holds of others take up the key;
//   - told: none, either, for the grace after the last certain moment of a hold that
//     was lost, unless its holder has said that it is done;
//   - token: tokens grow with the grants, and are not given twice;
//   - term: the numbers of an election's terms grow with its tokens;
//   - fence: documents take no write with an older token than they have seen, and
//     refuse none of a certain holder;
//   - kept: what was unlocked for later is granted to nobody until then;
//   - fifo: who is ahead in line is granted before who is behind;
//   - store: the store's own record never has more holders than fit, and its tokens
//     never go back;
//   - ends: every call that began has returned, unless its process was killed;
//   - linear: what was called and answered can be put in one order in which a lock
//     and a fence would have answered so: see [Linear].
package history
