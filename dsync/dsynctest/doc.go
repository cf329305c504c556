// Package dsynctest tests what is built on package dsync, and stores that
// package dsync is built on.
//
// [Memory] is a [dsync.Store] in the memory of one process: the model of a
// server, with a clock of its own. Programs that take a Session can be tested
// with it without a database, and inside a bubble of testing/synctest without
// waiting.
//
// [Faulty] wraps any Store and misbehaves on purpose: it delays, loses, repeats
// and hangs requests and replies as a function of the test decides, cuts the
// store off, and replays all that a process has ever sent.
//
// [TestStore] and [TestStoreBubble] are the conformance suite of the Store
// interface, in the manner of testing/fstest and testing/slogtest. Who writes a
// Store for another database needs the comments of [dsync.Store] and a call of
// TestStore.
package dsynctest
