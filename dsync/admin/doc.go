// Package admin is for operators' tools. It shows the holders and the waiters of a key, and the processes that have a
// session. [Inspector.Break] takes a key away from its holders.
//
//	locks, err := dsyncmongo.Open(ctx, db, nil) // a *dsync.Session
//	inspector := admin.New(locks)
//	for st, err := range inspector.List(ctx, "invoices/") {
//		if err != nil {
//			return err
//		}
//		fmt.Println(st) // a Status: what the key is used as, its holders, its waiters
//	}
//
// The command leasehold and the page of package dsync/dsynchttp use it. A program that only locks does not need it:
// [dsync.HeldError] says who holds a key, and [dsync.Session.Healthy] says what is wrong with the program's own
// session.
//
// # What it costs
//
// [Inspector.Status], [Inspector.List], [Inspector.Members] and [Inspector.Deadlocks] read the store and write
// nothing. They do not register the session, so a read-only tool does not become a member, and its store can be
// opened read-only. Call them when somebody wants the answer, not for each request that a program serves.
// [Inspector.Stats] sends nothing.
//
// [Inspector.Break] and [Inspector.Forget] change what others rely on, and register the session if it is not
// registered. Both keep the promises of package dsync. Break takes a key only from holders that were notified and had
// their grace, or whose session or lease is over. Tokens keep growing after Forget.
//
// All times are by the store's clock, not this host's. An answer describes one moment, whose time it contains, and may
// be out of date when it arrives: a Status that shows a key as free is no permission to write.
package admin
