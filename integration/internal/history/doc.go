// Package history records what several processes do with locks, and checks it.
//
// Each process appends lines of JSON to a file of its own, by a [Recorder]; [Read]
// makes one [History] of all of them. Times are those of CLOCK_MONOTONIC, which all
// processes of a machine share and nobody sets. A line is written before what it
// announces and after what it reports, so a process that is killed leaves no more
// than calls without an end.
//
// # What is checked
//
// The rules of [Check]:
//
//   - overlap, grace, token, kept: those of package rules, which also says when a hold is
//     certain;
//   - term: the numbers of an election's terms grow with its tokens;
//   - fence: documents take no write with an older token than they have seen, and
//     refuse none of a certain holder;
//   - fifo: claims are granted in the order of the queue, unless a Transfer names one;
//   - transfer: after a Transfer that has succeeded, nobody but the candidate that it names
//     has the next term;
//   - store: the store's own record never has more holders than fit, and its tokens
//     never go back;
//   - ends: every call that began has returned, unless its process was killed;
//   - linear: what was called and answered can be put in one order in which a lock
//     and a fence would have answered so: see linear.go.
package history
