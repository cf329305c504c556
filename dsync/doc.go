// Package dsync is package sync for processes that share nothing but a database. Its locks are
// held across processes and used like those of package sync.
//
//	locks, err := dsyncmongo.Open(ctx, db, nil) // a *dsync.Session
//	mu := locks.Mutex("invoices")               // a *dsync.Mutex, a sync.Locker
//	mu.Lock()
//	defer mu.Unlock()
//
// A [Session] registers one process with a store; make one per process. [Mutex], [RWMutex],
// [Semaphore], [Once] and [Periodic] are made from it. A [Hold] is one hold of such a lock, as a value;
// [Mutex.Lease] takes one of a fixed duration, and [LockAll] several locks at once.
// Package dsync/mongo is the store on MongoDB. Package dsync/dsynctest has an in-memory store
// for tests. Package dsync/admin shows who holds what, and breaks locks.
//
// # What is promised
//
//   - One holder: while the [Hold.Lost] channel of a hold is open, and for [Options].Grace
//     after it closes, the store grants the key to nobody else, unless the holder unlocks.
//   - Fencing: [Hold.Token] is greater than the token of every earlier hold of the key.
//   - Order: waiters are served in FIFO order; expired sessions drop out of the queue.
//     Goroutines of one process may hand off a hold to each other for [Options].HandOffTime
//     while other processes wait.
//   - Time: only the store's clock decides whether a process has died, or with [Options].HostDir
//     the kernel that it ran on. The clocks of hosts may be hours off.
//   - Force: [Mutex.ForceHold], and Break of package dsync/admin, take a key only from holders that were notified and had their
//     grace, or whose session or lease is over.
//
// These promises assume that clocks run at the right rate, and that the store's clock does not
// move by more than [Options].Margin within one TTL, be it by a step or by a fail-over to a
// server with another time.
//
// A process that is frozen past its deadline cannot be notified in time. Its first call of
// Lost, Token or a context's Err reports the loss, but work that it had already begun goes on.
// If a virtual machine is paused and its clocks stop meanwhile, only the reply to the next
// heartbeat reveals the loss. Where that matters, check the token where the data is.
//
// Nobody may delete or edit what the store keeps of a lock. If somebody does, the key is free, and its holder is
// notified after its next heartbeat (a later one if its session holds more than 500 keys): the cause is
// [ErrRecordDeleted]. Until then two processes can hold the lock.
//
// # What is not here
//
// There is no TTL to tune per lock: every hold lives as long as its session, and the session's
// one heartbeat costs the same for one lock and for ten thousand. A holder that can hang sets a limit for its
// own progress ([Hold.Progress]). There are no reentrant locks,
// for the reason that package sync has none: a holder that locks again waits for itself, which is reported to
// [Hooks].Deadlock if the context is that of the hold. No callback is needed: whatever can be waited for is a
// channel that stands in a select, the lock itself ([Mutex.HoldChan]) and its loss ([Hold.Lost]),
// and [Mutex.Do] passes a context.
package dsync
