// Package dsynctest helps to test programs that use package dsync, and to test stores written for it.
//
// [Memory] is a [driver.Store] in the memory of one process. It simulates a server with its own clock. Use it to test
// programs that take a Session, without a database; inside a bubble of testing/synctest such tests take no time:
//
//	locks, err := dsync.New(dsynctest.NewMemory(), nil)
//
// [Faulty] wraps any Store and misbehaves on purpose. A function of the test decides which requests and notices are
// delayed, lost or repeated, which replies are delayed or lost, and which calls hang. It can also reorder notices. A
// Faulty can also cut the store off, and replay recorded requests.
//
// [TestStore] is the conformance suite of the Store interface, in the manner of
// testing/fstest and testing/slogtest. To write a Store for another
// database, follow the comments of [driver.Store] and call TestStore.
package dsynctest
