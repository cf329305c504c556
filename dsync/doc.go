// Package dsync is package sync for processes that share nothing but a database:
// locks that are held across processes, by the same calls as within one.
//
//	locks, err := dsyncmongo.Open(ctx, db, nil) // a *dsync.Session
//	mu := locks.Mutex("invoices")               // a *dsync.Mutex, a sync.Locker
//	mu.Lock()
//	defer mu.Unlock()
//
// A [Session] is one process's presence in a [Store], made once per process.
// [Mutex], [RWMutex], [Semaphore] and [Once] hang on it, and so does [Lease], a hold
// for a fixed time. The store on MongoDB is package dsync/mongo; one in memory, for
// tests, is in dsync/dsynctest.
//
// # What is promised
//
// One holder: while a hold's [Mutex.Lost] channel is open, and for
// [Options].Grace after it closed, nobody else is granted the key. Fencing:
// [Mutex.Token] is greater than that of every earlier hold of the key. Order:
// who asks first is served first; the dead drop out. Goroutines of one process may
// hand a hold on to each other for a while before others get their turn
// ([Options].Turn). Time: only the store's clock decides whether a process has
// died, so hosts' clocks may be hours off. Force: [Session.Break] takes a key only
// from holders that were told and had their grace, or are dead.
//
// This rests on clocks that run at the right rate, and on the store's clock not
// being moved by more than [Options].Margin within one TTL, by a step or by a
// fail-over to a server with another time. A process that is frozen past its
// deadline can't be told in time: its first look at Lost, Token or a context's
// Err says that the hold is lost, but what it had already begun goes on. In a virtual
// machine that was paused, and whose clocks stood still meanwhile, only the answer to
// the next heartbeat says it. Where that matters, check the token where the data is.
//
// # The states
//
// A session is, to the store:
//
//	unknown ──Register──► alive ◄──Heartbeat──► lapsed ──Bury──► dead
//	                        └───────────Unregister───────────────►
//
// Its own process moves it by Register, Heartbeat and Unregister. It lapses by
// itself, when its last heartbeat is a TTL old by the store's clock. Any other
// process that waits for it may bury it then, and not before. Dead is for ever:
// the id is never used again. So "this session is dead" is a fact that can be
// acted upon at any later time: its claims are dropped by whoever comes by.
//
// A session is, to its own process, live until its deadline,
//
//	send of the last acknowledged heartbeat + TTL·0.999 − Margin − Grace
//
// on the local monotonic clock, the machine's sleep included, and then lost. A
// timer enforces the deadline even while a heartbeat hangs, and every look at a
// lock compares the clock. When it is lost, every hold that lives with it is
// lost, nothing is ever sent under its id again, and it is left to lapse by
// itself: its holders' grace is running. Who waits asks again under a new id.
//
// The safety argument is the distance between the two: the store counts the TTL
// from when it executed the heartbeat, the process from before it sent it, and
// less Margin and Grace. So Lost closes, the grace passes, and only then can the
// session be buried, and its claims dropped.
//
// A claim, one attempt to hold a part of a key, is
//
//	asking ──grant──► held ──► released
//	                    ├────► lost       its session is lost, or its lease is over
//	                    └────► told ────► released, by its holder or after the grace
//
// Told is what a claim is when its session closes, when its holder is to resign, or
// when it is revoked: somebody used [Session.Break] or [Mutex.ForceLock], and the
// store passed that on by the watch or with a heartbeat. Every primitive is such a
// claim, of a weight out of the key's limit: a Mutex has 1 of 1, a writer of an
// RWMutex all and a reader 1 of many, a Semaphore n of its size; a Once has 1 of 1,
// and then seals the key, which is granted to nobody any more.
//
// A grant is made by the store, in whatever command makes room: a release, the
// dropping of the dead, or the request itself. It reaches the waiter as an event
// of its session's watch, or by asking again. A watch may miss events: every
// waiter also asks again now and then, and when a session ahead of it may have
// lapsed. Every request to join carries the time of the store's clock after which
// it is void, and a claim with a request that was never answered is released once
// more after that time, so that a request that comes late leaves nothing behind.
// A second copy of one that was answered, which no driver makes and no connection
// delivers, could join until then: its session releases it as soon as it hears of it,
// in an event or in a reply, and else it ends with its session.
//
// In one process, callers of one key queue here first: one at a time stands in
// the store's line, however many mutexes name the key. What the process holds it can
// use again without the store, as long as its session lives and the bounds are kept:
//
//	held by a goroutine ──Unlock──► held by the next, with the next token   for a Turn
//	                         └────► nobody's, kept for the next to come     for Linger
//	held by readers     ──RLock───► held by one more, with the same token
//
// The tokens are from the room that the store leaves between two grants. A claim that
// is kept beyond a turn says so in the store (Yield), whose watch tells the session
// as soon as somebody else stands in line; it is then released at the next Unlock,
// or at once. Where no watch would tell, it is given back in time by itself.
//
// # What is not here
//
// No TTL that must be tuned per lock: what is held lives with its session, whose
// one heartbeat costs the same for one lock and for ten thousand. No reentrant
// locks, for the reason that package sync has none. No callbacks that must be
// given to be told of a loss: Lost is a channel, [Mutex.Do] has a context.
package dsync
