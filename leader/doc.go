// Package leader elects one leader among the processes that share a store. A leader works under a
// context that is cancelled when its leadership ends.
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
// [Election.Run] does this in a loop and is made for errgroup. A [Group] is an errgroup; each of its functions runs
// on one process of the fleet at a time. Package leader/mongo makes an election straight from a MongoDB database.
//
// # The states
//
//	observer ──Campaign──► candidate ──elected──► leader ──► observer
//
// An election is a lock on a key. Candidates wait in its queue and are elected in the order of [Options].Preference, and
// among equals in FIFO order, like the waiters of a dsync.Mutex. A hundred elections of one session share one heartbeat.
// Package dsync documents what is promised and why.
//
// A term begins when a candidate is elected. It has a number and a fencing token, both greater than
// those of all earlier terms. It ends
//
//   - when it is lost, for example because the session's lease is over by the local clock ([ErrLost] lists all
//     causes);
//   - by Resign, Pause, Transfer, ResignAfter or [Options].YieldAfter, or by the return of Run's function;
//   - when the context that was passed to Campaign or Run ends, or the session is closed.
//
// When a term ends, its context is cancelled. Nobody else is elected until the leader's work is
// done (it calls Resign, or Run's function returns) or the session's grace is over. So the work of
// two leaders does not overlap if each leader's work stops within the grace. After a loss, Run
// campaigns again once its function has returned.
//
// # What is not promised
//
// A process that is frozen for most of a TTL cannot be notified in time. When it runs again, its first call of the
// context's Err reports the loss, but work that had already begun goes on. If that matters, the system that stores your
// data should check the term's token. Names are only for display: leadership belongs to a session, and a restarted
// process has a new session.
package leader
