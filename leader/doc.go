// Package leader elects one leader among the processes that share a store, and
// makes its leadership a context.
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
// [Election.Run] is that in a loop, made for errgroup; a [Group] is an errgroup of
// functions each of which runs on one process of the fleet. To elect on a MongoDB
// without a session of one's own there is package leader/mongo.
//
// # The states
//
// A process is, in an election:
//
//	observer ──Campaign──► candidate ──elected──► leader ──► observer
//
// Candidates stand in the line of the election's key, first come first served, as
// for a dsync.Mutex, on whose session, heartbeat, deadline and line all this
// rests: see package dsync for what is promised and why. A hundred elections of
// one process cost the heartbeat of one.
//
// A term begins with the grant of the key. It has a number, which grows by one
// with each term of the election, and a fencing token. It ends
//
//   - lost, when the lease of the session is over by the local clock: at least the
//     session's grace before anyone else can be elected;
//   - by force, when dsync.Session.Break is called with the election's name, by an
//     operator say: its cause is ErrLost and dsync.ErrRevoked. Run campaigns again,
//     behind those that wait;
//   - resigned, by Resign, by Pause, or when the function of Run has returned;
//   - with the context that it was campaigned with, or with the session.
//
// At its end its context is cancelled. The store keeps the leadership from others
// until the leader has said that its work is done (Resign, or the return of Run's
// function), or until the session's grace is over: two leaders' work does not
// overlap if it heeds its context within the grace.
//
// # What is not promised
//
// A process that is frozen past its deadline can't be told in time; its first look
// at the context's Err says that the leadership is lost. Check the term's token
// where the data is, if that matters. Identities are shown, and mean nothing: who
// leads is decided by the session, of which a restarted process has a new one.
package leader
