// Package admin is for tools of operators: it shows who holds a key, who waits for it and which processes there are, and
// it takes a key from its holders.
//
//	locks, err := dsyncmongo.Open(ctx, db, nil) // a *dsync.Session
//	inspector := admin.New(locks)
//	for st, err := range inspector.List(ctx, "invoices/") {
//		…
//		fmt.Println(st) // a Status: what the key is used as, its holders, its waiters
//	}
//
// The command leasehold and the page of package dsync/dsynchttp are made with it. A program that only locks does
// not need it: [dsync.HeldError] says who holds a key, and [dsync.Session.Healthy] what is wrong here.
//
// # What it costs
//
// [Inspector.Status], [Inspector.List], [Inspector.Members] and [Inspector.Deadlocks] only read, and [Inspector.Stats]
// does not even do that. Read-only methods work with a store that is opened read-only, and do not register the session:
// to read, nobody becomes a member. They read the store of all processes, so call them when somebody asks, and not in
// the path of a request.
//
// [Inspector.Break] and [Inspector.Forget] change what others rely on. Both keep the promises of package dsync: Break
// takes a key only from holders that were notified and had their grace, or whose session or lease is over, and tokens
// keep growing after Forget.
//
// All times are the store's, not this host's, and each answer is as of the moment that it names. It can be out of
// date when it arrives: never lock or write because a Status says that a key is free.
package admin
