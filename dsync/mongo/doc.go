// Package mongo keeps the locks of package dsync in MongoDB. [Open] and [Connect] return a
// [dsync.Session].
//
//	locks, err := dsyncmongo.Open(ctx, client.Database("app"), nil)
//	…
//	mu := locks.Mutex("invoices")
//
// Import it as dsyncmongo, because the driver's package is also called mongo.
//
// # Servers
//
// The package works with MongoDB 4.4 and later, as a replica set, a sharded cluster or a standalone. It also works with
// FerretDB 2 on the open-source DocumentDB, which computes the same results, but not with Amazon DocumentDB. A new
// store asks the server for its kind and version. Then the store tries its own commands on temporary records, and
// checks the results. If a result is wrong, the error shows it. If MongoDB passes this probe, the store records that in
// the collection, and later stores only check that they may write. The probe runs again after an upgrade of the server,
// or after a release of this package that changes the probe. Other servers are probed each time.
//
// A waiter is notified by the process whose command granted its claim. That process inserts a notice into a small
// capped collection, which the waiter tails. This works on replica sets, standalones and sharded clusters. Where it
// is impossible (FerretDB, the strict Stable API, missing rights, [Options].PollOnly), waiters poll.
//
// # What it creates, and the rights it needs
//
// It creates one collection, implicitly, and capped collections of 128 KiB each for notices. Their names are the
// first collection's name, ".notices." and a number: 0 for the observers of keys, and 1 to
// [Options].NoticeCollections for sessions. Each is created when a process first listens in it or sends to it.
// Nothing else is created or changed: no index beyond _id, no server parameter, no transaction.
//
// It needs the rights find, insert, update and remove on the first collection, and find, insert, createCollection and
// convertToCapped on the others. The role readWrite includes them all. Without the rights on the others, waiters poll,
// and holders learn of Break and ForceHold with their next heartbeat. With [Options].ReadOnly, which writes and creates
// nothing, find is enough. All commands are part of the Stable API, version 1, strict, except those on the collections
// of notices.
//
// On a sharded cluster the first collection may be sharded by its hashed _id: every statement that writes, except
// those of a sweep, is for one record and names its _id. The collections of notices cannot be sharded.
//
// # The collection
//
// There is one record per session and one per key:
//
//	{_id: "s/<session>", at, ttl, name, host, pid, app, meta, opt, p, file, rev, obs, list, dead}
//	{_id: "k/<key>", f, y, c, p, t, n, h: […], q: […], at, done, o}
//
// Besides these, {_id: "x/sweep"} records how far sweeping has come, and {_id: "x/probe/…", at, passed} records
// that a version of the server has passed the probe.
//
// In a session's record:
//
//   - at is the time of the last heartbeat, and ttl the TTL in milliseconds.
//   - p is the number of the collection that the session listens in.
//   - rev are the revocations.
//   - obs is the list of keys that the session observes, and list is the sequence number of that list.
//   - file names the session's file in HostDir.
//   - dead is true if the session has expired.
//
// In a key's record:
//
//   - f is the format of the record.
//   - y is the kind, c the limit, and p the former limits.
//   - t is the last token, or a greater one reserved for its holder.
//   - n is the number of an election's terms.
//   - h are the claims that hold the key, and q is the queue of claims that wait. Each claim has the p of its session,
//     the value b that it publishes, and the tick k that it is for.
//   - at is the time of the last change. Extensions, published values, and most releases while nobody waits do not set
//     it.
//   - done is the last tick that has succeeded, with its result.
//   - Until the time o, the key counts as observed.
//
// Do not edit, drop or restore the collection while processes use it: otherwise package dsync can guarantee
// nothing.
//
// A notice is {_id, to, type, k, a, t, n, c}: the session, what has happened, the key and the
// claim; and, if it reports a grant, the token, the term, and whether others wait. For the
// observers of a key it is {_id, k}.
//
// # Fences
//
// Package fence, beside this one, protects the application's own collections from writes that come too late.
package mongo
