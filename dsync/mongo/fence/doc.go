// Package fence refuses writes to MongoDB that come too late: the writes of a process that has lost its lock.
//
//	orders := fence.New(db.Collection("orders"), nil)
//	…
//	_, err := orders.UpdateOne(ctx, mu.Token(), filter, update) // errors.Is(err, fence.ErrStale)
//
// # Why a lock alone is not enough
//
// Suppose that a process holds a lock, is about to write, and is frozen: by the scheduler of a virtual machine, a
// debugger, or a disk that hangs. It sends no heartbeats, so its lease runs out. Another process takes the lock,
// reads the document, and writes. Then the first process resumes, and its next instruction sends its write. No lock
// can prevent that: the process checked its lock just before it was frozen, and does not check it again. So the data
// itself must refuse the write.
//
// Each hold of a lock has a fencing token, a number that is greater than the tokens of all earlier holds of the
// key. Each write carries the token of its hold. The data remembers the greatest token that it has seen, and
// refuses a write with a smaller one: [ErrStale]. In the example above, the data has seen the second process's
// token, so it refuses the first process's write.
//
// # What to use
//
// A [Collection] is for writes of one document at a time. It keeps the token in a field of each document, and checks
// it in the same command that writes the document.
//
// A [Guard] is for transactions. It keeps the tokens in documents of its own, one for each key, so the documents
// that a transaction writes need no field for a token. What the transaction reads is safe, too. Each transaction
// costs one more command and one more changed document, and needs a replica set or a sharded cluster.
//
// # Which tokens
//
// Use the tokens of a lock with a single holder: a dsync.Mutex, a writer of a dsync.RWMutex, a lease, a run of a
// dsync.Once or a dsync.Periodic, or a leader's term. Tokens of semaphores and readers do not work: a key has
// several holders at once, and the fence would refuse the writes of all but the latest. Any positive int64 that
// grows from holder to holder will do as a token, so other locks work, too.
//
// # What it does not do
//
// Everyone who writes the data must use the fence, with tokens of the same key: a write without the fence is
// neither refused nor remembered. Until a new holder has written its token, an older holder's writes are still
// applied. When a document is deleted, its token is forgotten. If the data is not in MongoDB, send the token along
// with each write, and compare it there.
package fence
