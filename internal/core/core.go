package core

import (
	"maps"
	"slices"
	"time"

	"github.com/leasehold-go/leasehold/dsync/driver"
)

// A Core is one session. See [New].
type Core struct {
	cfg *Config
	now Instant // time of the current Step, or of the last one

	tickAt   Instant // when a Tick is due
	session  session
	listener listener
	sweeper  sweeper
	claims   map[uint64]*claim // by number
	past     []pastClaim       // claims that the store no longer has, in the order in which they left it
	queues   map[string]*queue // by key, for the keys that this process wants or holds
	others   map[string]other  // what is known about other sessions, by id
	sent     map[uint64]*sent  // commands under way; a *sent is never changed
	messages map[uint64]*message
	topics   map[topic]uint64 // number of the message about each topic
	timers   timers
	lanes    lanes
	discards discards
	looks    looks
	doubted  []uint64                              // numbers of the claims in doubt, and of some that no longer are
	closing  *closing                              // nil: Close was not called
	failure  error                                 // why the last command that callers waited for had no answer; nil if it had one
	last     struct{ claim, message, send uint64 } // the last numbers in use

	table    *table
	tasks    []task    // what follows from the last transition; empty between Steps
	args     args      // of a transition that is not a task
	moving   bool      // a transition is under way
	out      []Effect  // effects of the current Step
	delivers []Deliver // the Delivers in out; reused, so that a hand-off allocates nothing
	freeds   []Freed
}

// sent is a command under way.
type sent struct {
	*Command
	ask   *Ask    // nil: the Core itself has sent the command
	claim uint64  // number of the claim or message that the command belongs to, or 0
	poll  bool    // the command uses a lane for polls
	at    Instant // when it was sent
}

// New returns a Core. It has no effects before its first event.
func New(cfg *Config) *Core {
	return &Core{
		cfg: cfg, table: claimTable, claims: make(map[uint64]*claim), queues: make(map[string]*queue),
		others: make(map[string]other), sent: make(map[uint64]*sent),
		messages: make(map[uint64]*message), topics: make(map[topic]uint64),
		tickAt: never, session: session{due: never, registerAt: never}, listener: listener{at: never, keys: make(map[string]int)},
		sweeper: sweeper{due: never}, discards: discards{due: never},
	}
}

// maxRounds is far more rounds than a Step needs to do everything that is due. A timer that is never stopped would
// otherwise make Step run forever.
const maxRounds = 1000

const neverDone = "core: something stays due, whatever is done about it"

// Step handles an event that happens now and returns its effects, which are valid until the next Step. From one Step to
// the next, now must not go back.
func (c *Core) Step(now Instant, e Event) []Effect {
	c.now = now
	clear(c.out)
	c.out, c.delivers, c.freeds = c.out[:0], c.delivers[:0], c.freeds[:0]
	if c.tickAt <= now { // first: this may be the first Step after a freeze
		c.checkDeadline()
	}
	switch e := e.(type) {
	case *Call:
		c.acquire(e)
	case *Done:
		c.done(e)
	case *Reply:
		c.reply(e)
	case Noticed:
		if c.listener.is(e.Listener) {
			c.noticed(e.Notice)
		}
	case GiveUp:
		c.giveUp(e.Call)
		c.work()
	case WindDown:
		if cl := c.claims[e.Claim]; cl != nil && cl.call == e.Hold {
			c.fire(cl, resigned, args{cause: e.Cause})
		}
	case Progress:
		if cl := c.claims[e.Claim]; cl != nil && cl.call == e.Hold {
			c.fire(cl, progress, args{limit: e.Limit})
		}
	case ReleaseBy:
		if cl := c.claims[e.Claim]; cl != nil {
			c.leaveBy(cl, e.Release)
		}
	case Revoked:
		c.revoked(driver.Revocation{Key: e.Key, Claim: e.Claim})
	case Need:
		c.register()
	case Observe:
		c.observe(e.Key, e.N)
	case *Ask:
		c.ask(e)
	case PublishLater:
		c.publishLater(e)
	case Died:
		c.died(e.Session)
	case ListenerBroken:
		if c.listener.is(e.Listener) {
			c.listenerBroken(e.Unsupported)
		}
	case Close:
		c.close(e)
	case Hurry:
		c.hurry()
	}
	rounds := 0
	for c.tickAt = c.nextDue(); c.tickAt <= now; c.tickAt = c.nextDue() {
		if rounds++; rounds > maxRounds {
			panic(neverDone)
		}
		c.due()
	}
	if c.closing != nil {
		c.closeDue()
		c.tickAt = c.nextDue()
	}
	return c.out
}

func (c *Core) do(e Effect) { c.out = append(c.out, e) }

func (c *Core) give(d Deliver) {
	c.delivers = append(c.delivers, d)
	c.do(&c.delivers[len(c.delivers)-1])
}

// deny gives the caller an error instead of a hold. It is not inlined: the Deliver would double the stack frames of the
// functions that call deny, and every waiting goroutine keeps such frames.
//
//go:noinline
func (c *Core) deny(a *Call, err error) { c.give(Deliver{To: a, Err: err}) }

func (c *Core) free(f Freed) {
	c.freeds = append(c.freeds, f)
	c.do(&c.freeds[len(c.freeds)-1])
}

// Next returns when a Tick is due.
func (c *Core) Next() Instant { return c.tickAt }

func (c *Core) nextDue() Instant {
	next := min(c.session.registerAt, c.listener.at, c.sweeper.due, c.discards.due)
	if c.closing != nil {
		next = min(next, c.closing.due)
		if c.closing.retryAt > c.now { // otherwise closeDue acts at the end of each Step
			next = min(next, c.closing.retryAt)
		}
	}
	if s := &c.session; s.id != "" {
		next = min(next, c.Deadline())
		if s.heartbeat == 0 && !c.unregistering() {
			next = min(next, s.due)
		}
	}
	if len(c.timers) > 0 {
		next = min(next, c.timers[0].at)
	}
	return next
}

// due does everything that is due now, in a fixed order, so that the same events have the same effects.
func (c *Core) due() {
	if c.closing != nil {
		c.closeDue() // first: if Close's time is over, nothing else is left to do
	}
	c.sessionDue()
	c.timersDue()
	c.discardsDue()
	c.sweepDue()
	c.listenerDue() // last: what is due above may need the listener
}

// those(f) returns the claims for which f is true, ordered by number.
func (c *Core) those(f func(cl *claim) bool) []*claim {
	var some []*claim
	for _, cl := range c.claims {
		if f(cl) {
			some = append(some, cl)
		}
	}
	slices.SortFunc(some, byNumber)
	return some
}

func byNumber(a, b *claim) int {
	if a.number < b.number {
		return -1
	}
	return 1
}

func sortedKeys[V any](m map[string]V) []string { return slices.Sorted(maps.Keys(m)) }

// reply handles the answer to a command.
func (c *Core) reply(r *Reply) {
	s, ok := c.sent[r.Command]
	if !ok {
		return
	}
	delete(c.sent, r.Command)
	if r.Err == nil && (s.Op == Acquire || s.Op == Load) {
		c.seen(&r.State, s.at)
	}
	if s.ask != nil {
		c.asked(s, r)
	} else {
		c.answered(s, r)
	}
	if len(r.Notices) > 0 {
		c.notify(r.Notices)
	}
	c.leaveLane(s)
}

// answered handles the answer to a command that the Core itself has sent. Only such answers give Close more time, because
// callers may go on reading; and only such failures are shown to those who wait for a key, because the caller of a command
// gets its error anyway.
func (c *Core) answered(s *sent, r *Reply) {
	switch s.Op {
	case Heartbeat, Notify, Publish, Announce, Keys: // callers see failures only of commands that they wait for
	default:
		c.failure = nil
		if r.Lost {
			c.failure = r.Err
		}
	}
	if s.Op != Heartbeat && !r.Lost {
		c.storeAnswered()
	}
	cl := c.claims[s.claim] // the claim that waits for this reply, or nil
	if cl != nil && cl.command == r.Command {
		cl.command = 0
	} else {
		cl = nil
	}
	switch s.Op {
	case Register:
		c.registered(s, r)
	case Heartbeat:
		c.heartbeatAnswered(s, r)
	case Expire:
		c.expiryAnswered(s, r)
	case Read:
		c.readAnswered(s, r)
	case Unregister:
		c.unregistered(s, r)
	case Discard:
		c.discarded(s, r)
	case Sweep:
		c.swept(s, r)
	case Notify, Publish, Announce:
		c.messageAnswered(s, r)
	case Revoke:
		c.revokeAnswered(s, r)
	case Acquire:
		c.joinAnswered(cl, s, r)
	case Load:
		c.loaded(cl, r)
	case Keys:
		c.looked(s, r)
	case Release:
		c.releaseAnswered(cl, s, r)
	case Extend:
		c.extendAnswered(cl, s, r)
	}
}

// send sends a command as soon as a lane is free.
func (c *Core) send(cmd *Command, claim uint64) {
	if c.enterLane(false, delayed{cmd: cmd, claim: claim}) {
		c.sendNow(&sent{Command: cmd, claim: claim})
	}
}

// sendNow sends a command that has its lane or needs none.
func (c *Core) sendNow(s *sent) uint64 {
	c.last.send++
	s.at = c.now
	c.sent[c.last.send] = s
	c.do(&Send{c.last.send, s.Command, s.ask != nil})
	return c.last.send
}

// storeClock returns a lower bound of the store's clock: the time in the store's last reply plus the time since that
// reply.
func (c *Core) storeClock() time.Time { return c.clockAt(c.now) }

// clockAt is like storeClock, but for the given time instead of the time of the last Step.
func (c *Core) clockAt(now Instant) time.Time { return c.session.clock.Add(now.Sub(c.session.at)) }

func (c *Core) sawClock(now time.Time) { c.session.clock, c.session.at = now, c.now }

// An Instant is a time on a local clock that does not stop while the machine sleeps, counted from an arbitrary
// moment before the first event.
type Instant time.Duration

// Add returns i + d.
func (i Instant) Add(d time.Duration) Instant { return i + Instant(d) }

// Sub returns i − o.
func (i Instant) Sub(o Instant) time.Duration { return time.Duration(i - o) }

const never = Never

// Never is later than any other Instant.
const Never = Instant(1<<63 - 1)

// Jitter returns d ± a random amount of up to d/part. rand is a function like [Config].Rand.
func Jitter(d time.Duration, part int64, rand func(n int64) int64) time.Duration {
	return d - d/time.Duration(part) + time.Duration(rand(2*(int64(d)/part)+1))
}

func (c *Config) jitter(d time.Duration, part int64) time.Duration { return Jitter(d, part, c.Rand) }

// Pause returns how long to wait after the given number of consecutive failures. The pause doubles from first up to
// longest, and is jittered. rand is a function like [Config].Rand.
func Pause(first, longest time.Duration, failed int, rand func(n int64) int64) time.Duration {
	d := min(first<<min(failed, 20), longest)
	return d/2 + time.Duration(rand(int64(d/2)+1))
}

func (c *Config) pause(failed int) time.Duration { return Pause(c.Retry, c.Backoff, failed, c.Rand) }

// pause returns how long to wait before retrying a command that has failed this many times.
func (c *Core) pause(failed int) time.Duration {
	if c.closing != nil && c.closing.phase == hurried {
		return 0
	}
	return c.cfg.pause(failed)
}
