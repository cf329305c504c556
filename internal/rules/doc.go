// Package rules checks the rules for all holds of a key: holds exclude each other, and tokens grow. Random programs
// (package program) apply it while they run; module integration applies it to histories of several processes after
// they have ended. All times of a key's holds must be read from one clock that nobody sets.
//
// # What is certain
//
// A hold is certain from the return of the call that requested it, provided that it has a token then. It is certain
// until the call of Unlock if Unlock returns nil, and otherwise until its holder's last check that found Lost open.
// A check counts as made when it began. So a process that was frozen is certain of nothing after its last check,
// because the library can't notify it in time. But if its first check after the freeze wrongly finds Lost open,
// that counts.
//
// # What is checked
//
// The rules of [Check] and [Key.Grant]:
//
//   - overlap: no hold is granted while certain holds of others leave no room for it;
//   - grace: the same for the grace after the last certain moment of a lost hold, unless
//     its holder has said that it is done;
//   - token: tokens grow from grant to grant, and only readers of one process share one;
//   - kept: a key that was unlocked with Keep is granted to nobody before that time is over.
package rules
