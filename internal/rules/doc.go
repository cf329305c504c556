// Package rules checks that the holds of a key exclude each other and that their tokens grow. Package program
// applies the rules while random programs run; module integration applies them to the histories of several processes
// after the processes have ended. All times of a key's holds must be read from one clock that nobody sets.
//
// # What is certain
//
// A hold is certain from the moment when the call that requested it returns, provided that the hold has a token then.
// If Unlock returns nil, the hold is certain until Unlock was called; otherwise, until the holder last checked Lost and
// found it open. A check counts as made when it began. So if a process freezes, nothing is certain after its last check
// before the freeze, because the library can't notify it in time. But if its first check after the freeze wrongly finds
// Lost open, the hold counts as certain until then.
//
// # What is checked
//
// The rules of [Check] and [Key.Grant]:
//
//   - overlap: no hold is granted while other holds that are certain leave no room for it;
//   - grace: a lost hold's part of the key is granted to nobody until the hold's release is called, or the grace
//     after the hold's last certain moment is over;
//   - token: tokens grow from grant to grant, except among readers and where the order of the grants is not known;
//     only readers of one process share a token;
//   - kept: a key that was released with Keep is granted to nobody until Keep has elapsed or the key is broken.
package rules
