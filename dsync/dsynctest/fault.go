package dsynctest

import "time"

// A Fault is what becomes of one [Request]. The zero Fault: nothing happens to
// it. Faults can be combined.
//
// A request is executed once it arrived, also if its caller has gone
// meanwhile: as with a network, a context that ends takes nothing back that
// was sent. So a Delay that is longer than the caller waits makes a request
// late, and LoseReply with Again makes one that its caller never learnt of be
// executed twice.
//
// A caller whose request or reply is lost waits until its ctx ends and gets
// ctx's error. With a ctx without an end it waits for ever.
type Fault struct {
	// Delay is how long the request is under way to the store.
	Delay time.Duration

	// ReplyDelay is how long its reply is under way to the caller.
	ReplyDelay time.Duration

	// LoseRequest: the request never reaches the store.
	LoseRequest bool

	// LoseReply: the reply never reaches the caller. A Watch is opened, and all
	// its events are lost.
	LoseReply bool

	// Again, if positive: the request reaches the store once more, that long
	// after it was sent, whatever became of the first. An event is repeated to
	// its watch. It has no effect on a Watch.
	Again time.Duration

	// Hang, if positive, keeps the caller in the call for that long, even if the
	// request was answered or ctx ended: what no Store should do, and some
	// driver once will. It has no effect on events.
	Hang time.Duration
}
