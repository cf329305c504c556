// Package rules checks what every hold of a key must keep: holds exclude each other, and
// tokens grow. Random programs (package program) check it while they run. Histories of
// several processes (module integration) are checked when they have ended. All times of a
// key's holds must be read from one clock that nobody sets.
//
// # What is certain
//
// A hold is certain from the return of the call that requested it, if it has a token
// then. It is certain until the call of Unlock, if Unlock returns nil, and otherwise until
// its holder's last check that found Lost open. A check counts from the moment before it. So
// a process that was frozen is certain of nothing after its last check: the library can't
// notify it in time. But if its first check afterwards wrongly finds Lost open, that counts.
//
// # What is checked
//
// The rules of [Check] and [Key.Grant]:
//
//   - overlap: no hold is granted while the certain holds of others leave no room for it;
//   - grace: nor in the grace after the last certain moment of a hold that was lost, unless
//     its holder has said that it is done;
//   - token: tokens grow from grant to grant, and only readers of one process share one;
//   - kept: a key that was unlocked with Keep is granted to nobody before that time is over.
package rules
