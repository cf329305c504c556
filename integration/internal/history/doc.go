// Package history records what several processes do with locks, and checks the recorded
// history.
//
// Each process appends lines of JSON to its own file with a [Recorder]; [Read] makes one [History]
// from all files. Times are read from CLOCK_MONOTONIC, which all processes of a machine share and
// nobody can set. A line is written before each call or fault begins, and another after it has
// ended. So if a process is killed, only the ends of its calls can be missing.
//
// # What is checked
//
// The rules of [Check]:
//
//   - overlap, grace, token, kept: see package rules, which also defines when a hold is certain;
//   - term: the numbers of an election's terms grow with its tokens;
//   - fence: a document applies no write with a token older than one that it has seen, and
//     refuses no write by the holder of a certain hold;
//   - fifo: claims are granted in the order of the queue, unless a Transfer names one;
//   - transfer: after a successful Transfer, only the candidate that it names has the next
//     term;
//   - store: the store's own record never has more holders than fit, and its tokens never
//     go back;
//   - ends: every call that began has returned, unless its process was killed;
//   - linear: all calls and answers can be put in an order in which a lock and a fence would
//     have given the same answers (see linear.go).
package history
