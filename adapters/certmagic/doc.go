// Package certmagic lets processes that obtain TLS certificates with
// github.com/caddyserver/certmagic do so one at a time: it provides the locks of a
// certmagic.Storage. Files that also use that library's package import this one as
// dsynccertmagic.
//
//	locker, err := dsynccertmagic.NewLocker(locks, nil) // locks is a *dsync.Session
//	certmagic.Default.Storage = locker.Storage(storage)
//
// where storage keeps the certificates for all processes. It can be a shared file system, for
// example, whose own locks are then not used.
//
// # Limits
//
// A certmagic.Locker knows locks only by name, and can't report a loss. If the lock of an operation
// is lost, the operation continues, and another process may begin the same operation after the
// grace; dsync.Hooks.Lost and the log report the loss. certmagic can cope with that: it checks the
// storage before it requests a certificate, so the worst case is one certificate too many. Before
// certmagic tries again, it renews the lock, and a lost lock is then acquired again, behind its
// present holder and waiters. There are no fencing tokens, because a storage does not check them.
package certmagic
