// Package certmagic lets processes that obtain TLS certificates with github.com/caddyserver/certmagic do so one at a
// time. It provides the locks of a certmagic.Storage. Files that also use that library's package import this one as
// dsynccertmagic.
//
//	locker, err := dsynccertmagic.NewLocker(locks, nil) // locks is a *dsync.Session
//	certmagic.Default.Storage = locker.Storage(storage)
//
// Here storage is where all processes keep their certificates: a shared file system, for example. The storage's own
// locks are not used.
//
// # Limits
//
// The interface certmagic.Locker has no way to report that a lock was lost. The operation under the lock continues, and
// another process may begin the same operation after the session's grace. Only dsync.Hooks.Lost and the log report the
// loss. certmagic can cope with that: it checks the storage before it requests a certificate, so the worst case is one
// certificate too many. Before certmagic retries a failed operation, it renews the lock. If the lock was lost, the
// renewal acquires it again, after the processes that already hold it or wait for it. Fencing tokens are not used,
// because storages don't check them.
package certmagic
