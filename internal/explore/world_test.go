package explore

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/leasehold-go/leasehold/dsync/driver"
	"github.com/leasehold-go/leasehold/internal/core"
	"github.com/leasehold-go/leasehold/internal/model"
	"github.com/leasehold-go/leasehold/internal/trace"
)

// A world has some sessions, a store, the messages between them, and a budget of faults that may still happen. It is a
// value: a step makes a new world.
type world struct {
	cfg     *core.Config
	deaf    bool // the store can't notify
	eager   bool // no time passes while a caller can still lock
	prompt  bool // nothing delays commands, answers or a process
	fifo    bool // no waiter goes ahead of others
	thrice  bool // a command may come three times
	keeps   bool // keys that are kept stay kept, because nobody revokes them and the store's clock does not step
	now     core.Instant
	store   store
	old     *deposed // nil: there is no deposed primary, or no command can reach it any more
	nodes   []node
	mail    []letter // see tidy
	tokens  map[string]tokens
	deleted bool // somebody has deleted a record
	ids     int  // number of ids given to sessions
	letters int  // number of letters sent and of calls made

	budget
}

// A budget limits how often each kind of fault and each rare action may still happen.
type budget struct {
	faults   int // requests, replies and notices that may still be lost, late or repeated
	refusals int // commands that the store may still refuse
	giveUps  int // callers that may still give up
	freezes  int // processes that may still freeze
	crashes  int // processes that may still crash
	cuts     int // processes that may still be cut off from the store for a while
	closes   int // sessions that may still close
	breaks   int // times that somebody may still revoke the key
	windDown int // holders that may still wind down
	progress int // reports of progress that may still be made; the first report of each hold is not counted
	steps    int // times that the store's clock may still step within the margin
	extends  int // leases that may still be extended
	slow     int // listeners that may still be slow to become ready, or break
	sweeps   int // times that the store may still be swept
	observes int // keys that processes may still begin to observe
	unlocks  int // Unlocks that may still be repeated, even after a later hold has begun

	failOvers int // times that the store may still fail over
	deposed   int // commands that a deposed primary may still execute
	deletes   int // records of keys that somebody may still delete
	expels    int // records of sessions that somebody may still delete
	publishes int // values that holders may still publish without waiting for them
}

// tokens has the greatest tokens delivered for a key: for exclusive holds, and for all holds.
type tokens struct{ exclusive, all int64 }

// A node is a session. It has a process of its own, unless the world's setting says otherwise.
type node struct {
	process    int // the node with whose process it crashes and freezes
	cfg        *core.Config
	core       *core.Core
	shared     bool // other worlds have the same core: before an event, step clones it
	frozen     bool
	dead       bool
	died       core.Instant // when it crashed
	deaths     []death      // what it has learned of crashes
	cut        bool
	healed     core.Instant // when it was last no longer cut off; 0: it never was cut off
	met        bool         // since the last fail-over, the new primary has answered one of its heartbeats or registrations; see world.old
	closing    bool
	hurried    bool
	closed     bool
	extended   core.Instant // when the last answered Extend was sent
	listener   listener
	callers    []caller
	holds      []hold
	done       *core.Done   // the last Done passed to the Core
	leases     []string     // claims of leases that were held when it closed or hurried; the store frees these leases only when they expire
	failures   []failure    // the commands that have failed and may be sent again: see pausesRight
	unread     int          // number of readings that have failed
	orphans    bool         // it has released a claim that it did not know
	unfreed    bool         // its Close has returned an error because it could not release everything
	requests   []request    // the claims that the store may have, as far as its process can know
	listed     string       // the session that the store may list, as far as its process can know; "": none, but see unsure
	unsure     bool         // a registration since the last session has had no answer
	observed   []string     // the keys that it observes
	registers  string       // the id of its last registration if it does not know of any answer; "": it knows
	registered core.Instant // when it was sent
	closeBy    core.Instant // when its Close must have returned, unless the store answers; 0: it has not closed
	idle       int          // the last Ticks that had no effect
	recorder   *trace.Recorder
}

type listener struct {
	number      uint64 // 0: none
	session     string
	ready, late bool
}

// A death is a crash that a node has learned of.
type death struct {
	node int
	at   core.Instant
}

// A caller locks and unlocks a key a number of times.
type caller struct {
	want    core.Want
	leave   driver.Release // how it unlocks
	passes  bool           // it calls ReleaseBy, some time before it unlocks or at that moment: with leave.Keep, or if that is 0, with the last waiter as the successor
	insists bool           // a try that fails is repeated
	stays   bool           // it does not unlock until Lost closes
	never   bool           // it does not unlock even after that
	limit   time.Duration  // time within which it must report progress; 0: no limit
	rounds  int            // how often it still has to lock and unlock
	call    *core.Call
	hold    *core.Call   // the call whose hold it has or shares
	after   core.Instant // when it may lock again
	breaks  []string     // of a call of Break: the claims of the holds that it must end, and their graces
	ahead   []string     // of a call of Break: the claims that held the key at one of the process's readings since the call
	free    core.Instant // of a call of Break: when time began to pass although none of them held the key any more; 0: not yet
}

// forceful reports whether the caller asks holders to give up the key.
func (o *caller) forceful() bool { return o.want.First || o.want.Weight == 0 }

// A hold is a delivered hold that is not yet both done and freed.
type hold struct {
	call  *core.Call
	claim uint64
	id    string
	token int64
	users int          // users that are not done
	since core.Instant // when it was delivered
	ended core.Instant // when Lost closed; 0: it has not
	over  core.Instant // for a lease: when Lost closes by itself; 0: not a lease
	kept  core.Instant // after it is done: the time until which the store keeps its claim
	seals int64        // the tick that it seals; 0: none
	freed bool
	asked bool // its process knows that the hold was revoked

	wanted core.Instant // when the store recorded that it was revoked; 0: it has not

	stalls core.Instant // when Lost closes unless the holder reports progress earlier; 0: it has no limit

	deleted core.Instant // when somebody deleted the key's record; 0: nobody has
	missed  core.Instant // when an Extend first found that; 0: none has

	said core.Instant // when its holder, before unlocking, asked to keep the key; 0: never

	named     bool   // its holder has named a successor
	successor string // the claim that it named; "": none, or one that need not be granted the key
	passed    bool   // the command that released the hold granted the key to the successor
}

// A letter is a command on its way, its reply, or a notice.
type letter struct {
	number int
	node   int // sender of the command, or recipient of the notice

	command  *core.Send // nil: a notice
	notice   driver.Notice
	listener uint64 // number of the listener that the notice is for

	sent     core.Instant
	answered bool        // its sender has received a reply, or no longer waits for a reply
	executed bool        // it was executed or lost; at most its reply can still arrive
	reply    *core.Reply // on its way to the sender
	late     bool        // time may pass before it arrives
	copies   int         // how often it will arrive again after it was executed
	met      bool        // node.met when it was sent
	anew     bool        // the new primary has executed it; see world.old
}

// configWith returns the settings of a world's Cores, after change has changed them.
func configWith(change func(c *core.Config)) *core.Config {
	c := &core.Config{
		TTL: 12 * time.Second, Margin: time.Second, Grace: time.Second, LeastMargin: time.Second, LeastGrace: time.Second, Heartbeat: 4 * time.Second,
		Attempt: 2 * time.Second, Poll: 8 * time.Second, HandOff: time.Second, Retention: -1,
		Retry: 4 * time.Second, Backoff: 4 * time.Second, Lanes: 32, PollLanes: 8,
		Rand: func(n int64) int64 { return n / 2 }, // so that all times except deadlines are whole seconds
	}
	if change != nil {
		change(c)
	}
	return c
}

func (w *world) clone() *world {
	n := *w
	n.store = w.store.clone()
	n.nodes = slices.Clone(w.nodes)
	for i := range n.nodes {
		w.nodes[i].shared, n.nodes[i].shared = true, true
		n.nodes[i].callers = slices.Clone(w.nodes[i].callers)
		n.nodes[i].holds = slices.Clone(w.nodes[i].holds)
		n.nodes[i].requests, n.nodes[i].failures = slices.Clone(w.nodes[i].requests), slices.Clone(w.nodes[i].failures)
	}
	n.mail = slices.Clone(w.mail)
	n.tokens = maps.Clone(w.tokens)
	return &n
}

// tidy sorts the letters by node, so that worlds that differ only in which node sent first are equal. tidy also forgets
// finished holds.
func (w *world) tidy() {
	if w.old != nil && w.deposedIsOver() {
		w.forgetDeposed()
	}
	slices.SortStableFunc(w.mail, func(a, b letter) int {
		if a.node != b.node {
			return a.node - b.node
		}
		if (a.command == nil) != (b.command == nil) {
			if a.command == nil {
				return 1
			}
			return -1
		}
		return a.number - b.number
	})
	for i := range w.nodes {
		n := &w.nodes[i]
		n.holds = slices.DeleteFunc(n.holds, func(h hold) bool { return h.users == 0 && h.freed && h.kept <= w.now })
	}
}

// step passes an event to a node, and carries out its effects.
func (w *world) step(i int, e core.Event) error {
	n := &w.nodes[i]
	deadline, session := core.Instant(1<<62), n.core.Session()
	if session != "" {
		deadline = n.core.Deadline()
	}
	var looks []*core.Reply
	overdue := w.now >= deadline
	for _, claim := range revokedBy(e) {
		for h := range n.holds {
			n.holds[h].asked = n.holds[h].asked || n.holds[h].id == claim
		}
	}
	switch e := e.(type) {
	case core.Close:
		n.closeBy = w.now.Add(w.cfg.Grace + w.cfg.Attempt)
	case core.Hurry:
		n.closeBy = w.now.Add(w.cfg.Attempt)
	case *core.Reply:
		if n.closing && !n.hurried && !e.Lost {
			n.closeBy = max(n.closeBy, w.now.Add(w.cfg.Attempt))
		}
	}
	if n.shared {
		n.core, n.shared = n.core.Clone(), false
	}
	effects := slices.Clone(n.core.Step(w.now, e))
	if err := n.maySleep(w.now, e, len(effects) > 0); err != nil {
		return fmt.Errorf("%s: %w", name(i), err)
	}
	if n.recorder != nil {
		n.recorder.Step(w.now, e, effects, n.core.Next())
	}
	for _, f := range effects {
		switch f := f.(type) {
		case *core.Send:
			cmd := *f.Command
			f = &core.Send{ID: f.ID, Command: &cmd}
			if err := w.mayStillSend(i, f, session); err != nil {
				return err
			}
			if f.Op == core.Keys && (w.old == nil || n.met) { // answer it at once: a late Keys command would find the same as the next Keys command
				r := w.store.execute(f.Command, w.cfg.TTL, w.now)
				if r.Command = f.ID; n.cut {
					r.Lost, r.Err = true, errTimeout
				}
				looks = append(looks, &r)
				continue
			}
			if j := f.Edit.Acquire; j != nil {
				n.requested(w.now, j.Claim)
			}
			if v := f.Edit.Release; v != nil {
				n.requested(w.now, v.Claim)
			}
			if f.Op == core.Extend {
				n.request(claimOf(&cmd).ID).lease = true
			}
			if err := n.pausesRight(w.now, e, &cmd); err != nil {
				return fmt.Errorf("%s: %w", name(i), err)
			}
			if f.Op == core.Register {
				w.ids++
				f.Session = fmt.Sprint(name(i), w.ids) // see owner
				n.registers, n.registered = f.Session, w.now
			}
			w.letters++
			w.mail = append(w.mail, letter{number: w.letters, node: i, command: f, sent: w.now, executed: n.cut, met: n.met})
		case core.Orphan:
			n.failures = slices.DeleteFunc(n.failures, func(o failure) bool { return o.id == f.Claim })
			n.orphans = true
			n.requested(w.now, driver.Claim{ID: f.Claim, Key: f.Key})
			n.request(f.Claim).missed = false // it has joined since
		case core.SessionLost:
			if _, begins := e.(core.Close); !n.closing || begins && overdue { // otherwise Close reports what it leaves behind
				n.sessionEnded(f.Session)
			}
		case core.Registered:
			if f.Session != "" {
				n.listed, n.unsure = f.Session, false
			}
			if f.Session == n.registers { // the answer may have come so late that the session is lost already
				n.registers = ""
			}
		case *core.Deliver:
			if err := w.deliver(i, f); err != nil {
				return err
			}
		case *core.End:
			h := n.hold(f.Hold)
			done, _ := e.(*core.Done) // if e is a Done, the deadline came before it
			if h == nil || h.ended != 0 || h.users == 0 && (done == nil || done.Hold != f.Hold) || h.freed {
				return fmt.Errorf("%s ends the hold of call %d, which has already ended or is done: %+v", name(i), f.Hold.Call, h)
			}
			if errors.Is(f.Cause, core.ErrLeaseOver) && w.now < h.over {
				return fmt.Errorf("%s ends the lease of call %d %v before its end: %+v", name(i), f.Hold.Call, h.over.Sub(w.now), h)
			}
			if h.over != 0 {
				deadline = h.over
			}
			if errors.Is(f.Cause, core.ErrStalled) && (h.stalls == 0 || w.now < h.stalls) {
				return fmt.Errorf("%s ends the hold of call %d before the limit for progress is over: %+v", name(i), f.Hold.Call, h)
			}
			if errors.Is(f.Cause, core.ErrRecordDeleted) && h.deleted == 0 && h.watchedBy(session) {
				return fmt.Errorf("%s ends the hold of call %d although nobody has deleted the key's record: %w", name(i), f.Hold.Call, f.Cause)
			}
			if ended := errors.Is(f.Cause, core.ErrNotRenewed) || errors.Is(f.Cause, driver.ErrSessionExpired); ended && h.over != 0 && h.deleted == 0 && w.store.log.Term <= 1 {
				return fmt.Errorf("%s ends the lease of call %d with its session, although nobody has deleted the key's record: %w", name(i), f.Hold.Call, f.Cause)
			}
			h.ended = min(w.now, deadline) // w.now is past the deadline only after a freeze
			if h.over != 0 && errors.Is(f.Cause, core.ErrClosed) {
				n.leases = append(slices.Clip(n.leases), h.id)
			}
			if r := n.request(h.id); r != nil && h.over != 0 && (errors.Is(f.Cause, core.ErrClosed) || errors.Is(f.Cause, core.ErrLeaseOver)) {
				r.answered = true // until a release is sent
			}
			h.kept, h.seals = 0, 0
		case *core.Freed:
			h := n.hold(f.Hold)
			switch {
			case h == nil || h.freed:
				return fmt.Errorf("%s frees the hold of call %d twice", name(i), f.Hold.Call)
			case h.users > 0 && h.ended == 0, h.users > 0 && !h.call.Auto && h.call.Lease == 0:
				return fmt.Errorf("%s frees the hold of call %d, which is not done", name(i), f.Hold.Call)
			case h.seals > 0 && f.Err == nil && !w.store.sealedBy(h):
				return fmt.Errorf("%s frees the hold of call %d, which has not sealed the key", name(i), f.Hold.Call)
			case h.successor != "" && (f.Passed == nil && !h.passed || errors.Is(f.Passed, driver.ErrNotWaiting) && h.passed):
				return fmt.Errorf("%s reports %v for the successor of call %d, but the successor was granted the key: %v", name(i), f.Passed, f.Hold.Call, h.passed)
			case errors.Is(f.Err, core.ErrNotReleased) && n.request(h.id) == nil:
				return fmt.Errorf("%s frees the hold of call %d with %w, but the store has answered that it has released it", name(i), f.Hold.Call, f.Err)
			}
			h.freed = true
			if f.Err != nil {
				h.kept = 0
			}
		case *core.Listen:
			n.listener = listener{number: f.Number, session: f.Session}
		case core.StopListening:
			n.listener = listener{}
		case core.Closed:
			if n.closed {
				return fmt.Errorf("%s has closed twice", name(i))
			}
			n.closed = true
			if errors.As(f.Err, new(*core.NotReleasedError)) {
				n.unfreed = true
			}
			if err := w.closeSays(i, f.Err); err != nil {
				return err
			}
		}
	}
	if err := n.changesHeard(e, effects); err != nil {
		return fmt.Errorf("%s: %w", name(i), err)
	}
	if n.closing && !n.closed && w.now > n.closeBy {
		return fmt.Errorf("the Close of %s has not returned, although the store has not answered within an attempt's time", name(i))
	}
	for _, h := range n.holds {
		if h.stalls != 0 && h.stalls <= w.now && h.ended == 0 && h.users > 0 {
			return fmt.Errorf("%s has not ended the hold of call %d, whose limit for progress is over: %+v", name(i), h.call.Call, h)
		}
		if h.over != 0 && h.over <= w.now && h.ended == 0 && h.users > 0 {
			return fmt.Errorf("%s has not ended the lease of call %d, which is over: %+v", name(i), h.call.Call, h)
		}
		if h.deleted != 0 && h.watchedBy(n.core.Session()) && h.ended == 0 && h.users > 0 && !n.cut && w.now > n.findsOutBy(w.cfg, &h) {
			return fmt.Errorf("%s has not ended the hold of call %d, although somebody deleted the key's record at %v: %+v", name(i), h.call.Call, h.deleted, h)
		}
	}
	for _, r := range looks {
		if err := w.step(i, r); err != nil {
			return err
		}
	}
	return nil
}

// maySleep checks after a step that no Tick is due already, and that the last Ticks were not all in vain. Otherwise the
// exploration would not end.
func (n *node) maySleep(now core.Instant, e core.Event, effects bool) error {
	if n.core.Next() <= now {
		return fmt.Errorf("after a step at %v, a Tick is due already, at %v", now, n.core.Next())
	}
	if _, ticks := e.(core.Tick); !ticks || effects {
		n.idle = 0
		return nil
	}
	if n.idle++; n.idle > 100 {
		return fmt.Errorf("%d Ticks in a row have had no effect, and the next is due at %v", n.idle, n.core.Next())
	}
	return nil
}

// changesHeard checks that observers read their keys once the listener is ready, because they may have missed a change.
func (n *node) changesHeard(e core.Event, effects []core.Effect) error {
	if e, notices := e.(core.Noticed); !notices || e.Notice.Type != driver.NoticeReady {
		return nil
	}
	for _, key := range n.observed {
		if !slices.Contains(effects, core.Effect(core.Changed{Key: key})) {
			return fmt.Errorf("the listener is ready, but the observers of %s are not told that they may have missed a change", key)
		}
	}
	return nil
}

// revokedBy returns the claims that an event revokes.
func revokedBy(e core.Event) (claims []string) {
	switch e := e.(type) {
	case core.Revoked:
		return []string{e.Claim}
	case core.Noticed:
		if e.Notice.Type == driver.NoticeRevoke {
			return []string{e.Notice.Claim}
		}
	case *core.Reply:
		for _, r := range e.Revoked {
			claims = append(claims, r.Claim)
		}
	}
	return claims
}

// mayStillSend checks a command that a process sends. It must have a lane for the command. After a session is lost, only its commands about leases may be
// sent. A lost hold must not seal its key, nor extend its lease. A revoked key may be kept only for the grace and two margins. An Expire may
// have Died set only if the session's process died at least a margin ago. A request may name only sessions that have
// expired. session is the id of the process's session before the step.
func (w *world) mayStillSend(i int, s *core.Send, session string) error {
	busy, polls := 0, 0
	count := func(c *core.Send) {
		if c.Op != core.Heartbeat && c.Op != core.Register && c.Op != core.Unregister {
			busy++
			if c.Edit.Acquire != nil && c.Edit.Acquire.Repeated {
				polls++
			}
		}
	}
	count(s)
	for m := range w.mail {
		if l := &w.mail[m]; l.node == i && l.command != nil && !l.answered {
			count(l.command)
		}
	}
	if !w.nodes[i].hurried && (busy > w.cfg.Lanes || polls > w.cfg.PollLanes) {
		return fmt.Errorf("%s sends %v, so that %d commands are under way, %d of them polls", name(i), s.Op, busy, polls)
	}
	switch s.Op {
	case core.Acquire, core.Release, core.Extend, core.Heartbeat, core.Unregister:
		if s.Session != session && s.Session != w.nodes[i].core.Session() && claimOf(s.Command).Lease == 0 {
			return fmt.Errorf("%s sends %v for session %s, which was lost", name(i), s.Op, s.Session)
		}
	}
	if s.Op == core.Expire && s.Died && !slices.ContainsFunc(w.nodes, func(n node) bool {
		return n.dead && n.core.Session() == s.Session && w.now.Sub(n.died) >= max(w.cfg.Margin, n.cfg.Margin)
	}) {
		return fmt.Errorf("%s expires session %s with Died set, but its process is alive or has only just died", name(i), s.Session)
	}
	if j := s.Edit.Acquire; j != nil {
		for _, id := range j.Expired {
			if r, known := w.store.sessions[id]; known && !r.expired {
				return fmt.Errorf("%s requests the key and names session %s as expired, which it is not", name(i), id)
			}
		}
	}
	if x := s.Edit.Extend; x != nil && slices.ContainsFunc(w.nodes[i].holds, func(h hold) bool { return h.id == x.Claim.ID && h.ended != 0 }) {
		return fmt.Errorf("%s extends the lease of claim %s, whose hold has ended", name(i), x.Claim.ID)
	}
	if v := s.Edit.Release; v != nil && v.Seal > 0 && slices.ContainsFunc(w.nodes[i].holds, func(h hold) bool { return h.id == v.Claim.ID && h.ended != 0 }) {
		return fmt.Errorf("%s seals with claim %s, whose hold was lost", name(i), v.Claim.ID)
	}
	if v := s.Edit.Release; v != nil && v.Keep > w.cfg.Grace+2*w.cfg.Margin && slices.ContainsFunc(w.nodes[i].holds, func(h hold) bool { return h.id == v.Claim.ID && h.asked }) {
		return fmt.Errorf("%s keeps claim %s for %v, though it knows that the key was revoked", name(i), v.Claim.ID, v.Keep)
	}
	return nil
}

func (n *node) hold(a *core.Call) *hold {
	for i := range n.holds {
		if n.holds[i].call == a {
			return &n.holds[i]
		}
	}
	return nil
}

// overtaken returns an earlier call that waits for the same key and should have been served before the call a, or nil.
// A try, a Break or a call with First need not wait for its turn, a reader may share a hold while another reader requests one,
// and calls for different ticks have an order of their own.
func (n *node) overtaken(a *core.Call) *core.Call {
	if a.Try || a.First {
		return nil
	}
	for _, o := range n.callers {
		if w := o.call; w != nil && w.Call < a.Call && w.Key == a.Key && w.Tick == a.Tick && w.Weight > 0 && !w.Try && !(w.Shares && a.Shares) {
			return w
		}
	}
	return nil
}

// deliver gives a hold or an error to the caller that d names, and checks that this is allowed.
func (w *world) deliver(i int, d *core.Deliver) error {
	n := &w.nodes[i]
	c := slices.IndexFunc(n.callers, func(o caller) bool { return o.call == d.To })
	if c < 0 {
		return fmt.Errorf("%s delivers to call %d, which does not wait", name(i), d.To.Call)
	}
	o, a := &n.callers[c], d.To
	o.call = nil
	if d.Err != nil {
		if o.insists && errors.Is(d.Err, driver.ErrHeld) {
			o.after = w.now.Add(2 * time.Second)
		} else {
			o.rounds = max(0, o.rounds-1)
		}
		switch {
		case errors.As(d.Err, new(*core.SealedError)):
			if k := w.store.keys[a.Key]; !k.Over(a.Tick) {
				return fmt.Errorf("%s tells call %d that its tick is over, but the last tick that succeeded is %d", name(i), a.Call, k.Sealed)
			}
		case errors.Is(d.Err, core.ErrFree) && a.Weight == 0:
			return w.broken(i, o)
		case errors.Is(d.Err, core.ErrGivenUp), a.Try, errors.Is(d.Err, driver.ErrMismatch):
		case errors.Is(d.Err, driver.ErrRefused):
		case errors.Is(d.Err, core.ErrClosed) && n.closing:
		default:
			return fmt.Errorf("%s delivers the error %w to call %d", name(i), d.Err, a.Call)
		}
		return nil
	}
	o.hold = d.Hold
	if earlier := n.overtaken(a); earlier != nil {
		return fmt.Errorf("%s serves call %d before call %d", name(i), a.Call, earlier.Call)
	}
	if d.Local && a.Kind == driver.KindSemaphore {
		return fmt.Errorf("%s hands off a semaphore to call %d", name(i), a.Call)
	}
	t := w.tokens[a.Key]
	if d.Hold != a { // the caller shares a hold
		h := n.hold(d.Hold)
		if h == nil || h.users == 0 || h.ended != 0 || h.token != d.Token || !a.Shares || !h.call.Shares {
			return fmt.Errorf("%s makes call %d share a hold that can't be shared: %+v", name(i), a.Call, h)
		}
		h.users++
		return nil
	}
	sum, here := a.Weight, a.Weight
	other := ""
	for j := range w.nodes {
		for k := range w.nodes[j].holds {
			h := &w.nodes[j].holds[k]
			if h.call.Key != a.Key {
				continue
			}
			if w.protected(j, h) {
				sum += h.call.Weight
				other = fmt.Sprintf("the hold of call %d of %s is not over", h.call.Call, name(j))
			}
			if i == j && h.users > 0 && !h.freed && a.Kind != driver.KindSemaphore {
				here += h.call.Weight
			}
			if !a.Shares && h.token == d.Token {
				return fmt.Errorf("%s delivers token %d to call %d, but a hold of %s already has that token", name(i), d.Token, a.Call, name(j))
			}
		}
	}
	exclusive := a.Weight == a.Limit
	key := w.store.keys[a.Key]
	_, holds := key.Holder(d.Request.ID)
	deleted := w.deleted && !holds // the record was deleted after the grant
	switch {
	case key.Over(a.Tick):
		return fmt.Errorf("%s delivers to call %d, whose tick is over", name(i), a.Call)
	case deleted:
	case sum > a.Limit:
		return fmt.Errorf("too many holders: %s delivers to call %d, but %s", name(i), a.Call, other)
	case here > a.Limit:
		return fmt.Errorf("%s delivers to call %d although another holder in the same process is not done", name(i), a.Call)
	case exclusive && d.Token <= t.all, d.Token <= t.exclusive:
		return fmt.Errorf("token %d is not greater than earlier tokens, %+v", d.Token, t)
	}
	if t.all = max(t.all, d.Token); exclusive {
		t.exclusive = d.Token
	}
	w.tokens[a.Key] = t
	if r := n.request(d.Request.ID); r != nil {
		r.delivered = true
	}
	h := hold{call: a, claim: d.Claim, id: d.Request.ID, token: d.Token, users: 1, since: w.now}
	if a.Lease > 0 {
		h.over = n.extended.Add(lasts(w.cfg, a.Lease))
	}
	if deleted {
		h.deleted = w.now
	}
	n.holds = append(n.holds, h)
	return nil
}

// protectedClaims returns the claims of the key's protected holds.
func (w *world) protectedClaims(key string) (claims []string) {
	for i := range w.nodes {
		for k := range w.nodes[i].holds {
			if h := &w.nodes[i].holds[k]; h.call.Key == key && w.protected(i, h) {
				claims = append(claims, h.id)
			}
		}
	}
	return claims
}

// broken checks that the holds that a successful call of Break had to end are over, and so are their graces.
func (w *world) broken(i int, o *caller) error {
	for _, claim := range w.protectedClaims(o.want.Key) {
		if slices.Contains(o.breaks, claim) {
			return fmt.Errorf("the Break of %s returns, but the hold of claim %s is not over", name(i), claim)
		}
	}
	return nil
}

// read records that the store shows a process who holds the key. The calls of Break in the process wait for these holders,
// unless it was not their first reading.
func (w *world) read(i int, key string) {
	for c := range w.nodes[i].callers {
		if o := &w.nodes[i].callers[c]; o.call != nil && o.want.Weight == 0 && o.want.Key == key {
			o.ahead = slices.Clip(o.ahead)
			for _, h := range w.store.keys[key].Holders {
				o.ahead = append(o.ahead, h.Claim)
			}
		}
	}
}

// protected reports whether nobody else may hold what h holds. That is so if h's Lost is open or was closed less than
// the grace ago, or if h is done and the store must keep its claim. A crashed process's hold is not protected, nor is a
// hold whose record somebody has deleted. If a process is frozen past the deadline of its hold, the hold is not
// protected: the process can't be notified. But when the process resumes, it learns of the loss before it does anything
// else.
func (w *world) protected(i int, h *hold) bool {
	n := &w.nodes[i]
	switch {
	case h.users == 0:
		return h.kept > w.now
	case n.dead, h.deleted != 0:
		return false
	case h.ended != 0:
		return w.now < w.graceEnds(h)
	case n.frozen && h.over != 0:
		return w.now < h.over
	case n.frozen:
		return w.now < n.core.Deadline()
	}
	return true
}

// mayChange checks how a command has changed a key. A Release must not move the end of a hold to a later time, nor an
// Extend to an earlier time. The same claim with another token is a new hold. The last tick that succeeded may only
// grow, and its result must not change. A seal may remove only waiters whose tick is over.
func (w *world) mayChange(c *core.Command, before model.Record) error {
	after := w.store.keys[claimOf(c).Key]
	if after.Sealed < before.Sealed || after.Sealed == before.Sealed && string(before.Result) != string(after.Result) {
		return fmt.Errorf("the key was sealed up to tick %d with %q, and is now sealed up to tick %d with %q", before.Sealed, before.Result, after.Sealed, after.Result)
	}
	if c.Edit.Release != nil && c.Edit.Acquire == nil {
		for _, q := range before.Queue {
			if _, holds := after.Holder(q.Claim); !holds && after.Position(q.Claim) == 0 && q.Claim != c.Edit.Release.Claim.ID && !after.Over(q.Tick) {
				return fmt.Errorf("claim %s is no longer in the queue for tick %d, but the last sealed tick is %d", q.Claim, q.Tick, after.Sealed)
			}
		}
	}
	if err := inOrder(c, before, after); err != nil {
		return err
	}
	for _, h := range before.Holders {
		now, holds := after.Holder(h.Claim)
		if !holds || h.Until.IsZero() {
			continue
		}
		if now.Token != h.Token { // a copy of the request has made the claim join again, so this is another hold
			if w.store.now(w.now).Before(h.Until) {
				return fmt.Errorf("claim %s was dropped before its end at %v", h.Claim, h.Until)
			}
			continue
		}
		if later := now.Until.Compare(h.Until); later > 0 && c.Op == core.Release || later < 0 && c.Op != core.Release {
			return fmt.Errorf("the end of claim %s has moved to %v, from %v", h.Claim, now.Until, h.Until)
		}
	}
	return nil
}

// inOrder checks how a command has changed a key's queue. Waiters must be granted the key in the order of the queue, and
// keep that order, except for a successor that a Release names. A claim must join at the end, but ahead of all claims
// for later ticks, such as candidates that are less preferred, or at the head with First.
func inOrder(c *core.Command, before, after model.Record) error {
	last := 0 // the position of the last waiter that was in the queue before
	for _, q := range before.Queue {
		n := after.Position(q.Claim)
		_, holds := after.Holder(q.Claim)
		switch {
		case c.Edit.Release != nil && c.Edit.Release.Successor == q.Claim:
		case holds && last > 0:
			return fmt.Errorf("claim %s was granted for tick %d, although claim %s was ahead of it", q.Claim, q.Tick, after.Queue[last-1].Claim)
		case n > 0 && n < last:
			return fmt.Errorf("claim %s has moved ahead of claim %s", q.Claim, after.Queue[last-1].Claim)
		case n > 0:
			last = n
		}
	}
	j := c.Edit.Acquire
	if j == nil || before.Position(j.Claim.ID) > 0 {
		return nil
	}
	n := after.Position(j.Claim.ID) - 1
	for i, q := range after.Queue {
		later := j.Claim.First || j.Claim.Tick > 0 && q.Tick > j.Claim.Tick
		if n >= 0 && i != n && later != (i > n) {
			return fmt.Errorf("claim %s joins at position %d for tick %d, and claim %s waits at position %d for tick %d", j.Claim.ID, n+1, j.Claim.Tick, q.Claim, i+1, q.Tick)
		}
	}
	return nil
}

// stillHeld checks that the store still has the claim of every protected hold.
func (w *world) stillHeld() error {
	for i := range w.nodes {
		for k := range w.nodes[i].holds {
			h := &w.nodes[i].holds[k]
			if h.users == 0 || !w.protected(i, h) {
				continue
			}
			r := w.store.keys[h.call.Key]
			if _, holds := r.Holder(h.id); !holds {
				return fmt.Errorf("the store drops a hold that is not over: call %d of %s", h.call.Call, name(i))
			}
		}
	}
	return nil
}

// sealedBy reports whether the hold has sealed its key, or may have done so before a later tick was sealed.
func (s *store) sealedBy(h *hold) bool {
	k := s.keys[h.call.Key]
	return k.Sealed > h.seals || k.Sealed == h.seals && string(k.Result) == h.id
}

func name(i int) string { return "ABCDEFGH"[i : i+1] }

// An action is one possible next step of a world.
type action struct {
	what, who string // the action's name, with %s for who
	rare      bool   // random walks take the action less often than others
	do        func(w *world) error
}

func (a *action) String() string { return strings.Replace(a.what, "%s", a.who, 1) }

func (a *action) is(b *action) bool { return a.what == b.what && a.who == b.who }

// on takes the action in w. A panic is an error, so that a failure lists the steps that led to it.
func (a *action) on(w *world) (err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("%s: panic: %v", a, p)
		}
	}()
	err = a.do(w)
	w.tidy()
	return err
}

// A list collects actions.
type list []action

func (l *list) add(what, who string, do func(w *world) error) {
	*l = append(*l, action{what, who, false, do})
}

// rarely adds an action that random walks take less often than others. If holders always unlocked at once and cuts
// always healed at once, no session would ever expire.
func (l *list) rarely(what, who string, do func(w *world) error) {
	*l = append(*l, action{what, who, true, do})
}

// actions returns every step that can happen next. If fair is true, the network and the scheduler cause no faults:
// actions returns only the steps of the first letter or process that has any. It lets time pass only if no letter or
// process has a step. The result uses the memory of the argument all.
func (w *world) actions(fair bool, all list) list {
	all = all[:0]
	for m := range w.mail {
		if fair && len(all) > 0 {
			return all
		}
		w.letterActions(m, &w.mail[m], fair, &all)
	}
	for i := range w.nodes {
		if fair && len(all) > 0 {
			return all
		}
		if !w.nodes[i].dead {
			w.nodeActions(i, fair, &all)
		}
	}
	if !fair && w.breaks > 0 {
		w.breakActions(&all)
	}
	if !fair && w.steps > 0 {
		d := -w.leastMargin() * 9 / 10
		if w.store.skew < 0 {
			d = -w.store.skew
		}
		all.rarely("the store's clock steps by %s", d.String(), func(w *world) error { w.steps--; w.store.skew += d; return nil })
	}
	if !fair && w.failOvers > 0 {
		all.add("the store fails over", "", func(w *world) error { w.failOvers--; return w.failOver() })
	}
	if !fair && w.deletes > 0 {
		for _, key := range slices.Sorted(maps.Keys(w.store.keys)) {
			if w.store.keys[key].Token >= w.store.now(w.now).UnixMilli()*driver.TokenStep {
				continue // too soon after the last grant: the next grant would have the same token
			}
			all.add("somebody deletes the record of %s", key, func(w *world) error { w.deletes--; w.delete(key); return nil })
		}
	}
	if !fair && w.expels > 0 {
		for i := range w.nodes {
			if _, known := w.store.sessions[w.nodes[i].core.Session()]; known {
				all.add("somebody deletes the record of the session of %s", name(i), func(w *world) error { w.expels--; w.expel(i); return nil })
			}
		}
	}
	if !fair && w.sweeps > 0 {
		all.add("the store is swept", "", func(w *world) error { w.sweeps--; w.store.sweep(w.now); return nil })
	}
	if fair && len(all) > 0 {
		return all
	}
	if next, ok := w.nextTime(); ok {
		all.add("%s pass", next.Sub(w.now).String(), func(w *world) error {
			if err := w.inTime(next); err != nil {
				return err
			}
			w.now = next
			return nil
		})
	}
	return all
}

// leastMargin returns the shortest margin of the session and of the leases.
func (w *world) leastMargin() time.Duration {
	least := w.cfg.Margin
	for i := range w.nodes {
		for _, o := range w.nodes[i].callers {
			if d := o.want.Lease; d > 0 {
				least = min(least, marginOf(w.cfg, d))
			}
		}
	}
	return least
}

// nodeActions adds what can happen in a process.
func (w *world) nodeActions(i int, fair bool, all *list) {
	n := &w.nodes[i]
	if n.frozen {
		thaw := func(w *world) {
			for _, j := range w.processOf(i) {
				w.nodes[j].frozen = false
				for f := range w.nodes[j].failures {
					w.nodes[j].failures[f].at = 0
				}
			}
		}
		all.rarely("%s goes on after a freeze", name(i), func(w *world) error {
			thaw(w)
			for _, j := range w.processOf(i) {
				if err := w.step(j, core.Tick{}); err != nil {
					return err
				}
			}
			return nil
		})
		for c := range n.callers {
			if o := &n.callers[c]; o.hold != nil && !w.staying(i, o) && !o.passes && !fair {
				all.rarely("%s goes on after a freeze, and first unlocks", name(i), func(w *world) error {
					thaw(w)
					if err := w.unlock(i, c); err != nil {
						return err
					}
					for _, j := range w.processOf(i) {
						if err := w.step(j, core.Tick{}); err != nil {
							return err
						}
					}
					return nil
				})
			}
		}
		return
	}
	if n.core.Next() <= w.now {
		all.add("%s's timer", name(i), func(w *world) error { return w.step(i, core.Tick{}) })
		if fair {
			return
		}
	}
	if l := n.listener; l.number != 0 && !l.ready && !n.cut {
		if w.deaf {
			all.add("%s can't listen", name(i), func(w *world) error {
				w.nodes[i].listener = listener{}
				return w.step(i, core.ListenerBroken{Listener: l.number, Unsupported: true})
			})
		} else {
			all.add("%s's listener is ready", name(i), func(w *world) error {
				w.nodes[i].listener.ready = true
				return w.step(i, core.Noticed{Listener: l.number, Notice: driver.Notice{Type: driver.NoticeReady}})
			})
		}
		if fair {
			return
		}
	}
	if l := n.listener; !fair && w.slow > 0 && l.number != 0 && !w.deaf {
		if !l.ready && !l.late {
			all.rarely("%s's listener is slow", name(i), func(w *world) error { w.slow--; w.nodes[i].listener.late = true; return nil })
		}
		all.rarely("%s's listener breaks", name(i), func(w *world) error {
			w.slow--
			w.nodes[i].listener = listener{}
			w.mail = slices.DeleteFunc(w.mail, func(o letter) bool { return o.node == i && o.command == nil })
			return w.step(i, core.ListenerBroken{Listener: l.number})
		})
	}
	before := len(*all)
	w.callerActions(i, fair, all)
	if fair && len(*all) > before {
		return
	}
	if n.cut {
		all.rarely("%s is no longer cut off", name(i), func(w *world) error {
			w.nodes[i].cut, w.nodes[i].healed = false, w.now
			return nil
		})
		if fair {
			return
		}
	}
	if n.closing && !n.hurried && !n.closed && !fair {
		all.rarely("%s hurries", name(i), func(w *world) error {
			n := &w.nodes[i]
			n.hurried = true
			for _, h := range n.holds {
				if h.over != 0 { // the lease was released, or is kept for the grace, but an Extend under way may be executed later
					n.leases = append(slices.Clip(n.leases), h.id)
				}
			}
			return w.step(i, core.Hurry{})
		})
	}
	if fair {
		return
	}
	for j := range w.nodes {
		if d := &w.nodes[j]; d.dead && n.core.HostFiles()[d.core.Session()] != "" {
			all.add("%s learns that "+name(j)+" is dead", name(i), func(w *world) error {
				w.nodes[i].deaths = append(slices.Clip(w.nodes[i].deaths), death{j, w.now})
				return w.step(i, core.Died{Session: d.core.Session()})
			})
		}
	}
	if w.observes > 0 && !n.closing {
		all.add("%s observes a key", name(i), func(w *world) error {
			n, key := &w.nodes[i], fmt.Sprint("o", w.observes)
			w.observes--
			n.observed = append(slices.Clip(n.observed), key)
			slices.Sort(n.observed)
			return w.step(i, core.Observe{Key: key, N: 1})
		})
	}
	if !n.cut && w.cuts > 0 {
		all.rarely("%s is cut off", name(i), func(w *world) error { w.cuts--; w.cutOff(i); return nil })
	}
	if w.freezes > 0 {
		all.rarely("%s freezes", name(i), func(w *world) error {
			w.freezes--
			for _, j := range w.processOf(i) {
				w.nodes[j].frozen = true
			}
			return nil
		})
	}
	if w.crashes > 0 && n.core.Session() != "" {
		all.rarely("%s crashes", name(i), func(w *world) error {
			w.crashes--
			for _, j := range w.processOf(i) {
				w.crash(j)
			}
			return nil
		})
	}
	if w.closes > 0 && !n.closing && (n.core.Session() != "" || n.registers != "") {
		all.rarely("%s closes", name(i), func(w *world) error {
			w.closes--
			w.nodes[i].closing = true
			for c := range w.nodes[i].callers {
				w.nodes[i].callers[c].rounds = 0
			}
			return w.step(i, core.Close{})
		})
	}
}

// breakActions adds revocations of keys, made either through the store or in the holder's own process.
func (w *world) breakActions(all *list) {
	for _, key := range slices.Sorted(maps.Keys(w.store.keys)) {
		k := w.store.keys[key]
		for _, h := range k.Holders {
			v := driver.Revocation{Key: key, Claim: h.Claim}
			all.rarely("somebody asks for %s", key, func(w *world) error {
				w.breaks--
				notices, err := w.store.revoke(h.Session, v)
				if err == nil {
					w.revoked(v.Claim)
				}
				w.notify(notices)
				return nil
			})
			for i := range w.nodes {
				if n := &w.nodes[i]; n.core.Session() == h.Session && !n.dead && !n.frozen {
					all.rarely("somebody in %s asks for "+key, name(i), func(w *world) error {
						w.breaks--
						return w.step(i, core.Revoked{Claim: v.Claim, Key: v.Key})
					})
				}
			}
		}
	}
}

// letterActions adds what can happen to a letter.
func (w *world) letterActions(m int, l *letter, fair bool, all *list) {
	frozen := w.nodes[l.node].frozen || w.nodes[l.node].dead
	if l.command == nil {
		if !frozen {
			all.add("the notice to %s arrives", name(l.node), func(w *world) error {
				l := w.mail[m]
				w.drop(m)
				return w.step(l.node, core.Noticed{Listener: l.listener, Notice: l.notice})
			})
		}
		if !fair && w.faults > 0 {
			all.rarely("the notice to %s is lost", name(l.node), func(w *world) error { w.faults--; w.drop(m); return nil })
			if !l.late {
				all.rarely("the notice to %s is late", name(l.node), func(w *world) error { w.faults--; w.mail[m].late = true; return nil })
			}
		}
		return
	}
	what := w.title(l)
	switch {
	case !l.answered && w.now >= l.sent.Add(w.cfg.Attempt):
		if !frozen {
			all.add("%s times out", what, func(w *world) error {
				w.mail[m].answered = true
				l := w.mail[m]
				if l.executed {
					w.drop(m)
				}
				return w.answer(&l, &core.Reply{Lost: true, Err: errTimeout})
			})
		}
		if l.reply != nil && !frozen && w.now == l.sent.Add(w.cfg.Attempt) {
			all.add("the reply to %s arrives in the last moment", what, func(w *world) error { return w.arrive(m) })
		}
		if l.reply != nil || l.executed {
			return
		}
	case l.reply != nil:
		if !frozen {
			all.add("the reply to %s arrives", what, func(w *world) error { return w.arrive(m) })
		}
		if !fair && w.faults > 0 && !l.late {
			all.rarely("the reply to %s is delayed", what, func(w *world) error {
				w.faults--
				w.mail[m].late, w.mail[m].answered = true, false
				return nil
			})
		}
		return
	}
	if l.executed {
		return
	}
	all.add("%s is executed", what, func(w *world) error { return w.execute(m, true) })
	if fair {
		return
	}
	if w.reaches(l) {
		all.add("%s goes to the deposed primary", what, func(w *world) error { return w.astray(m, false) })
		if _, _, answers := w.old.execute(l.command.Command, w.cfg.TTL, w.now); !answers {
			all.add("%s goes to the deposed primary, and fails", what, func(w *world) error { return w.astray(m, true) })
		}
	}
	if w.refusals > 0 && !l.answered {
		switch l.command.Op {
		case core.Register, core.Acquire, core.Release, core.Extend, core.Expire, core.Discard:
			all.rarely("%s is refused", what, func(w *world) error {
				w.refusals--
				l := w.mail[m]
				w.drop(m)
				if l.command.Op == core.Register {
					w.nodes[l.node].registers = ""
				}
				return w.answer(&l, &core.Reply{Err: driver.ErrRefused})
			})
		}
	}
	if w.faults == 0 {
		return
	}
	if !l.late {
		all.rarely("%s is lost", what, func(w *world) error {
			w.faults--
			if w.mail[m].executed = true; w.mail[m].answered {
				w.drop(m)
			}
			return nil
		})
		all.rarely("%s is executed, and its reply is lost", what, func(w *world) error {
			w.faults--
			return w.execute(m, false)
		})
		if l.copies == 0 {
			all.rarely("%s will come twice", what, func(w *world) error { w.faults--; w.mail[m].copies = 1; return nil })
			if w.thrice {
				all.rarely("%s will come three times", what, func(w *world) error { w.faults--; w.mail[m].copies = 2; return nil })
			}
		}
		if w.atOnce(l) {
			all.rarely("%s is executed, and its reply is delayed", what, func(w *world) error {
				w.faults--
				w.mail[m].late = true
				return w.execute(m, true)
			})
		}
		all.rarely("%s is late", what, func(w *world) error { w.faults--; w.mail[m].late = true; return nil })
	}
}

var errTimeout = errors.New("no answer")

// cutOff cuts a process off. Every message under way from or to the process is lost, and so is every message that it
// sends until it is no longer cut off. The process's listener misses all notices sent meanwhile. The listener can
// become ready again only when the process is no longer cut off.
func (w *world) cutOff(i int) {
	w.nodes[i].cut, w.nodes[i].listener.ready = true, false
	w.mail = slices.DeleteFunc(w.mail, func(l letter) bool { return l.node == i && (l.command == nil || l.answered && l.reply == nil) })
	for m := range w.mail {
		if l := &w.mail[m]; l.node == i {
			l.executed, l.answered, l.reply = true, false, nil // the sender will get no reply
		}
	}
}

// delete deletes the record of a key, as somebody could do without the library.
func (w *world) delete(key string) {
	delete(w.store.keys, key)
	w.deleted = true
	for i := range w.nodes {
		for k := range w.nodes[i].holds {
			if h := &w.nodes[i].holds[k]; h.call.Key == key {
				h.deleted, h.kept = w.now, 0
			}
		}
	}
}

// expel deletes the record of a session, as somebody could do without the library. Only its leases are safe.
func (w *world) expel(i int) {
	n := &w.nodes[i]
	delete(w.store.sessions, n.core.Session())
	w.deleted = true
	for k := range n.holds {
		if h := &n.holds[k]; h.over == 0 {
			h.deleted, h.kept = w.now, 0
		}
	}
}

// processOf returns the nodes of a node's process.
func (w *world) processOf(i int) (nodes []int) {
	for j := range w.nodes {
		if w.nodes[j].process == w.nodes[i].process {
			nodes = append(nodes, j)
		}
	}
	return nodes
}

// crash ends a session with its process. Commands that the process has sent may still arrive.
func (w *world) crash(i int) {
	n := &w.nodes[i]
	n.dead, n.died, n.listener, n.holds = true, w.now, listener{}, slices.DeleteFunc(slices.Clone(n.holds), func(h hold) bool { return h.kept <= w.now })
	for c := range n.callers {
		n.callers[c].rounds, n.callers[c].call, n.callers[c].hold = 0, nil, nil
	}
	w.mail = slices.DeleteFunc(w.mail, func(l letter) bool { return l.node == i && (l.command == nil || l.executed) })
	for m := range w.mail {
		if l := &w.mail[m]; l.node == i {
			l.answered = true
		}
	}
}

// claimOf returns the claim that a command acquires, releases, extends or publishes for. For other commands it returns the zero Claim.
func claimOf(c *core.Command) driver.Claim {
	switch e := c.Edit; {
	case e.Acquire != nil:
		return e.Acquire.Claim
	case e.Release != nil:
		return e.Release.Claim
	case e.Extend != nil:
		return e.Extend.Claim
	case e.Publish != nil:
		return e.Publish.Claim
	}
	return driver.Claim{}
}

func (w *world) title(l *letter) string {
	return name(l.node) + "'s " + l.command.Op.String() + " " + claimOf(l.command.Command).ID
}

func (w *world) drop(m int) { w.mail = slices.Delete(w.mail, m, m+1) }

// notify sends notices to the listeners that are ready.
func (w *world) notify(notices []driver.Notice) {
	for _, notice := range notices {
		for j := range w.nodes {
			n := &w.nodes[j]
			if l := n.listener; l.ready && !n.cut && (l.session == notice.Session || notice.Session == "" && w.store.observed) {
				w.letters++
				w.mail = append(w.mail, letter{number: w.letters, node: j, notice: notice, listener: l.number, sent: w.now})
			}
		}
	}
}

// atOnce reports whether the command is answered as soon as it is executed, unless a fault delays the answer. For
// readings of sessions, notices and announcements, no event between the execution and the answer would make a
// difference. For a Register or a Heartbeat it would, if a command may then reach a deposed primary: its sender takes the
// answer as proof that later commands do not.
func (w *world) atOnce(l *letter) bool {
	switch l.command.Op {
	case core.Register, core.Heartbeat:
		if w.deposed > 0 {
			return false
		}
	case core.Read, core.Keys, core.Notify, core.Announce:
	default:
		return false
	}
	return !l.answered && !w.nodes[l.node].frozen && w.cfg.Lanes > 2
}

// execute makes the store execute a command. If replies is true, the reply to the command is then on its way.
func (w *world) execute(m int, replies bool) error {
	l := &w.mail[m]
	var r core.Reply
	at := w.atOnce(l) && replies && !l.late && l.copies == 0
	if l.command.Op == core.Notify {
		w.notify(l.command.Notices)
		l = &w.mail[m]
	} else {
		before := w.store.keys[claimOf(l.command.Command).Key]
		r = w.store.execute(l.command.Command, w.cfg.TTL, w.now)
		if err := w.mayChange(l.command.Command, before); err != nil {
			return fmt.Errorf("%s: %w", w.title(l), err)
		}
	}
	if err := w.stillHeld(); err != nil {
		return fmt.Errorf("%s: %w", w.title(l), err)
	}
	if l.command.Op == core.Load {
		w.read(l.node, l.command.Key)
	}
	l.anew = w.old != nil
	r.Command, r.Session = l.command.ID, l.command.Session
	r.State.Final = w.store.final && l.copies == 0
	if v := l.command.Edit.Release; v != nil && v.Successor != "" && r.Found {
		k := w.store.keys[v.Claim.Key]
		for h := range w.nodes[l.node].holds {
			if h := &w.nodes[l.node].holds[h]; h.id == v.Claim.ID && h.successor == v.Successor {
				_, h.passed = k.Holder(v.Successor)
			}
		}
	}
	if l.command.Op == core.Revoke && r.Err == nil {
		w.revoked(l.command.Revoked[0].Claim)
	}
	switch {
	case l.copies > 0: // the next copy may arrive at any time from now on
		l.copies--
		l.late = true
		if !l.answered && replies {
			l.answered = true
			w.letters++
			w.mail = append(w.mail, letter{number: w.letters, node: l.node, command: l.command, sent: l.sent, answered: true, executed: true, reply: &r, met: l.met, anew: l.anew})
		}
		return nil
	case l.answered:
		w.drop(m)
		return nil
	case !replies:
		l.executed = true
		return nil
	}
	l.executed, l.reply = true, &r
	if at {
		return w.arrive(m)
	}
	if l.late && w.atOnce(l) {
		return nil // from now on the letter is a late reply
	}
	l.answered, l.late = true, false
	return nil
}

// revoked records that the store has recorded a revocation of the claim.
func (w *world) revoked(claim string) {
	for i := range w.nodes {
		for h := range w.nodes[i].holds {
			if h := &w.nodes[i].holds[h]; h.id == claim {
				h.kept = 0
				if h.wanted == 0 {
					h.wanted = w.now
				}
			}
		}
	}
}

// arrive delivers the reply of a letter.
func (w *world) arrive(m int) error {
	l := w.mail[m]
	w.drop(m)
	n := &w.nodes[l.node]
	n.met = n.met || l.anew && (l.command.Op == core.Heartbeat || l.command.Op == core.Register)
	if l.command.Op == core.Extend {
		n.extendAnswered(w, &l)
	}
	return w.answer(&l, l.reply)
}

// answer passes the answer to a letter's command to its sender.
func (w *world) answer(l *letter, r *core.Reply) error {
	r.Command = l.command.ID
	n := &w.nodes[l.node]
	n.learns(w.now, l.command.Command, r)
	n.counts(w.now, l.command.Command, r)
	return w.step(l.node, r)
}

// extendAnswered records what the answer to an Extend means for the hold of its lease, or for the hold that begins with it.
func (n *node) extendAnswered(w *world, l *letter) {
	c := claimOf(l.command.Command)
	i := slices.IndexFunc(n.holds, func(h hold) bool { return h.id == c.ID })
	switch {
	case i < 0 && l.reply.Err == nil:
		n.extended = l.sent
	case i < 0:
	case errors.Is(l.reply.Err, driver.ErrNotHeld):
		if h := &n.holds[i]; h.missed == 0 && h.deleted != 0 {
			h.missed = w.now
		}
	case l.reply.Err == nil:
		if h := &n.holds[i]; h.ended == 0 && h.over > w.now {
			h.over = max(h.over, l.sent.Add(lasts(w.cfg, c.Lease)))
		}
	}
}

// callerActions adds what the callers of a node can do.
func (w *world) callerActions(i int, fair bool, all *list) {
	if done := w.nodes[i].done; !fair && w.unlocks > 0 && done != nil {
		all.rarely("%s unlocks once more", name(i), func(w *world) error { w.unlocks--; return w.step(i, done) })
	}
	for c := range w.nodes[i].callers {
		o := &w.nodes[i].callers[c]
		if h := w.nodes[i].hold(o.hold); o.limit > 0 && h != nil && h.ended == 0 && !h.freed && (h.stalls == 0 || !fair && w.progress > 0) {
			all.add("%s reports progress", name(i), func(w *world) error {
				h := w.nodes[i].hold(o.hold)
				if h.stalls != 0 {
					w.progress--
				}
				if h.stalls == 0 || w.now < h.stalls { // otherwise the report would come too late
					h.stalls = w.now.Add(o.limit)
				}
				return w.step(i, core.Progress{Claim: h.claim, Hold: h.call, Limit: o.limit})
			})
			if fair {
				return
			}
		}
		switch {
		case o.hold != nil && w.staying(i, o):
		case o.hold != nil && w.maySay(i, o):
			all.add("%s says how it leaves", name(i), func(w *world) error {
				h := w.nodes[i].hold(o.hold)
				h.said = w.now
				return w.step(i, core.ReleaseBy{Claim: h.claim, Release: o.leave})
			})
			if fair {
				return
			}
		case o.hold != nil:
			if !fair && w.mayName(i, o) {
				all.rarely("%s names its successor", name(i), func(w *world) error { return w.nameSuccessor(i, c) })
			}
			all.rarely("%s unlocks", name(i), func(w *world) error { return w.unlock(i, c) })
			if fair {
				return
			}
			h := w.nodes[i].hold(o.hold)
			if h == nil || h.ended != 0 || h.freed {
				continue
			}
			if w.extends > 0 && h.over != 0 {
				all.add("%s extends its lease", name(i), func(w *world) error {
					w.extends--
					return w.step(i, &core.Ask{Command: core.Command{Op: core.Extend}, Claim: h.claim})
				})
			}
			if w.publishes > 0 {
				all.add("%s publishes a value", name(i), func(w *world) error {
					w.publishes--
					return w.step(i, core.PublishLater{Claim: h.claim, Seq: int64(w.letters)})
				})
			}
			if w.windDown > 0 {
				all.rarely("%s gives notice", name(i), func(w *world) error {
					w.windDown--
					return w.step(i, core.WindDown{Claim: h.claim, Hold: h.call, Cause: errNotice})
				})
			}
			if w.giveUps > 0 {
				all.rarely("%s gives up too late", name(i), func(w *world) error {
					w.giveUps--
					if err := w.step(i, core.GiveUp{Call: o.hold}); err != nil {
						return err
					}
					return w.unlock(i, c)
				})
			}
		case o.call != nil:
			if !fair && w.giveUps > 0 {
				all.rarely("%s gives up", name(i), func(w *world) error {
					w.giveUps--
					err := w.step(i, core.GiveUp{Call: o.call})
					if err == nil && w.nodes[i].callers[c].call != nil {
						err = fmt.Errorf("call %d has given up, but got no answer", o.call.Call)
					}
					return err
				})
			}
		case o.rounds > 0 && o.after <= w.now:
			all.add("%s locks", name(i), func(w *world) error {
				w.letters++
				o := &w.nodes[i].callers[c]
				o.after = 0
				o.call = &core.Call{Want: o.want, Call: uint64(w.letters)}
				if o.want.Weight == 0 {
					o.breaks, o.ahead, o.free = w.protectedClaims(o.want.Key), nil, 0
				}
				return w.step(i, o.call)
			})
		}
		if fair && o.rounds > 0 && o.call == nil && o.hold == nil && o.after <= w.now {
			return
		}
	}
}

// staying reports whether the caller has a hold and will not unlock it now. It may wait for Lost to close first, or
// never unlock at all.
func (w *world) staying(i int, o *caller) bool {
	if !o.stays || o.hold == nil || w.nodes[i].dead {
		return false
	}
	if o.never {
		return true
	}
	h := w.nodes[i].hold(o.hold)
	return h != nil && h.ended == 0
}

// maySay reports whether the caller has a hold, has not unlocked it, and may still ask to keep the key.
func (w *world) maySay(i int, o *caller) bool {
	h := w.passing(i, o)
	return h != nil && o.leave.Keep > 0 && h.said == 0
}

// passing returns the caller's hold if it lasts and the caller is one that calls ReleaseBy, otherwise nil.
func (w *world) passing(i int, o *caller) *hold {
	if h := w.nodes[i].hold(o.hold); o.passes && h != nil && h.ended == 0 && !h.freed {
		return h
	}
	return nil
}

// mayName reports whether the caller has a hold, has not unlocked it, and may still name one of the waiters as its
// successor.
func (w *world) mayName(i int, o *caller) bool {
	h := w.passing(i, o)
	return h != nil && o.leave.Keep == 0 && !h.named && len(w.store.keys[o.want.Key].Queue) > 0
}

// nameSuccessor makes a holder name the last waiter as its successor, unless the hold is over.
func (w *world) nameSuccessor(i, c int) error {
	if err := w.step(i, core.Tick{}); err != nil { // like package engine, which first looks at the clock
		return err
	}
	o := w.nodes[i].callers[c]
	if !w.mayName(i, &o) {
		return nil
	}
	h, queue := w.nodes[i].hold(o.hold), w.store.keys[o.want.Key].Queue
	successor := queue[len(queue)-1].Claim
	h.named = true
	if o.want.Weight == o.want.Limit && o.leave.Seal == 0 { // if so, the successor is granted the key
		h.successor = successor
	}
	return w.step(i, core.ReleaseBy{Claim: h.claim, Release: driver.Release{Successor: successor}})
}

var errNotice = errors.New("notice")

// unlock tells the Core that a holder is done.
func (w *world) unlock(i, c int) error {
	n := &w.nodes[i]
	o := &n.callers[c]
	if w.mayName(i, o) {
		if err := w.nameSuccessor(i, c); err != nil {
			return err
		}
	}
	h := n.hold(o.hold)
	hold := o.hold
	o.hold, o.rounds = nil, max(0, o.rounds-1)
	if h == nil {
		return fmt.Errorf("the hold of call %d is not known", hold.Call)
	}
	leave := o.leave
	if leave.Seal > 0 {
		leave.Result = []byte(h.id)
	}
	claim := h.claim
	ended := h.ended != 0
	if h.users--; h.users == 0 && !ended {
		h.seals = leave.Seal
		if w.keeps && leave.Keep > 0 {
			h.kept = w.now.Add(leave.Keep)
			if h.said != 0 {
				h.kept = h.said.Add(leave.Keep)
			}
			if h.over != 0 {
				h.kept = min(h.kept, h.over)
			}
		}
	}
	done := &core.Done{Claim: claim, Hold: hold, Early: w.store.early && o.want.Lease == 0} // package dsync never releases a lease early
	if (leave.Keep > 0 || leave.Seal > 0) && h.said == 0 {
		done.Release = &leave
	}
	n.done = done
	if err := w.step(i, done); err != nil {
		return err
	}
	if h := n.hold(hold); h.over != 0 && h.over <= w.now && h.ended == 0 {
		return fmt.Errorf("%s unlocks the lease of call %d, but has not ended it, although it is over: %+v", name(i), hold.Call, h)
	}
	return nil
}

// nextTime returns the next time at which something happens by itself. The result ok is false if there is none. It is
// also false if time can't pass, because a timer is due, or a letter is under way and is not late.
func (w *world) nextTime() (next core.Instant, ok bool) {
	earlier := func(i core.Instant) {
		if i > w.now && (!ok || i < next) {
			next, ok = i, true
		}
	}
	for i := range w.mail {
		l := &w.mail[i]
		frozen := w.nodes[l.node].frozen || w.nodes[l.node].dead
		if !l.late && (l.reply != nil && !frozen || !l.executed && l.command != nil || l.command == nil && !frozen) {
			return 0, false
		}
		if l.command != nil && !l.answered && !frozen {
			due := l.sent.Add(w.cfg.Attempt)
			if due <= w.now {
				return 0, false
			}
			earlier(due)
		}
	}
	for i := range w.nodes {
		n := &w.nodes[i]
		if n.dead {
			continue
		}
		if n.registers != "" && !n.closing {
			earlier(n.registered.Add(w.cfg.TTL)) // Close does not care any more an attempt's time later
		}
		at := n.core.Next()
		switch {
		case !n.frozen && (at <= w.now || n.listener.number != 0 && !n.listener.ready && !n.listener.late && !n.cut):
			return 0, false
		case !n.frozen && at < 1<<62:
			earlier(at)
		case n.frozen && n.core.Session() != "":
			earlier(n.core.Deadline())
			earlier(n.core.Deadline().Add(w.cfg.TTL))
		}
		for _, h := range n.holds {
			if h.users > 0 && h.ended != 0 {
				earlier(w.graceEnds(&h))
			}
			if n.frozen && h.over != 0 {
				earlier(h.over)
				earlier(h.over.Add(w.cfg.Grace + w.cfg.Margin))
			}
		}
		for _, o := range n.callers {
			if o.rounds > 0 && o.call == nil && o.hold == nil {
				if w.eager && o.after <= w.now && !n.frozen {
					return 0, false
				}
				earlier(o.after)
			}
		}
	}
	return next, ok
}

// freedByDeaths checks, before time passes until next, that no caller waits for much longer than a margin after its node has
// learned that all sessions ahead of it in the store are dead. A later waiter lets the first look first. Without faults,
// nothing else takes time.
func (w *world) freedByDeaths(next core.Instant) error {
	if !w.prompt {
		return nil
	}
	for i := range w.nodes {
		n := &w.nodes[i]
		if n.dead || n.closing || len(n.deaths) == 0 {
			continue
		}
		longest := w.freedWithin()
		for _, o := range n.callers {
			if o.call == nil {
				continue
			}
			k, learned, all, queued := w.store.keys[o.want.Key], core.Instant(0), true, false
			ahead := func(session string) {
				d := slices.IndexFunc(n.deaths, func(d death) bool { return w.nodes[d.node].core.Session() == session })
				if d < 0 {
					all = false
				} else {
					learned = max(learned, n.deaths[d].at)
				}
			}
			for _, h := range k.Holders {
				ahead(h.Session)
			}
			for _, q := range k.Queue {
				if queued = q.Session == n.core.Session(); queued {
					break
				}
				ahead(q.Session)
			}
			if queued && all && next > learned.Add(longest) {
				return fmt.Errorf("call %d of %s still waits %v after %s has learned that all sessions ahead are dead: %s", o.call.Call, name(i), longest, name(i), w)
			}
		}
	}
	return nil
}

// watchedBy reports whether a look of the session reads the hold's key: it does not if the hold is a lease that has
// outlived its session. For such leases see [world.overlooked].
func (h *hold) watchedBy(session string) bool {
	return h.over == 0 || strings.HasPrefix(h.id, session+".")
}

// findsOutBy returns when the node must have found out that somebody has deleted a hold's record: a heartbeat interval
// later or, if a heartbeat got lost because the node was cut off, once that has timed out and another has followed.
func (n *node) findsOutBy(cfg *core.Config, h *hold) core.Instant {
	by := max(h.deleted, n.healed).Add(cfg.Heartbeat)
	if n.healed != 0 {
		by = by.Add(cfg.Attempt)
	}
	return by
}

// overlooked checks, before time passes until next, that no lease goes on for more than a heartbeat interval after an
// Extend has found that its record was deleted, even if its session is lost.
func (w *world) overlooked(next core.Instant) error {
	for i := range w.nodes {
		for _, h := range w.nodes[i].holds {
			if n := &w.nodes[i]; !n.dead && !n.frozen && h.missed != 0 && h.ended == 0 && h.users > 0 && next.Sub(h.missed) > w.cfg.Heartbeat {
				return fmt.Errorf("%s has not ended the lease of call %d, although its Extend found it deleted at %v: %+v", name(i), h.call.Call, h.missed, h)
			}
		}
	}
	return nil
}

// freedWithin returns how long after a node has learned of the last death ahead of it a key must be free.
func (w *world) freedWithin() time.Duration {
	return max(w.cfg.Margin, w.store.longer) + time.Duration(len(w.nodes)-2)*w.cfg.TTL/50
}

// done reports whether every caller has been served, and whether the live sessions have left nothing behind in the
// store or in the Cores.
func (w *world) done() bool {
	for id, reg := range w.store.sessions {
		if len(reg.revoked) > 0 && w.alive(id) {
			return false // a claim was revoked, but has not been given up
		}
	}
	for i := range w.nodes {
		n := &w.nodes[i]
		if !n.dead && !n.closing && !slices.Equal(w.store.sessions[n.core.Session()].observed, n.observed) {
			return false // the process is not listed as an observer, or is still listed
		}
	}
	forced := false // a caller that uses force, or waits for a holder that hangs, is not done yet
	stays := false  // a caller holds the key and does not unlock
	hangs := w.hangs()
	for i := range w.nodes {
		for c := range w.nodes[i].callers {
			o := &w.nodes[i].callers[c]
			stays = stays || w.staying(i, o)
			forced = forced || (o.forceful() || hangs && !w.staying(i, o)) && (o.hold != nil || o.call != nil || o.rounds > 0)
		}
	}
	if stays {
		return !forced
	}
	for i := range w.nodes {
		n := &w.nodes[i]
		if n.dead {
			continue
		}
		for _, o := range n.callers {
			if o.hold != nil || o.call != nil || o.rounds > 0 {
				return false
			}
		}
		for _, h := range n.holds {
			if h.users > 0 || !h.freed {
				return false
			}
		}
		if n.closing && !n.closed || left(n.core) != "" {
			return false
		}
	}
	for _, k := range w.store.keys {
		for _, h := range k.Holders {
			if w.alive(h.Session) && h.Until.IsZero() || w.abandoned(&h.Holder) {
				return false
			}
		}
		for _, q := range k.Queue {
			if w.alive(q.Session) {
				return false
			}
		}
	}
	return true
}

// abandoned reports whether o is a lease that its process no longer knows of, although the process is alive and should
// have released the lease. A lease that Close had to leave in the store does not count. A lease that ends within a TTL
// does not count either, because it blocks the key no longer than a lost lock would.
func (w *world) abandoned(o *driver.Holder) bool {
	n := w.owner(o.Session)
	if o.Until.Sub(w.store.now(w.now)) <= w.cfg.TTL || n.dead || n.unfreed || slices.Contains(n.leases, o.Claim) {
		return false
	}
	return !slices.ContainsFunc(n.holds, func(h hold) bool { return h.id == o.Claim && h.users > 0 && h.ended == 0 })
}

// closedByNobody reports whether an abandoned lease blocks a key.
func (w *world) closedByNobody() bool {
	for _, k := range w.store.keys {
		if slices.ContainsFunc(k.Holders, func(h model.Holder) bool { return w.abandoned(&h.Holder) }) {
			return true
		}
	}
	return false
}

// owner returns the process that has or had the session with the given id.
func (w *world) owner(session string) *node { return &w.nodes[session[0]-'A'] }

// sessionOf returns the session of a claim, given its id.
func sessionOf(claim string) string {
	session, _, _ := strings.Cut(claim, ".")
	return session
}

// hangs reports whether some caller with a limit for progress holds the key and will not unlock it now.
func (w *world) hangs() bool {
	for i := range w.nodes {
		for c := range w.nodes[i].callers {
			if o := &w.nodes[i].callers[c]; o.limit > 0 && w.staying(i, o) {
				return true
			}
		}
	}
	return false
}

func (w *world) alive(session string) bool {
	for i := range w.nodes {
		if n := &w.nodes[i]; n.core.Session() == session && !n.dead {
			return true
		}
	}
	return false
}
