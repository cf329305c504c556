// Package mongo keeps the locks of package dsync in MongoDB: [Store] is a
// [dsync.Store], [Open] and [Connect] return a [dsync.Session] on one.
//
//	locks, err := dsyncmongo.Open(ctx, client.Database("app"), nil)
//	…
//	mu := locks.Mutex("invoices")
//
// Import it as dsyncmongo, since it shares its name with the driver's package.
//
// # Servers
//
// MongoDB 4.4 and later, as a replica set, a sharded cluster or a standalone, and
// servers that speak its protocol and compute the same: FerretDB 2, DocumentDB.
// When a store is made it asks the server who it is, runs its own commands on
// records of its own, which it removes again, and compares the results: a
// server that computes anything else is refused with an error that says what.
//
// Grants are pushed through one change stream per process, opened when somebody
// waits for the first time. Where there are none (a standalone, FerretDB,
// missing rights, [Options.NoWatch]) waiters poll. A process that holds something for
// longer than a second and has no stream tails a small capped collection, in which
// others leave a notice when they break its locks.
//
// # What it creates, and the rights it needs
//
// One collection, created implicitly, and a capped one of 1 MiB with ".notices" behind
// its name; nothing else: no index beyond _id, no server parameter, no transaction. The
// rights find, insert, update, remove and, for pushed grants, changeStream on the first
// and find, insert, createCollection and convertToCapped on the second are enough, all of
// which readWrite has; without those on the second a holder learns of force with its next
// heartbeat. To look at what is there, with
// [Options.ReadOnly], which writes and creates nothing, find is. All commands but those
// on the second, which is then done without, are part of the Stable API, version 1,
// strict.
//
// # The collection
//
// One record per session and one per key:
//
//	{_id: "s/<session>", at, ttl, name, host, pid, app, meta, rev, dead}
//	{_id: "k/<key>", f, y, c, p, t, n, h: […], q: […], g, r, at, v, done}
//
// h are the claims that hold the key, q is the line of those that wait, t the
// last token or one in its room, n the number of an election's terms, y and c the
// kind and the limit, p the limits it had before, g what the last write granted and
// whom it woke, r who is to yield to the line, v what the holder published, done what
// the key was sealed with and the token of who did it, f the format of the record. A
// session's rev are its revocations. Editing the collection, dropping it or restoring
// it under running processes voids what package dsync promises.
//
// # Fences
//
// A [Fence] is for the application's own collections: it refuses writes that come
// with an older fencing token than their document has seen.
package mongo
