// Package fence refuses writes to MongoDB that come too late: those of a process that no longer holds the lock
// they were made under.
//
//	orders := fence.New(db.Collection("orders"), nil)
//	…
//	_, err := orders.UpdateOne(ctx, mu.Token(), filter, update) // errors.Is(err, fence.ErrStale)
//
// # Why a lock alone is not enough
//
// A process holds a lock and is about to write. It is frozen, by the scheduler of a virtual
// machine, a debugger, or a disk that hangs. It sends no heartbeats, its lease runs out, and
// another process takes the lock, reads the document, and writes. Then the first process resumes with its
// next instruction, which sends its write. No lock can stop it: it checked the lock just before that,
// which is now a minute ago. So the data must decide.
//
// It decides by the fencing token: a number that a lock grants with each hold, greater than those of all earlier
// holds of its key. Each write carries the token of its hold. The data remembers the greatest token that it has seen,
// and refuses a write with a smaller one: [ErrStale]. Here the data has seen the token of the second process; that of
// the first is smaller.
//
// # What to use
//
// A [Collection] is for writes of one document at a time. It keeps the token in a field of each document, and checks
// it in the same command that writes the document.
//
// A [Guard] is for transactions. It keeps the tokens in documents of its own, one for each key, so that the
// transaction may write any documents as they are, and what it reads is safe, too. Each transaction costs one more
// command and one more changed document, and needs a replica set or a sharded cluster.
//
// # Which tokens
//
// Use those of a lock that only one at a time can hold: a dsync.Mutex, a writer of a dsync.RWMutex, a lease, a run of
// a dsync.Once or a dsync.Periodic, or a leader's term. The holders of a semaphore, and readers, hold their key
// together, and would have each other's writes refused. The package needs nothing else from the lock: any positive
// int64 that grows from holder to holder will do.
//
// # What it does not do
//
// Everyone who writes the data must use the fence, with tokens of the same key: a write that goes around it
// is neither refused nor remembered. Until a new holder has written its token, an older holder's writes are
// still applied. A document that is deleted takes its token with it. For other systems than MongoDB, pass the
// token along and compare it there.
package fence
