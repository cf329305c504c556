// Package certmagic has processes that obtain TLS certificates with
// github.com/caddyserver/certmagic do so one at a time: it is the locks of a
// certmagic.Storage. Files that use that library's package too import this one as
// dsynccertmagic.
//
//	locker, err := dsynccertmagic.NewLocker(locks, nil) // locks is a *dsync.Session
//	certmagic.Default.Storage = locker.Storage(storage)
//
// where storage is what keeps the certificates, for all processes: a file system that
// they share, say, whose own locks are then not used.
//
// # What is given up
//
// A certmagic.Locker knows locks by their names, and can't tell of a loss. An operation
// whose lock is lost goes on, while another process may begin the same after the grace;
// the loss is told by dsync.Hooks.Lost and the log. certmagic is made for that: it looks
// into the storage before it asks for a certificate, and the worst is one certificate too
// many. Where certmagic tries again it renews the lock first, and a lock that was lost is
// then taken anew, after whoever has it. There are no fencing tokens: a storage does not
// check them.
package certmagic
