// Package driver is the interface between the locks of package dsync and a database. It contains
// the [Store] interface, the records that its methods take and return, and their errors. It is for
// authors of stores; programs that use locks need it only to pass a Store to dsync.New.
//
// A Store only executes commands. Each is atomic, unless the comment on its method says otherwise. Most changes of keys
// are made by Edit, whose argument, an [Edit], describes the change. Waiting, retries, timing and local queues are on
// the other side of the interface, in package dsync. Every primitive of package dsync is a weighted [Claim] on a key:
//
//	Mutex             1 of 1
//	Election          1 of 1, for a tick that ranks the candidate; the key is never sealed
//	RWMutex           a writer takes the whole limit, a reader 1
//	Semaphore         n of its size
//	Periodic          1 of 1, for a tick; a success seals the key up to that tick, with a result
//	Once              a Periodic of one tick
//
// This module has two stores: dsync/mongo, on MongoDB, and dsync/dsynctest, in memory. Test any other store with
// dsynctest.TestStore, the conformance suite for the contract stated in the comments below.
package driver
