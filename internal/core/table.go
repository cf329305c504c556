package core

import (
	"fmt"
	"math/bits"
	"time"

	"github.com/leasehold-go/leasehold/dsync/driver"
)

// A state is the state of a claim. Each is a bit, so that a row of the table can have several.
type state uint16

const (
	gone state = 1 << iota // this process does not have the claim: not yet, or no longer
	joining
	waiting
	checking // finding out whether the sessions that block the claim have expired
	dating   // granted, but the store has not set the end of the lease yet
	held
	lingering
	windingDown
	lost
	leaving
	kept
	past // it has left the store: see pastClaim

	stay    state = 0 // as a row's next state: the claim stays in its state
	ungiven       = joining | waiting | checking | dating
)

var stateNames = [...]string{"gone", "joining", "waiting", "checking", "dating", "held", "lingering", "windingDown", "lost", "leaving", "kept", "past"}

func (s state) index() int     { return bits.TrailingZeros16(uint16(s)) }
func (s state) String() string { return stateNames[s.index()] }

// in reports whether the state is one of these.
func (s state) in(these state) bool { return s&these != 0 }

// A trigger is an event that moves a claim to another state. Each is a bit, too.
type trigger uint32

const (
	requested  trigger = 1 << iota // an admitted caller needs a claim
	replaces                       // the same, and the request also releases the claim before it
	appeared                       // the store has a claim of this session that this process does not know
	queued                         // the store has queued the claim
	blocked                        // a try found the key in use
	mismatched                     // the key is in use as another kind
	granted                        // the store has granted the claim
	extended                       // the store has set the end of the lease
	again                          // a command for the claim is due, or due again
	laneFree                       // a lane is free for the claim's command
	unanswered                     // a command for the claim has no answer
	refused                        // the store refuses a command for the claim, the caller has given up, or the session closes
	timeOver                       // the claim's timer has expired
	wake                           // a notice came, or one may have been missed
	revoke                         // the session must give up the claim
	leaseOver                      // the lease is over
	othersCame                     // other sessions may wait for the key
	wanted                         // a caller of this process wants the key
	done                           // the holder is done
	resigned                       // the holder wants the hold to end
	progress                       // the holder makes progress
	deleted                        // the store does not have the claim that is held
	excluded                       // the store may have granted the key to another
	closes                         // the session closes
	hurries                        // Close's context has ended
	keeps                          // the store has released the claim, and keeps it as asked
	unknown                        // the store does not have the claim that it should release
	unwaited                       // the successor that the release names is not waiting
	left                           // the store does not have the claim any more, or Close gives up its release
	sessionEnd                     // the session is lost
)

var triggerNames = [...]string{"requested", "replaces", "appeared", "queued", "blocked", "mismatched", "granted", "extended", "again", "laneFree", "unanswered",
	"refused", "timeOver", "wake", "revoke", "leaseOver", "othersCame", "wanted", "done", "resigned", "progress", "deleted", "excluded", "closes", "hurries",
	"keeps", "unknown", "unwaited", "left", "sessionEnd"}

func (t trigger) index() int     { return bits.TrailingZeros32(uint32(t)) }
func (t trigger) String() string { return triggerNames[t.index()] }

// args are what a trigger carries.
type args struct {
	cause   error         // why a wait or a hold ends
	call    *Call         // wanted: the caller
	done    *Done         // done
	before  *claim        // replaces: the claim that the request also releases; granted: the result of earlierTick
	term    int64         // granted
	ends    Instant       // extended: when the lease ends
	limit   time.Duration // progress
	applied driver.OpTime // left: when the release was applied, if a fail-over may still undo it
}

// A row says what a trigger does to a claim. Of the rows for the claim's state and the trigger, the first whose guard
// holds decides. If there is none, the trigger has no effect.
type row struct {
	from state                                  // the states that the row is for
	on   trigger                                // the triggers that the row is for
	when func(c *Core, cl *claim, x *args) bool // the guard; nil: it always holds
	next state                                  // the claim's next state
	do   func(c *Core, cl *claim, x *args)      // the effect, called once the claim has its next state; nil: none
}

// claimTable is the table of the claim's states. The package documentation shows it, too.
var claimTable = newTable([]row{
	{gone, requested, (*Core).breaks, joining, nil},
	{gone, requested, nil, joining, (*Core).join},
	{gone, replaces, nil, joining, (*Core).joinInPlace},
	{gone, appeared, nil, leaving, (*Core).releaseOrphan},

	{joining, again | laneFree | timeOver, nil, joining, (*Core).join},
	{joining, wake, nil, joining, (*Core).noteWake},
	{joining, queued, (*Core).missedWake, joining, (*Core).join},
	{joining, queued, nil, waiting, (*Core).waits},
	{joining, blocked, nil, checking, (*Core).check},
	{joining, mismatched, nil, checking, (*Core).load},

	{waiting, timeOver, (*Core).beforePoll, waiting, (*Core).expireAhead},
	{waiting, timeOver | wake | again, nil, joining, (*Core).join},

	{checking, laneFree, nil, checking, (*Core).load},
	{checking, again, nil, joining, (*Core).join},

	{joining | waiting | checking, granted, (*Core).isLease, dating, (*Core).extend},
	{joining | waiting | checking, granted, (*Core).earlierTickRuns, leaving, (*Core).requestAnew},
	{joining | waiting | checking, granted, nil, held, (*Core).begin},

	{dating, timeOver | laneFree, nil, dating, (*Core).extend},
	{dating, extended, nil, held, (*Core).begin},
	{dating, leaseOver, nil, leaving, (*Core).requestAnew},

	{joining | checking | dating, unanswered, (*Core).onlyTries, leaving, (*Core).refuse},
	{joining | checking, unanswered, nil, joining, (*Core).retry},
	{dating, unanswered, nil, dating, (*Core).retry},
	{joining | waiting, refused | closes, (*Core).breaks, gone, (*Core).endBreak},
	{joining | waiting, sessionEnd, (*Core).breaks, joining, (*Core).breakAnew},
	{ungiven, refused | closes, nil, leaving, (*Core).refuse},
	{ungiven, revoke, (*Core).isForced, stay, (*Core).learnGrant},
	{ungiven, revoke, nil, leaving, (*Core).requestAnew},
	{dating, sessionEnd, (*Core).extendUnanswered, leaving, (*Core).readmitAndRelease},
	{ungiven, sessionEnd, nil, gone, (*Core).readmit},

	{held, done, (*Core).saysHow, leaving, (*Core).releaseAsSaid},
	{held, done, (*Core).nextFits, held, (*Core).handOffToNext},
	{held, done, (*Core).mayLinger, lingering, (*Core).linger},
	{held, done, (*Core).mayReplace, leaving, (*Core).replace},
	{held, done, nil, leaving, (*Core).releaseDone},
	{held, progress, (*Core).isLease, held, nil},
	{held, progress, nil, held, (*Core).limitProgress},
	{held, resigned | revoke, nil, windingDown, (*Core).windDown},
	{held, timeOver, (*Core).extendUnanswered, windingDown, (*Core).windDownLease},
	{held, timeOver, (*Core).isLease, lost, (*Core).loseLease},
	{held, timeOver, nil, windingDown, (*Core).stalled},
	{held, deleted, (*Core).leaseIsOver, lost, (*Core).loseLease},
	{held, deleted, nil, windingDown, (*Core).windDown},
	{held, excluded | sessionEnd, nil, lost, (*Core).loseHold},
	{held, closes, (*Core).isLease, lost, (*Core).loseHold},
	{held, closes, nil, windingDown, (*Core).windDown},

	{lingering, wanted, (*Core).fitsCaller, held, (*Core).handOff},
	{lingering, wanted | timeOver | othersCame | revoke | deleted | closes, nil, leaving, (*Core).release},
	{lingering, sessionEnd, nil, gone, (*Core).settle},

	{windingDown, done, (*Core).mayLeaveAsSaid, leaving, (*Core).releaseAsSaid},
	{windingDown, done, nil, leaving, (*Core).releaseDone},
	{windingDown, timeOver | hurries, nil, leaving, (*Core).release},
	{windingDown, revoke, nil, windingDown, (*Core).dropKeep},
	{windingDown, sessionEnd, nil, lost, (*Core).loseRelease},

	{lost, done, nil, past, (*Core).settle},

	{leaving, again | laneFree | timeOver, nil, leaving, (*Core).release},
	{leaving, done, (*Core).waitsForHolder, leaving, (*Core).settle},
	{leaving, revoke, (*Core).holderIsDone, leaving, (*Core).dropKeep},
	{leaving, unanswered, nil, leaving, (*Core).retryRelease},
	{leaving, refused, nil, leaving, (*Core).releaseRefused},
	{leaving, unwaited, nil, leaving, (*Core).releaseToFirst},
	{leaving, unknown, nil, leaving, (*Core).doubtRelease},
	{leaving, keeps, (*Core).nobodyWants, kept, (*Core).keep},
	{leaving, keeps, nil, leaving, (*Core).releaseKept},
	{leaving, sessionEnd, (*Core).inUse, lost, (*Core).endUnreleased},
	{leaving, sessionEnd, nil, gone, (*Core).endUnreleased},

	{kept, done, nil, kept, (*Core).settle},
	{kept, revoke, (*Core).mayEndKeep, leaving, (*Core).releasePlainly},
	{kept, sessionEnd, (*Core).inUse, lost, nil},
	{kept, sessionEnd, nil, gone, nil},

	{windingDown | leaving, left, (*Core).inUse, lost, (*Core).leaveStore},
	{windingDown | leaving, left, nil, past, (*Core).leaveStore},
	{lost, timeOver, (*Core).unused, past, (*Core).leaveStore},
	{kept, timeOver, (*Core).inUse, lost, (*Core).leaveStore},
	{kept, timeOver, nil, past, (*Core).leaveStore},
})

// A table has the rows for each state.
type table struct {
	all  []row
	rows [len(stateNames)][]row
	next [len(stateNames)]state // the states to which rows lead from each state
}

func newTable(rows []row) *table {
	t := &table{all: rows}
	for i := range t.rows {
		from := state(1) << i
		for _, r := range rows {
			if !from.in(r.from) {
				continue
			}
			if r.next == stay {
				r.next = from
			}
			t.next[i] |= r.next
			t.rows[i] = append(t.rows[i], r)
		}
	}
	return t
}

// move makes the transition of the first row that fits. It is not called from another transition: what follows from a
// transition is passed to then.
func (c *Core) move(cl *claim, on trigger, x *args) {
	if c.moving {
		panic("core: a transition inside another: " + on.String())
	}
	rows := c.table.rows[cl.state.index()]
	for i := range rows {
		r := &rows[i]
		if r.on&on != 0 && (r.when == nil || r.when(c, cl, x)) {
			c.become(cl, r.next)
			if r.do != nil {
				c.moving = true
				r.do(c, cl, x)
				c.moving = false
			}
			return
		}
	}
}

// become gives the claim its next state. No other code writes a claim's state. It panics if no row leads there.
func (c *Core) become(cl *claim, next state) {
	from := cl.state
	if !next.in(c.table.next[from.index()]) {
		panic(fmt.Sprintf("core: no row leads from %v to %v", from, next))
	}
	if next == from {
		return
	}
	cl.state, cl.due = next, never // a timer ends with the state that has set it
	if from == lingering {
		cl.queue.lingering = 0
	}
	if from == waiting {
		cl.doubted = 0 // a request, or a grant, answers what a look would have shown
	}
	switch next {
	case leaving:
		cl.failed, cl.doubted = 0, 0
		if from != gone {
			c.listener.idle = c.now
		}
	case gone, past:
		delete(c.claims, cl.number)
	}
}

// A task is what follows from a transition: a trigger of a claim, a caller that requests a claim, or a queue that may
// admit callers. Exactly one of claim, call and queue is set.
type task struct {
	claim *claim
	on    trigger
	args  args
	call  *Call // the caller has been admitted to its queue
	queue *queue
}

// then makes the claim move after the transition under way. It is not inlined, and effects get a pointer to a task's
// args: copies of the args would enlarge stack frames that every waiting goroutine keeps.
//
//go:noinline
func (c *Core) then(cl *claim, on trigger, x args) {
	c.tasks = append(c.tasks, task{claim: cl, on: on, args: x})
}

// fire moves the claim, and does everything that follows from it.
func (c *Core) fire(cl *claim, on trigger, x args) {
	if len(c.tasks) > 0 {
		panic("core: fire while tasks wait: " + on.String())
	}
	c.args = x
	c.move(cl, on, &c.args)
	c.work()
}

// work does the tasks, in the order in which they came, until none is left. It panics if there are always more.
func (c *Core) work() {
	most := 0 // 0: not known yet
	for i := 0; i < len(c.tasks); i++ {
		switch {
		case i < maxRounds:
		case most == 0:
			most = c.mostTasks()
		case i > most:
			panic(neverDone)
		}
		switch t := &c.tasks[i]; {
		case t.claim != nil:
			c.move(t.claim, t.on, &t.args)
		case t.call != nil:
			c.request(c.queues[t.call.Key], t.call)
		default:
			c.next(t.queue)
		}
	}
	clear(c.tasks)
	c.tasks = c.tasks[:0]
}

// mostTasks returns far more tasks than can follow from those that there are. One transition can end every hold of a key
// and every wait for it, but each of them brings forth only a few tasks: its caller requests the key again, and the
// queue admits the next caller.
func (c *Core) mostTasks() int {
	most := len(c.tasks) + len(c.claims)
	for _, q := range c.queues {
		most += len(q.calls) + len(q.admitted)
	}
	return 10 * most
}
