// Package dsync is package sync for processes that share nothing but a database. Its locks are
// held across processes and used like those of package sync.
//
//	locks, err := dsyncmongo.Open(ctx, db, nil) // a *dsync.Session
//	mu := locks.Mutex("invoices")               // a *dsync.Mutex, a sync.Locker
//	mu.Lock()
//	defer mu.Unlock()
//
// A [Session] registers one process with a store; make one per process. It makes [Mutex], [RWMutex], [Semaphore],
// [Once] and [Periodic] values. A zero value panics when it is used, and none may be copied. A [Hold] is one hold of
// such a lock, as a value; [Mutex.Lease] acquires a hold of fixed duration; [LockAll] acquires several locks at
// once. All methods of all types may be called concurrently.
//
// Package dsync/mongo is the store on MongoDB, dsync/dsynctest has one in memory for tests, and
// dsync/admin shows who holds what, and breaks locks.
//
// # What is promised
//
//   - One holder: while the [Hold.Lost] channel of a hold is open, and for [Options].Grace after it closes, the store
//     grants no conflicting hold of the key, unless the holder unlocks.
//   - Fencing: [Hold.Token] is greater than the token of every earlier hold of the key.
//   - Order: waiters are served in FIFO order, but goroutines of one process may hand off a hold
//     to each other for [Options].HandOffTime while other processes wait.
//   - Time: only the store's clock, or with [Options].HostDir the host's kernel, decides whether a
//     process has died. Hosts' clocks may be hours off.
//   - Force: a key is taken only from holders that were notified and had their grace, or whose
//     session or lease is over.
//
// These promises assume that clocks run at the right rate, and that the store's clock does not move
// by more than [Options].Margin within one TTL, whether by a step or a fail-over to a server whose
// clock differs.
//
// A process that is frozen past its deadline cannot be notified in time. When it runs again, its first call of Lost,
// Token or a context's Err reports the loss, but work that had begun goes on. If a virtual machine pauses with its
// clocks, only the next heartbeat's reply reveals the loss. Where that matters, check the token where the data is.
//
// If somebody deletes or edits a lock's record in the store, two processes can hold the lock. The first is notified
// after its next heartbeat, or a later one if its session holds more than 500 keys.
//
// # What is not here
//
// Apart from a lease, no lock has a TTL of its own: one heartbeat renews all that a session holds, one lock or ten
// thousand. A holder that can hang sets a limit for its progress ([Hold.Progress]). Locks are not reentrant, as in
// package sync: a holder that locks again waits for itself.
package dsync
