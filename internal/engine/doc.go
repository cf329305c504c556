// Package engine runs a session. A [core.Core] makes the decisions; this package has what a Core must not have:
// goroutines that call the store, the clock, contexts and files. Packages dsync and leader document what
// they promise, and package driver documents what a store promises. Package core explains how a session uses the
// store's promises to keep those of dsync and leader.
//
// # One mutex
//
// A [Session] has one mutex. It is held while the Core handles an event and the effects are carried out, and never
// while anything blocks. Events come from callers, from goroutines that send commands, from the listener and from
// one timer, which is set to [core.Core.Next].
//
//	Lock    ──Acquire──►┐                 ┌──Send──► a goroutine calls the store ──Reply──►┐
//	Unlock  ──Done─────►│                 ├──Deliver, Freed──► the caller that waits       │
//	notice  ──Noticed──►├─ Core.Step ────►├──End──► the hold's Lost closes; the Reporter    │
//	timer   ──Tick─────►│                 └──Listen──► a goroutine listens                 │
//	        ──────────►─┘◄─────────────────────────────────────────────────────────────────┘
//
// A caller waits on one channel, which is closed when it is served.
//
// # Goroutines
//
// The listener, hearOfDeaths, each command that the Core sends, and each call of Observe run on goroutines of their own.
// Close waits for all of them.
//
// # Above it
//
// [New] gets a [core.Config] and a [Reporter]. Package dsync makes the Config from its Options. Its Reporter calls
// hooks and writes logs, on a goroutine of its own. Some packages, such as leader and dsync/admin, use more of the
// engine than dsync exports. They get the [Session] from a *dsync.Session with [Of].
//
// # How to read it
//
//	session.go  Session: New, Close; step, which passes an event to the Core, and do, which carries out its effects
//	command.go  one command to the store; the listener; commands that callers send themselves
//	acquire.go  Acquire, TryAcquire, Hold
//	hold.go     the hold, its context and its end
//	observe.go  observers of a key, reading of states
//	admin.go    Break, Forget and Resize
//	deadlock.go the search for processes that wait for each other
//	status.go   what a session reports about itself
//	host.go     HostDir: the session's locked file, and those of other sessions
//	report.go   what a session reports, and Of
//	key.go      CheckKey
//	clock.go    the clock, which counts the time that the machine slept
package engine
