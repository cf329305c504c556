// Package dsynctest helps to test programs that use package dsync, and stores for it.
//
// [Memory] is a [driver.Store] in the memory of one process: a model of a server, with
// its own clock. Use it to test programs that take a Session, without a database; inside
// a bubble of testing/synctest such tests take no time:
//
//	locks, err := dsync.New(dsynctest.NewMemory(), nil)
//
// [Faulty] wraps any Store and misbehaves on purpose. As a function of the test decides, it delays, loses, repeats
// and hangs requests and replies, and delays, loses, repeats and reorders notices. It can also cut the store off,
// and replay every request that it has passed on.
//
// [TestStore] is the conformance suite of the Store interface, in the manner of
// testing/fstest and testing/slogtest. To write a Store for another
// database, follow the comments of [driver.Store] and call TestStore.
package dsynctest
