// Package fence refuses writes to MongoDB that come too late: the writes of a process that has lost its lock.
//
//	orders := fence.New(db.Collection("orders"), nil)
//	…
//	_, err := orders.UpdateOne(ctx, mu.Token(), filter, update) // errors.Is(err, fence.ErrStale)
//
// # Why a lock alone is not enough
//
// A process holds a lock and is about to write. It is frozen, by the scheduler of a virtual machine, a debugger,
// or a disk that hangs. It sends no heartbeats, its lease runs out, and another process takes the lock, reads the
// document, and writes. Then the first process resumes with its next instruction, which sends its write. No lock
// can stop that: the process checked its lock just before it was frozen, which is now a minute ago. So the data
// must decide.
//
// The data decides by the fencing token: a number that comes with each hold of a lock, and is greater than the
// numbers of all earlier holds of the lock's key. Each write carries the token of its hold. The data remembers the
// greatest token that it has seen, and refuses a write with a smaller one: [ErrStale]. Here the data has seen the
// second process's token, and refuses the first process's smaller one.
//
// # What to use
//
// A [Collection] is for writes of one document at a time. It keeps the token in a field of each document, and checks
// it in the same command that writes the document.
//
// A [Guard] is for transactions. It keeps the tokens in documents of its own, one for each key, so a transaction
// may write any documents as they are. What the transaction reads is safe, too. Each transaction costs one more
// command and one more changed document, and needs a replica set or a sharded cluster.
//
// # Which tokens
//
// Use the tokens of a lock with a single holder: a dsync.Mutex, a writer of a dsync.RWMutex, a lease, a run of a
// dsync.Once or a dsync.Periodic, or a leader's term. The holders of a semaphore, and readers, share their key,
// and would make the fence refuse each other's writes. The package needs nothing else from the lock: any positive
// int64 that grows from holder to holder will do.
//
// # What it does not do
//
// Everyone who writes the data must use the fence, with tokens of the same key: a write without the fence is
// neither refused nor remembered. Until a new holder has written its token, an older holder's writes are still
// applied. A document that is deleted takes its token with it. If the data is not in MongoDB, send the token along
// with each write, and compare it there.
package fence
