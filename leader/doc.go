// Package leader elects one leader among the processes that share a store. Leadership is a
// context that is cancelled when it ends.
//
//	election, err := leader.New(locks, "reports", nil) // locks is a *dsync.Session
//
//	ctx, err = election.Campaign(ctx) // cancelled when leadership is lost
//	if err != nil {
//		return err
//	}
//	defer election.Resign(context.Background())
//	return work(ctx)
//
// [Election.Run] does this in a loop and is made for errgroup. A [Group] is an errgroup of
// functions, each of which runs on one process of the fleet at a time. Package leader/mongo
// holds elections on MongoDB without a session of one's own.
//
// # The states
//
// In an election, a process moves through these states:
//
//	observer ──Campaign──► candidate ──elected──► leader ──► observer
//
// An election is a lock on a key, held by the leader. Candidates wait in the key's queue and
// are elected in FIFO order, like the waiters of a dsync.Mutex. The election uses the heartbeat
// and the deadline of its session: a hundred elections of one process cost one heartbeat.
// Package dsync documents what is promised and why.
//
// A term begins when the key is granted. It has a number, which grows by one with each term of
// the election, and a fencing token. A term ends
//
//   - when it is lost, because the lease of the session is over by the local clock: at
//     least the session's grace before anyone else can be elected;
//   - when somebody calls admin.Inspector.Break with the election's name: the cause is
//     ErrLost and dsync.ErrRevoked, and Run campaigns again, behind those that wait;
//   - when the work has set a limit with dsync.Hold.Progress, and makes no progress within it: the cause is
//     ErrLost and dsync.ErrStalled, and Run campaigns again when its function has returned;
//   - when somebody has deleted the election's record in the store: the cause is ErrLost and
//     dsync.ErrRecordDeleted, and Run campaigns again;
//   - when it is resigned: by Resign, by Pause, or by the return of Run's function; by
//     Transfer, which elects a named candidate next; or by ResignAfter, which elects nobody for a time;
//   - when the context that was passed to Campaign or Run ends, or the session is closed.
//
// At the end of a term its context is cancelled. The store elects nobody else until the leader
// says that its work is done (by Resign, or by the return of Run's function), or until the
// session's grace is over. So the work of two leaders does not overlap if it stops within the
// grace.
//
// # What is not promised
//
// A process that is frozen past its deadline cannot be notified in time. Its first call of the
// context's Err reports the loss, but work that it had already begun goes on. If that matters,
// check the term's token where the data is. Names are only for display: leadership belongs to a
// session, and a restarted process has a new one.
package leader
