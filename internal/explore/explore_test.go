package explore

import (
	"crypto/md5"
	"encoding/binary"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/leasehold-go/leasehold/dsync/driver"
	"github.com/leasehold-go/leasehold/internal/core"
	"github.com/leasehold-go/leasehold/internal/model"
	"github.com/leasehold-go/leasehold/internal/testkit"
)

// A fingerprint is a hash of what world.form returns.
type fingerprint [16]byte

func (w *world) fingerprint() fingerprint { return md5.Sum(w.form()) }

// form returns an encoding of the world. Worlds that behave alike have equal encodings.
func (w *world) form() []byte {
	name := &namer{names: make([]named, 0, 32)}
	var b []byte
	put := func(n ...int) {
		for _, n := range n {
			b = binary.AppendVarint(b, int64(n))
		}
	}
	flags := func(flags ...bool) {
		for _, f := range flags {
			if f {
				b = append(b, 1)
			} else {
				b = append(b, 0)
			}
		}
	}
	g := &w.budget
	put(g.faults, g.refusals, g.giveUps, g.freezes, g.crashes, g.cuts, g.closes, g.breaks, g.windDown, g.progress, g.steps, g.extends, g.slow, g.sweeps, g.observes, g.unlocks, g.failOvers, g.deposed, g.deletes, g.expels, g.publishes)
	for i := range w.nodes {
		n := &w.nodes[i]
		name.node = i
		flags(n.frozen, n.dead, n.cut, n.closing, n.hurried, n.closed, n.listener.number != 0, n.listener.ready, n.listener.late)
		if n.dead {
			if w.store.hostFile != "" {
				put(int(min(w.now.Sub(n.died), max(w.cfg.Margin, w.store.longer))))
			}
			continue
		}
		for _, d := range n.deaths {
			put(-15, d.node, int(min(w.now.Sub(d.at), w.freedWithin())))
		}
		b = n.core.State(b, w.now, name)
		if n.registers != "" && !n.closed { // see closeSays
			put(-21, int(name.Session(n.registers)), int(min(w.now.Sub(n.registered), w.cfg.Attempt+w.cfg.TTL)))
		}
		if n.closing && !n.closed {
			flags(n.listed != "")
			for _, r := range n.requests {
				put(-18, int(name.claim(r.id)))
				flags(r.answered, r.missed, r.applied != (driver.OpTime{}))
			}
		}
		if g.unlocks > 0 && n.done != nil {
			put(-10, int(name.Number('n', n.done.Claim)), int(number(name, n.done.Hold)))
		}
		put(len(n.observed))
		for _, o := range n.callers {
			put(o.rounds, int(number(name, o.call)), int(number(name, o.hold)), int(max(-1, o.after.Sub(w.now))))
			for _, id := range o.breaks {
				if o.call != nil {
					put(-13, int(name.claim(id)))
				}
			}
			if o.call != nil && o.want.Weight == 0 && w.prompt {
				flags(o.ahead == nil)
				for _, h := range w.store.keys[o.want.Key].Holders {
					flags(slices.Contains(o.ahead, h.Claim))
				}
				if o.free != 0 {
					put(-19, int(w.now.Sub(o.free)))
				}
			}
		}
		for _, h := range n.holds {
			put(-5, int(number(name, h.call)), h.users)
			if h.call.Shares && w.prompt {
				put(-20, int(min(w.now.Sub(h.since), max(w.cfg.HandOff, 0))))
			}
			flags(h.freed, h.passed, h.named, h.asked, h.deleted != 0)
			put(int(h.seals))
			if h.successor != "" {
				put(-9, int(name.claim(h.successor)))
			}
			if h.said != 0 {
				put(-11, int(min(w.now.Sub(h.said), w.cfg.TTL)))
			}
			if h.stalls != 0 && h.ended == 0 {
				put(-12, int(max(-1, h.stalls.Sub(w.now))))
			}
			if h.ended != 0 {
				put(int(min(w.now.Sub(h.ended), 2*w.cfg.Grace)))
			}
			if h.over != 0 {
				put(int(max(h.over.Sub(w.now), -2*w.cfg.Grace)))
			}
			if h.kept > w.now {
				put(int(h.kept.Sub(w.now)))
			}
			if h.missed != 0 {
				put(-16, int(w.now.Sub(h.missed)))
			}
			if h.deleted != 0 {
				put(-17, int(max(-1, n.findsOutBy(w.cfg, &h).Sub(w.now))))
			}
		}
	}
	for i := range w.mail {
		l := &w.mail[i]
		put(-1, l.node)
		name.node = l.node
		flags(l.answered, l.executed, l.late)
		put(l.copies)
		if l.command == nil {
			flags(l.listener == w.nodes[l.node].listener.number, l.notice.Crowded)
			put(int(l.notice.Type), int(name.claim(l.notice.Claim)))
			continue
		}
		c := l.command.Command
		put(int(c.Op), int(name.Number('c', l.command.ID)), int(name.Session(c.Session)), int(name.claim(claimOf(c).ID)), int(c.Seq), len(c.Keys.Keys))
		if !l.answered || l.reply != nil {
			put(int(w.now.Sub(l.sent)))
		}
		if !l.executed {
			flags(c.Died)
			for _, o := range c.Claims {
				put(int(name.claim(o.ID)))
			}
			for _, id := range c.Sessions.IDs {
				put(int(name.Session(id)))
			}
			for _, v := range c.Revoked {
				put(int(name.claim(v.Claim)))
			}
			putNotices(put, name, c.Notices)
			if v := c.Edit.Release; v != nil {
				put(-6, int(name.claim(v.Claim.ID)), int(v.Keep), int(v.Seal), int(name.claim(v.Successor)))
				flags(v.Early && w.store.early)
			}
		}
		if j := c.Edit.Acquire; j != nil {
			put(int(max(j.NotAfter.Sub(w.store.now(w.now)), -2*w.cfg.Margin)))
			if !l.executed {
				for _, id := range j.Expired {
					put(int(name.Session(id)))
				}
			}
		}
		if x := c.Edit.Extend; x != nil {
			h, _ := w.store.keys[x.Claim.Key].Holder(x.Claim.ID)
			flags(x.Seq > h.Extended)
			if w.old != nil {
				h, _ := w.old.own.keys[x.Claim.Key].Holder(x.Claim.ID)
				flags(x.Seq > h.Extended)
			}
		}
		if r := l.reply; r != nil {
			put(int(r.State.Sealed))
			flags(r.Err != nil, r.Found, errors.Is(r.Err, driver.ErrRefused))
			put(int(r.Applied.Term), int(r.Applied.Time), int(r.Committed.Term), int(r.Committed.Time))
			put(int(r.Left), int(r.Now.Sub(w.store.now(w.now))))
			for _, m := range r.Members {
				put(int(r.Now.Sub(m.LastHeartbeat)))
			}
			for _, v := range r.Revoked {
				put(-8, int(name.claim(v.Claim)))
			}
			for _, h := range r.State.Holders {
				put(int(name.claim(h.Claim)))
				if !h.Until.IsZero() {
					put(int(h.Until.Sub(r.Now)))
				}
			}
			put(-2, r.State.Position, r.State.Waiting)
			for _, q := range r.State.WaitersAhead {
				put(int(name.claim(q.Claim)))
			}
			if !r.Holder.Until.IsZero() {
				put(int(r.Holder.Until.Sub(r.Now)))
			}
			putNotices(put, name, r.Notices)
		}
	}
	for _, key := range slices.Sorted(maps.Keys(w.store.keys)) {
		for _, h := range w.store.keys[key].Holders {
			flags(w.abandoned(&h.Holder))
		}
	}
	b = w.store.state(b, w.now, name)
	if d := w.old; d != nil {
		put(-14)
		flags(d.ahead)
		for i := range w.nodes {
			flags(w.nodes[i].met)
		}
		for i := range w.mail {
			flags(w.mail[i].met, w.mail[i].anew)
		}
		b = d.own.state(d.committed.state(b, w.now, name), w.now, name)
	}
	return b
}

func putNotices(put func(...int), name *namer, notices []driver.Notice) {
	for _, n := range notices {
		put(-3, int(n.Type), int(name.claim(n.Claim)))
	}
}

// number returns the number that name assigns to the call, or 0 if the call is nil.
func number(name *namer, a *core.Call) uint64 {
	if a == nil {
		return 0
	}
	return name.Number('w', a.Call)
}

// visited records how a state was first reached: from which state and by which action.
type visited struct {
	from int32
	what string
}

// An explorer visits all states of a world, in the order of their distance from the initial state.
type explorer struct {
	seen        map[fingerprint]int32
	path        []visited
	fair        []int32        // for each state, the next state without further faults, or ended, or unknown
	takes       []core.Instant // time from each state to that successor
	transitions int
	longest     time.Duration // the longest time that it takes from any state, without further faults, until every caller is served
}

const (
	ended   = -1 // every caller is served, and nothing is left behind
	unknown = -2 // not visited
)

// explore visits and checks the states that can be reached from w, and stops when it has seen the given number of
// states. It leaves out actions for which without returns true, except the action that would come next without faults.
// If it finds an error, wrong has the steps that lead to the error; otherwise wrong is nil.
func explore(w *world, most int, without func(what string) bool) (e *explorer, wrong []string) {
	e = &explorer{seen: make(map[fingerprint]int32)}
	type open struct {
		w *world
		n int32
	}
	visit := func(w *world, from int32, a *action) (int32, bool) {
		s := w.fingerprint()
		if n, ok := e.seen[s]; ok {
			return n, false
		}
		n := int32(len(e.path))
		e.seen[s] = n
		e.path = append(e.path, visited{from, a.String()})
		e.fair, e.takes = append(e.fair, unknown), append(e.takes, 0)
		return n, true
	}
	visit(w, -1, &action{})
	var all, fair, more list
	for queue := []open{{w, 0}}; len(queue) > 0 && len(e.path) < most; {
		at := queue[0]
		queue[0] = open{}
		queue = queue[1:]
		all, fair = at.w.actions(false, all), at.w.actions(true, fair)
		var wanted *action // what comes next without faults, until it was found in all
		switch {
		case at.w.done() && len(at.w.mail) == 0:
			e.fair[at.n] = ended
		case len(fair) == 0:
			return e, append(e.steps(at.n), "and then nothing can happen any more: "+at.w.String())
		default:
			wanted = &fair[0]
		}
		for i := range all {
			a := &all[i]
			isFair := wanted != nil && a.is(wanted)
			if !isFair && without != nil && without(a.String()) {
				continue
			}
			e.transitions++
			next := at.w.clone()
			if err := a.on(next); err != nil {
				return e, append(e.steps(at.n), a.String(), err.Error())
			}
			n, fresh := visit(next, at.n, a)
			for i := 0; n == at.n && isFair && i < 100; i++ { // the state has not changed, for example because a timer had no effect
				if more = next.actions(true, more); len(more) == 0 || more[0].on(next) != nil {
					break
				}
				n, fresh = visit(next, at.n, a)
			}
			if fresh {
				queue = append(queue, open{next, n})
			}
			if isFair {
				e.fair[at.n], e.takes[at.n], wanted = n, next.now-at.w.now, nil
			}
		}
		if wanted != nil {
			panic("only a fair network does this: " + wanted.String())
		}
	}
	if wrong = e.cycles(); wrong == nil {
		wrong = e.tooLong(3 * w.cfg.TTL)
	}
	return e, wrong
}

// cycles looks for a cycle of states without faults. In such a cycle, some caller is never served, or something is
// never cleaned up. It returns the steps that lead into the cycle and through it, or nil.
func (e *explorer) cycles() []string {
	checked := make([]int32, len(e.fair)) // number of the walk that first reached each state; 0: none yet
	for first := range e.fair {
		n, walk := int32(first), int32(first+1)
		for n >= 0 && checked[n] == 0 {
			checked[n] = walk
			n = e.fair[n]
		}
		if n >= 0 && checked[n] == walk {
			wrong := append(e.steps(n), "and then, without faults, again and again:")
			for i := e.fair[n]; ; i = e.fair[i] {
				wrong = append(wrong, fmt.Sprintf("state %d, after: %s", i, e.path[i].what))
				if i == n {
					return wrong
				}
			}
		}
	}
	return nil
}

// tooLong looks for a state from which it takes longer than the given time, even without further faults, until every
// caller is served and everything is cleaned up. It returns the steps that lead to that state, or nil.
func (e *explorer) tooLong(most time.Duration) []string {
	left := make([]core.Instant, len(e.fair)) // 0: not known yet
	for first := range e.fair {
		var way []int32
		for n := int32(first); n >= 0 && left[n] == 0; n = e.fair[n] {
			way = append(way, n)
		}
		for _, n := range slices.Backward(way) {
			left[n] = e.takes[n]
			if next := e.fair[n]; next >= 0 {
				left[n] += left[next]
			}
			e.longest = max(e.longest, time.Duration(left[n]))
		}
		if time.Duration(left[first]) > most {
			return append(e.steps(int32(first)), fmt.Sprintf("and then, without faults, it takes %v until everybody is served and nothing is left", time.Duration(left[first])))
		}
	}
	return nil
}

// steps returns the steps by which a state was first reached.
func (e *explorer) steps(n int32) (steps []string) {
	for ; n > 0; n = e.path[n].from {
		steps = append(steps, e.path[n].what)
	}
	slices.Reverse(steps)
	return steps
}

// most returns the longest time that may pass, without further faults, until every caller is served. It is ten TTLs,
// plus a poll interval for each Lock that callers still have to make. If processes have crashed or are closing, the
// longest of their leases is added.
func (w *world) most() time.Duration {
	most := 10 * w.cfg.TTL
	lease := time.Duration(0)
	for i := range w.nodes {
		n := &w.nodes[i]
		for _, o := range n.callers {
			most += time.Duration(o.rounds) * w.cfg.Poll // without notices, a caller may be served only by its poll
			if n.dead || n.closing {
				lease = max(lease, o.want.Lease)
			}
		}
	}
	return most + lease
}

// ends checks that, without further faults, every caller is eventually served and live sessions leave nothing behind.
// An abandoned lease, which the store has but no process knows of, must not block its key for more than two TTLs.
func (w *world) ends() error {
	began, most := w.now, w.most()
	open := began // the last time at which no abandoned lease blocked a key
	var last []string
	var next list
	for w := w.clone(); ; {
		if w.done() && len(w.mail) == 0 {
			return nil
		}
		next = w.actions(true, next)
		if len(next) == 0 {
			return fmt.Errorf("nothing more can happen, after %q; %s", tail(last), w)
		}
		if w.now.Sub(began) > most || len(last) > 10_000 {
			return fmt.Errorf("a caller is not served, or something is left behind, after %v without faults; the last steps were %q; %s", w.now.Sub(began), tail(last), w)
		}
		if !w.closedByNobody() {
			open = w.now
		}
		if d := w.now.Sub(open); d > 2*w.cfg.TTL {
			return fmt.Errorf("an abandoned lease has blocked its key for %v without faults; the last steps were %q; %s", d, tail(last), w)
		}
		last = append(last, next[0].String())
		if err := next[0].on(w); err != nil {
			return fmt.Errorf("without faults, after %q: %w", tail(last), err)
		}
	}
}

// left describes what wrongly remains in a Core after all its callers are done, or returns "" if nothing does.
func left(c *core.Core) string {
	v := reflect.ValueOf(c).Elem()
	for _, field := range []string{"claims", "past", "queues", "messages", "topics", "sent"} {
		if n := v.FieldByName(field).Len(); n > 0 {
			what := fmt.Sprintf("%d %s", n, field)
			if field == "claims" {
				for all := v.FieldByName(field).MapRange(); all.Next(); {
					cl := all.Value().Elem()
					what += fmt.Sprintf(" (state %v, users %d, in the queue: %v)", cl.FieldByName("state"), cl.FieldByName("users").Int(), !cl.FieldByName("queue").IsNil())
				}
			}
			return what
		}
	}
	lanes := v.FieldByName("lanes")
	if lanes.FieldByName("busy").Int() != 0 || lanes.FieldByName("polls").Int() != 0 || lanes.FieldByName("line").Len()+lanes.FieldByName("pollLine").Len() > 0 {
		return "lanes"
	}
	return ""
}

// tail returns the last 40 steps.
func tail(steps []string) []string { return steps[max(0, len(steps)-40):] }

// String describes the world's state.
func (w *world) String() string {
	var b strings.Builder
	for i := range w.nodes {
		n := &w.nodes[i]
		fmt.Fprintf(&b, "%s: session %q, left: %s", name(i), n.core.Session(), left(n.core))
		for _, o := range n.callers {
			fmt.Fprintf(&b, ", caller: %d rounds, waits: %v, holds: %v", o.rounds, o.call != nil, o.hold != nil)
		}
		for _, h := range n.holds {
			fmt.Fprintf(&b, ", hold %d of %s: %d users, ended %v, freed %v", h.call.Call, h.id, h.users, h.ended != 0, h.freed)
		}
		fmt.Fprintf(&b, ", dead %v, closing %v, closed %v; ", n.dead, n.closing, n.closed)
	}
	for _, key := range slices.Sorted(maps.Keys(w.store.keys)) {
		fmt.Fprintf(&b, "%s: held by %v, queue %v; ", key, w.store.keys[key].Holders, w.store.keys[key].Queue)
	}
	for i := range w.mail {
		if l := &w.mail[i]; l.command != nil {
			fmt.Fprintf(&b, "%s is under way; ", w.title(l))
		}
	}
	return b.String()
}

// A setting describes the initial state of a world.
type setting struct {
	name      string
	budget    budget
	processes [][]caller
	change    func(c *core.Config)
	set       func(w *world)
	long      bool
	without   func(what string) bool // reports which actions to leave out, so that the test can explore more of the others
}

// newWorld returns the world that a setting describes.
func newWorld(s setting) *world {
	w := &world{budget: s.budget, cfg: configWith(s.change), now: 1, fifo: true, tokens: make(map[string]tokens), keeps: s.budget.steps == 0 && s.budget.breaks == 0}
	w.store = store{sessions: make(map[string]registration), keys: make(map[string]model.Record), early: s.budget.failOvers > 0}
	if w.store.early {
		w.store.log.Term = 1
	}
	g := &s.budget
	w.prompt = g.faults+g.refusals+g.freezes+g.cuts+g.slow+g.failOvers == 0
	for i, callers := range s.processes {
		n := node{process: i, cfg: w.cfg, core: core.New(w.cfg), callers: slices.Clone(callers)}
		for _, o := range callers {
			w.keeps = w.keeps && !o.forceful()
			w.fifo = w.fifo && !o.forceful() && !o.passes && o.want.Tick == 0
		}
		w.nodes = append(w.nodes, n)
	}
	if s.set != nil {
		s.set(w)
	}
	return w
}

// The callers.

func mutex(rounds int) caller {
	return caller{want: core.Want{Key: "k", Kind: driver.KindMutex, Weight: 1, Limit: 1}, rounds: rounds}
}

// breaker returns a caller of Break.
func breaker() caller { return caller{want: core.Want{Key: "k"}, rounds: 1} }

func (o caller) of(key string) caller           { o.want.Key = key; return o }
func (o caller) tries() caller                  { o.want.Try = true; return o }
func (o caller) insisting() caller              { o.want.Try, o.insists = true, true; return o }
func (o caller) forces() caller                 { o.want.First = true; return o }
func (o caller) auto() caller                   { o.want.Auto = true; return o }
func (o caller) leaves(l driver.Release) caller { o.leave = l; return o }
func (o caller) lease(d time.Duration) caller   { o.want.Lease = d; return o }
func (o caller) as(k driver.Kind, w, l int64) caller {
	o.want.Kind, o.want.Weight, o.want.Limit = k, w, l
	return o
}
func (o caller) staying() caller  { o.stays = true; return o }
func (o caller) ignoring() caller { o.stays, o.never = true, true; return o }
func (o caller) within(limit time.Duration) caller {
	o.limit = limit
	return o
}
func (o caller) passing() caller { o.passes = true; return o }
func (o caller) sharing() caller { o.want.Shares = true; return o }

func writer(rounds int) caller { return mutex(rounds).as(driver.KindRWMutex, 1<<20, 1<<20) }
func reader(rounds int) caller {
	return mutex(rounds).as(driver.KindRWMutex, 1, 1<<20).sharing()
}

// ticking returns a caller for a tick whose run succeeds.
func ticking(tick int64) caller {
	o := mutex(1).as(driver.KindPeriodic, 1, 1).leaves(driver.Release{Seal: tick})
	o.want.Tick = tick
	return o
}

// ranked returns a caller that campaigns once. The lower its tick, the more it is preferred.
func ranked(tick int64) caller {
	o := candidate()
	o.want.Tick, o.rounds = tick, 1
	return o
}

func deaf(w *world)    { w.deaf = true }
func eager(w *world)   { w.deaf, w.eager = true, true }
func oneHost(w *world) { w.deaf, w.eager, w.store.hostFile = true, true, "file" }
func twoSessions(w *world) { // A and B are sessions of one process
	oneHost(w)
	w.nodes[1].process = 0
}
func longerMargin(w *world) { // A's margin is twice as long as B's
	oneHost(w)
	c := *w.cfg
	c.Margin *= 2
	w.store.longer = c.Margin
	w.nodes[0].cfg, w.nodes[0].core = &c, core.New(&c)
}
func observed(w *world) { w.store.observed = true }
func thrice(w *world)   { w.deaf, w.eager, w.thrice = true, true, true }
func routed(w *world)   { w.eager, w.store.final, w.store.early = true, true, false }
func deafRouted(w *world) {
	routed(w)
	w.deaf = true
}
func final(w *world) { w.deaf, w.store.final = true, true }

// expireRefused leaves out B's crash, and all refusals except those of B's Expires.
func expireRefused(what string) bool {
	return what == "B crashes" || strings.HasSuffix(what, "is refused") && !strings.HasPrefix(what, "B's Expire")
}

// inHaste leaves out actions by which time passes, unless nothing else can happen.
func inHaste(what string) bool { return strings.HasSuffix(what, " pass") }

// cutOffWith keeps only the actions by which A takes the key and is cut off for good, the actions by which B waits for
// the key, and all actions whose names contain the given string.
func cutOffWith(may string) func(what string) bool {
	return func(what string) bool {
		switch {
		case strings.Contains(what, may), strings.HasSuffix(what, "executed"), strings.HasSuffix(what, "arrives"), strings.HasSuffix(what, "times out"), strings.HasSuffix(what, "in the last moment"):
			return false
		case strings.HasSuffix(what, "unlocks"), strings.HasSuffix(what, "no longer cut off"), what == "B is cut off":
			return true
		}
		return strings.Contains(what, "'s ") && !strings.HasSuffix(what, "timer") && !strings.HasSuffix(what, "listen")
	}
}

// crashWith leaves out B's crash, and all network faults except those whose names begin with the given string.
func crashWith(fault string) func(what string) bool {
	return func(what string) bool {
		if what == "B crashes" {
			return true
		}
		for _, f := range []string{"is lost", "is late", "is delayed", "twice", "three times"} {
			if strings.HasSuffix(what, f) {
				return !strings.HasPrefix(what, fault)
			}
		}
		return false
	}
}

// faultsBut leaves out all network faults except the given ones. Each exception is given by the beginning and the end
// of its name.
func faultsBut(these ...[2]string) func(what string) bool {
	return func(what string) bool {
		for _, f := range []string{"is lost", "is late", "is delayed", "twice", "three times"} {
			if strings.HasSuffix(what, f) {
				return !slices.ContainsFunc(these, func(f [2]string) bool { return strings.HasPrefix(what, f[0]) && strings.HasSuffix(what, f[1]) })
			}
		}
		return false
	}
}

// answersLost leaves out all network faults except lost answers, and all that A does late.
func answersLost(what string) bool {
	return faultsBut([2]string{"A's ", "its reply is lost"})(what)
}

// astrayInHaste leaves out all commands to the deposed primary except A's, and whatever inHaste leaves out.
func astrayInHaste(what string) bool {
	return inHaste(what) || astray(what, "A's")
}

// astray reports whether a command goes to the deposed primary, unless its title begins with but.
func astray(what, but string) bool {
	return strings.Contains(what, "to the deposed primary") && !strings.HasPrefix(what, but)
}

// readAstray leaves out most of what A and B do early or late, all commands to the deposed primary except A's readings of what
// it holds, and all network faults except late replies to A's heartbeats.
func readAstray(what string) bool {
	switch {
	case strings.HasPrefix(what, "the reply to B's "), strings.HasPrefix(what, "B's "):
		return !strings.Contains(what, "B's Release") && !strings.Contains(what, "B's Notify")
	case what == "A unlocks", strings.HasPrefix(what, "the reply to A's ") && strings.HasSuffix(what, " arrives"):
		return !strings.Contains(what, "A's Heartbeat")
	case strings.Contains(what, "to the deposed primary"):
		return !strings.HasPrefix(what, "A's Keys")
	}
	return faultsBut([2]string{"A's Heartbeat", "delayed"}, [2]string{"the reply to A's Heartbeat", "delayed"})(what)
}

// breakAstray leaves out what A does late, all commands to the deposed primary except B's readings of the key, and whatever
// inHaste leaves out.
func breakAstray(what string) bool {
	return inHaste(what) || what == "A unlocks" || strings.HasPrefix(what, "the reply to A's ") ||
		astray(what, "B's Load")
}

// impatient repeats a command a second after its time-out.
func impatient(c *core.Config) { c.Retry, c.Backoff = time.Second, time.Second }

// releaseAstray leaves out all commands to the deposed primary except A's Releases, all faults but the loss of the
// answer to one, and whatever inHaste leaves out.
func releaseAstray(what string) bool {
	return astray(what, "A's Release") || inHaste(what) || faultsBut([2]string{"A's Release", "its reply is lost"})(what)
}

// extendAstray leaves out all commands to the deposed primary except A's Extends while it holds its lease.
func extendAstray(what string) bool {
	return astray(what, "A's Extend")
}

// publishAstray leaves out all commands to the deposed primary except A's published values.
func publishAstray(what string) bool { return astray(what, "A's Publish") }

// dying leaves out the Unlocks of A, which dies with B, and whatever inHaste leaves out.
func dying(what string) bool { return inHaste(what) || what == "A unlocks" || what == "B crashes" }

// waitersRead leaves out what happens early or late, except B's Locks, that B's listener becomes ready, A's Unlocks,
// fail-overs, and B's readings by the deposed primary.
func waitersRead(what string) bool {
	may := []string{"B locks", "B's listener is ready", "A unlocks", "fails over", "B's Keys  goes"}
	return !slices.ContainsFunc(may, func(part string) bool { return strings.Contains(what, part) })
}

// waitersExpelled leaves out what waitersRead does, except that B is granted a lease before its heartbeat is executed, and
// that somebody deletes the record of its session.
func waitersExpelled(what string) bool {
	may := []string{"of the session of B", "the notice to B", "B's Extend"}
	return !slices.ContainsFunc(may, func(part string) bool { return strings.Contains(what, part) }) && waitersRead(what)
}

// twiceInHaste leaves out all network faults except copies of A's requests, and whatever inHaste leaves out.
func twiceInHaste(what string) bool {
	return inHaste(what) || faultsBut([2]string{"A's Acquire", "twice"})(what)
}

// closingCutOff leaves out what cutOffWith and inHaste leave out, except A's Close.
func closingCutOff(what string) bool { return inHaste(what) || cutOffWith("A closes")(what) }

// closesAfterFailOver leaves out all actions that are not needed for a fail-over after an early release, a cut and a Close in a hurry.
func closesAfterFailOver(what string) bool {
	may := []string{"fails over", "A is cut off", "A closes", "A hurries", "A's timer", "A unlocks"}
	return !slices.ContainsFunc(may, func(part string) bool { return strings.Contains(what, part) })
}

// closesTwoClaims leaves out all actions that are not needed for a Close with a release that is refused and a cut.
func closesTwoClaims(what string) bool {
	may := []string{"A locks", "A's Release", "A is cut off", "A closes", "A's timer"}
	return !slices.ContainsFunc(may, func(part string) bool { return strings.Contains(what, part) })
}

// closing leaves out B's Close, every refusal except those of A's releases, and whatever inHaste leaves out.
func closing(what string) bool {
	return what == "B closes" || inHaste(what) || strings.HasSuffix(what, "is refused") && !strings.HasPrefix(what, "A's Release")
}

func each(callers ...caller) (all [][]caller) {
	for _, o := range callers {
		all = append(all, []caller{o})
	}
	return all
}

func together(callers ...caller) [][]caller { return [][]caller{callers} }

// Small worlds are explored completely: the test tries every order of events, and checks for every state that
// everything ends well without further faults. A failure lists the steps that led to it. The worlds with the most
// states are explored only with LEASEHOLD_LONG.
func TestSmallWorlds(t *testing.T) {
	testkit.Large(t)
	var states, transitions atomic.Int64
	began := time.Now()
	t.Cleanup(func() {
		t.Logf("%d states, %d transitions, %v", states.Load(), transitions.Load(), time.Since(began).Round(time.Second/10))
	})
	for _, s := range settings() {
		t.Run(s.name, func(t *testing.T) {
			if s.long && !testkit.Long() {
				t.Skip("many states; it is explored with LEASEHOLD_LONG=1")
			}
			t.Parallel()
			const most = 1_500_000 // more states than any of these worlds has
			began := time.Now()
			e, wrong := explore(newWorld(s), most, s.without)
			if wrong != nil {
				t.Fatalf("after %d steps:\n%s", len(wrong)-1, strings.Join(wrong, "\n"))
			}
			if len(e.path) >= most {
				t.Fatalf("more than %d states", most)
			}
			t.Logf("%d states, %d transitions, at most %v without faults, %v", len(e.path), e.transitions, e.longest, time.Since(began).Round(time.Second/100))
			states.Add(int64(len(e.path)))
			transitions.Add(int64(e.transitions))
		})
	}
}

func settings() []setting {
	lingers := func(c *core.Config) { c.Linger = 3 * time.Second }
	noHandOff := func(c *core.Config) { c.HandOff = 0 }
	patient := func(c *core.Config) { c.Attempt = 6 * time.Second } // longer than a heartbeat interval
	oneLane := func(c *core.Config) { c.Lanes, c.PollLanes = 1, 1 }
	readsWaiters := func(c *core.Config) { c.PollLanes, c.Poll = 1, time.Minute } // later than anybody must be served
	onePoll := func(c *core.Config) { c.PollLanes = 1 }
	brisk := func(c *core.Config) { c.Heartbeat = time.Second }
	longer := func(c *core.Config) { c.Backoff = 4 * c.Retry } // pauses grow with each failure
	narrow := func(c *core.Config) { c.LeastMargin, c.LeastGrace = 0, 0 }
	semaphore := mutex(1).as(driver.KindSemaphore, 1, 2)
	joinTwice, extendUnanswered, releaseUnanswered := [2]string{"A's Acquire", "twice"}, [2]string{"A's Extend", "its reply is lost"}, [2]string{"A's Release", "its reply is lost"}
	once, first, second := ticking(1), ticking(1), ticking(2)
	return []setting{
		{name: "two processes", processes: each(mutex(1), mutex(1))},
		{name: "two callers give up", budget: budget{giveUps: 2}, processes: together(mutex(1), mutex(1))},
		{name: "two callers, a fault", budget: budget{faults: 1}, processes: together(mutex(1), mutex(1)), set: deaf},
		{name: "one caller gives up, two faults", budget: budget{faults: 2, giveUps: 1}, processes: each(mutex(1)), change: longer, set: deaf},
		{name: "one caller, a fault, the clock steps", budget: budget{faults: 1, giveUps: 1, steps: 2}, processes: each(mutex(1)), set: deaf},
		{name: "two callers, a break", budget: budget{breaks: 1, giveUps: 1}, processes: together(mutex(1), mutex(1)), set: deaf},
		{name: "two callers, cut off", budget: budget{cuts: 1}, processes: together(mutex(1), mutex(1)), set: deaf},
		{name: "one caller, refused", budget: budget{refusals: 1, faults: 1}, processes: each(mutex(1)), change: longer, set: deaf},
		{name: "one caller, answers are lost", budget: budget{faults: 3}, processes: each(mutex(1)), change: longer, set: deaf, without: answersLost},
		{name: "a request comes three times", budget: budget{faults: 1}, processes: each(mutex(2)), set: thrice, without: faultsBut([2]string{"A's Acquire", "three times"})},
		{name: "a registration is refused", budget: budget{refusals: 1, giveUps: 1}, processes: together(mutex(1), mutex(1)), set: deaf},
		{name: "a crash, and an Expire is refused", budget: budget{crashes: 1, refusals: 1}, processes: each(mutex(1), mutex(1)), set: eager, without: expireRefused},
		{name: "one caller freezes", budget: budget{freezes: 1}, processes: each(mutex(1)), set: deaf},
		{name: "readers and a writer", processes: [][]caller{{reader(1), reader(1)}, {writer(1)}}, set: eager},
		{name: "readers share", budget: budget{breaks: 1}, processes: together(reader(1), reader(1), writer(1)), set: eager},
		{name: "readers share, a writer gives up", budget: budget{giveUps: 1}, processes: together(reader(1), writer(1), reader(1)), set: eager},
		{name: "a try after a crash", budget: budget{crashes: 1}, processes: each(mutex(1), mutex(1).insisting()), set: eager},
		{name: "a lease", budget: budget{faults: 1, extends: 1}, processes: each(mutex(1).lease(6 * time.Second)), set: deaf},
		{name: "a lease with a shorter margin, and others wait", budget: budget{extends: 1, steps: 1}, processes: each(mutex(1).lease(6*time.Second), mutex(1)), change: narrow, set: eager},
		{name: "a lease, the clock steps", budget: budget{extends: 2, steps: 1}, processes: each(mutex(1).lease(6 * time.Second)), set: deaf},
		{name: "a lease, an Extend overtakes another", budget: budget{faults: 2, extends: 2}, processes: each(mutex(1).lease(6 * time.Second)), set: deaf, without: faultsBut([2]string{"A's Extend", "late"}, [2]string{"A's Extend", "delayed"})},
		{name: "a lease, and others wait", budget: budget{}, processes: each(mutex(1).lease(6*time.Second), mutex(1)), set: deaf},
		{name: "a lease waits, cut off", budget: budget{cuts: 1}, processes: each(mutex(1), mutex(1).lease(6*time.Second)), set: eager, without: inHaste},
		{name: "a long lease, cut off", budget: budget{cuts: 1}, processes: each(mutex(1).lease(24*time.Second), mutex(1)), set: eager, without: cutOffWith("A's Extend")},
		{name: "a longer lease, cut off", budget: budget{cuts: 1}, processes: each(mutex(1).lease(time.Minute)), set: eager, without: cutOffWith("A's Extend")},
		{name: "a long lease, extended without an answer", budget: budget{faults: 1, extends: 1}, processes: each(mutex(1).lease(time.Minute)), set: deaf, without: faultsBut(extendUnanswered)},
		{name: "a long lease, a copy of its Extend, frozen", budget: budget{faults: 1, freezes: 1}, processes: each(mutex(1).lease(time.Minute)), set: deaf, without: faultsBut([2]string{"A's Extend", "twice"})},
		{name: "a long lease, its caller gives up, a fault", budget: budget{faults: 1, giveUps: 1}, processes: each(mutex(1).lease(time.Hour)), set: deaf, without: inHaste},
		{name: "lingering", processes: each(mutex(1), mutex(1)), change: lingers},
		{name: "lingering, cut off", budget: budget{cuts: 1}, processes: each(mutex(2)), change: lingers, set: deaf},
		{name: "lingering, and a slow listener", budget: budget{slow: 1}, processes: each(mutex(2)), change: lingers},
		{name: "a lock by force", processes: each(mutex(1).staying(), mutex(1).forces())},
		{name: "a lock by force, the holder goes on", processes: each(mutex(1).ignoring(), mutex(1).forces()), set: deaf},
		{name: "two locks by force", processes: each(mutex(1).forces(), mutex(1).forces()), set: deaf},
		{name: "a lock by force here", processes: together(mutex(1).staying(), mutex(1), mutex(1).forces()), set: deaf},
		{name: "a holder that hangs", processes: each(mutex(1).within(3*time.Second).ignoring(), mutex(1))},
		{name: "a holder that hangs after a while", budget: budget{progress: 2}, processes: each(mutex(1).within(3*time.Second).ignoring(), mutex(1)), set: deaf},
		{name: "progress, a freeze", budget: budget{progress: 1, freezes: 1}, processes: each(mutex(1).within(3 * time.Second)), set: deaf},
		{name: "a holder that hangs, a fault", budget: budget{faults: 1}, processes: each(mutex(1).within(3*time.Second).ignoring(), mutex(1)), set: eager, without: inHaste},
		{name: "progress, and hand-offs", budget: budget{progress: 1}, processes: together(mutex(2).within(3*time.Second), mutex(1)), set: deaf},
		{name: "progress, lingering", budget: budget{progress: 1}, processes: each(mutex(1).within(3*time.Second), mutex(1)), change: lingers, set: deaf},
		{name: "a call of Break", processes: each(mutex(1).staying(), breaker()), set: observed},
		{name: "two calls of Break here", processes: together(breaker(), breaker()), set: observed},
		{name: "a call of Break, the holder goes on", processes: each(mutex(1).ignoring(), breaker()), set: deaf},
		{name: "a call of Break, a fault", budget: budget{faults: 1}, processes: each(mutex(1).staying(), breaker()), set: eager, without: inHaste},
		{name: "a call of Break, gives up, closes", budget: budget{giveUps: 1, closes: 1}, processes: each(mutex(1).staying(), breaker()), set: eager, without: inHaste},
		{name: "a call of Break here, a fault", budget: budget{faults: 1}, processes: together(mutex(1).staying(), breaker()), set: deaf},
		{name: "a call of Break here, cut off", budget: budget{cuts: 1}, processes: together(mutex(1).staying(), breaker()), set: deaf},
		{name: "a call of Break, and others wait", processes: [][]caller{{mutex(1).staying()}, {breaker()}, {mutex(1)}}, set: eager, without: inHaste},
		{name: "a call of Break after a crash", budget: budget{crashes: 1}, processes: each(mutex(1), breaker()), set: eager},
		{name: "a call of Break, cut off", budget: budget{cuts: 1}, processes: each(mutex(1).staying(), breaker()), set: eager, without: cutOffWith("A's Extend")},
		{name: "a call of Break, a lease", processes: each(mutex(1).lease(24*time.Second).staying(), breaker()), set: eager},
		{name: "a call of Break, kept", processes: each(mutex(1).leaves(driver.Release{Keep: 3 * time.Second}), breaker()), set: eager},
		{name: "a break for a waiter", budget: budget{breaks: 1}, processes: each(mutex(1).staying(), mutex(1).staying()), set: eager},
		{name: "kept, and a break", budget: budget{breaks: 1}, processes: together(mutex(1).leaves(driver.Release{Keep: 3 * time.Second}), mutex(1)), set: deaf},
		{name: "kept, and others wait", processes: each(mutex(1).leaves(driver.Release{Keep: 3 * time.Second}), mutex(1)), set: deaf},
		{name: "a once", processes: each(once, once)},
		{name: "a once, a fault", budget: budget{faults: 1}, processes: together(once, once), set: deaf},
		{name: "a once, a break", budget: budget{breaks: 1}, processes: each(once), set: deaf},
		{name: "a late seal, after a crash", budget: budget{faults: 1, crashes: 1}, processes: each(once, once), set: eager, without: crashWith("A's Release")},
		{name: "two ticks, two processes", processes: each(first, second)},
		{name: "two ticks and one again", processes: [][]caller{{second}, {first}, {first}}, set: eager, without: inHaste},
		{name: "two ticks here, and the first elsewhere", processes: [][]caller{{first, second}, {first}}, set: eager},
		{name: "two ticks here, and the second elsewhere", processes: [][]caller{{first, second}, {second}}, set: eager},
		{name: "two ticks, a fault", budget: budget{faults: 1}, processes: together(first, second), set: deaf},
		{name: "two ticks here, a break", budget: budget{breaks: 1}, processes: together(first.ignoring(), second), set: deaf},
		{name: "two ticks here, cut off", budget: budget{cuts: 1}, processes: together(first, second), set: deaf},
		{name: "two ticks in the wrong order, a crash", budget: budget{crashes: 1}, processes: each(second, first), set: eager},
		{name: "a run that fails, and a later tick", processes: together(first.leaves(driver.Release{}), second, first), set: deaf},
		{name: "a run that fails, and a later tick, no hand-off", processes: together(first.leaves(driver.Release{}), second, first), change: noHandOff, set: deaf},
		{name: "a run that fails, and a later tick elsewhere", processes: [][]caller{{first.leaves(driver.Release{})}, {second}, {first}}, set: eager, without: inHaste},
		{name: "preferences", processes: each(ranked(2), ranked(2), ranked(1)), set: eager, without: inHaste},
		{name: "preferences, a crash", budget: budget{crashes: 1}, processes: each(ranked(2), ranked(1)), set: eager},
		{name: "preferences, a fault", budget: budget{faults: 1}, processes: each(ranked(2).passing(), ranked(1)), set: eager, without: inHaste},
		{name: "kept, a fault", budget: budget{faults: 1}, processes: each(mutex(1).leaves(driver.Release{Keep: 3 * time.Second})), set: deaf},
		{name: "two callers, unlocked twice", budget: budget{unlocks: 1}, processes: together(mutex(2), mutex(1)), set: deaf},
		{name: "a crash, and the store is swept", budget: budget{crashes: 1, sweeps: 1}, processes: each(mutex(1), mutex(1)), set: eager},
		{name: "kept as said before, a fault", budget: budget{faults: 1}, processes: each(mutex(1).auto().passing().leaves(driver.Release{Keep: 3 * time.Second}), mutex(1)), set: deaf, without: inHaste},
		{name: "a successor gives up", budget: budget{giveUps: 1, faults: 1}, processes: each(mutex(1).passing(), mutex(1)), set: eager, without: inHaste},
		{name: "a successor, cut off", budget: budget{cuts: 1}, processes: each(mutex(1).passing(), mutex(1)), set: eager, without: cutOffWith("A unlocks")},
		{name: "a successor", processes: [][]caller{{mutex(1).passing()}, {mutex(1)}, {mutex(1)}}, set: eager, without: inHaste},
		{name: "a successor, and a request comes twice", budget: budget{faults: 2}, processes: each(mutex(1).passing(), mutex(1)), change: patient, set: eager, without: faultsBut(joinTwice, releaseUnanswered)},
		{name: "a lease with a successor, cut off", budget: budget{cuts: 1}, processes: each(mutex(1).lease(6*time.Second).passing(), mutex(1)), set: eager, without: cutOffWith("A unlocks")},
		{name: "a late reply, and its process is cut off", budget: budget{faults: 1, cuts: 1}, processes: each(mutex(1), mutex(1)), set: eager, without: cutOffWith("A's Heartbeat  is executed, and its reply is delayed")},
		{name: "a crash is learned of", budget: budget{crashes: 2}, processes: each(mutex(1), mutex(1)), set: oneHost},
		{name: "a crash is learned of, a longer margin", budget: budget{crashes: 1}, processes: each(mutex(1), mutex(1)), set: longerMargin, without: crashWith("none")},
		{name: "a crash is learned of, a try", budget: budget{crashes: 1}, processes: each(mutex(1), mutex(1).insisting()), set: oneHost},
		{name: "a crash is learned of, a request is late", budget: budget{crashes: 1, faults: 1}, processes: each(mutex(1), mutex(1)), set: oneHost, without: crashWith("A's Acquire")},
		{name: "a crash of two sessions is learned of", budget: budget{crashes: 1}, processes: each(mutex(1), mutex(1), mutex(1)), set: twoSessions, without: dying},
		{name: "a freeze of two sessions", budget: budget{freezes: 1}, processes: each(mutex(1), mutex(1)), set: twoSessions, without: inHaste},
		{name: "two kinds", processes: each(mutex(1), semaphore), set: deaf},
		{name: "a semaphore taken whole", processes: together(semaphore.as(driver.KindSemaphore, 2, 2), semaphore.as(driver.KindSemaphore, 2, 2), semaphore.as(driver.KindSemaphore, 2, 2)), set: eager},
		{name: "one lane", processes: together(mutex(1), mutex(1)), change: oneLane, set: deaf},
		{name: "one lane, a lease is extended", budget: budget{extends: 1, windDown: 1}, processes: together(mutex(1).lease(6*time.Second), mutex(1).of("l")), change: oneLane, set: eager, without: inHaste},
		{name: "no hand-off", budget: budget{faults: 1}, processes: together(mutex(1), mutex(1)), change: noHandOff, set: deaf},
		{name: "closing", budget: budget{closes: 1}, processes: together(mutex(1), mutex(1).auto()), set: deaf},
		{name: "closing, cut off", budget: budget{closes: 1, cuts: 1}, processes: each(mutex(1)), set: deaf, without: cutOffWith("A closes")},
		{name: "closing, and its registration has no answer", budget: budget{closes: 1, faults: 1}, processes: each(mutex(1)), set: deaf, without: faultsBut([2]string{"A's Register", "lost"})},
		{name: "closing, and its registration is late", budget: budget{closes: 1, faults: 1, giveUps: 1}, processes: each(mutex(1)), set: deaf, without: faultsBut([2]string{"A's Register", "is late"})},
		{name: "closing, a break", budget: budget{closes: 1, breaks: 1}, processes: each(mutex(1)), set: deaf},
		{name: "closing, refused, and others wait", budget: budget{closes: 1, refusals: 1}, processes: each(mutex(1), mutex(1)), set: deaf, without: closing},
		{name: "closing, and its request comes twice", budget: budget{closes: 1, faults: 2}, processes: each(mutex(1)), change: patient, set: deaf, without: faultsBut(joinTwice, releaseUnanswered)},
		{name: "two keys, one lane, one caller gives up", budget: budget{giveUps: 1}, processes: together(mutex(1), mutex(1).of("l")), change: oneLane, set: deaf},
		{name: "two keys, requests come twice", budget: budget{faults: 2}, processes: together(mutex(1), mutex(1).of("l")), change: patient, set: eager, without: twiceInHaste},
		{name: "closing, two claims of a key, one is not released", budget: budget{closes: 1, refusals: 1, cuts: 1}, processes: together(semaphore, semaphore), set: eager, without: closesTwoClaims},
		{name: "closing after a fail-over, cut off", budget: budget{closes: 1, cuts: 1, failOvers: 1}, processes: each(mutex(1)), change: brisk, set: final, without: closesAfterFailOver},
		{name: "two keys, a fail-over", budget: budget{failOvers: 1}, processes: together(mutex(1), mutex(1).of("l")), set: final, without: inHaste},
		{name: "two keys, waiters are read", processes: [][]caller{{mutex(1), mutex(1).of("l")}, {mutex(1), mutex(1).of("l")}}, change: readsWaiters, without: waitersRead},
		{name: "a lease, a freeze", budget: budget{freezes: 1}, processes: each(mutex(1).lease(6 * time.Second)), set: deaf},
		{name: "two keys, waiters for leases are read, and their session is deleted", budget: budget{expels: 1}, processes: [][]caller{{mutex(1), mutex(1).of("l")}, {mutex(1).lease(time.Minute), mutex(1).lease(time.Minute).of("l")}}, change: onePoll, without: waitersExpelled},
		{name: "two keys, closing", budget: budget{closes: 1}, processes: together(mutex(1), mutex(1).of("l").auto()), set: eager},
		{name: "two keys, closing, cut off", budget: budget{closes: 1, cuts: 1}, processes: together(mutex(1), mutex(1).of("l")), set: eager, without: closingCutOff},
		{name: "two keys, closing, refused", budget: budget{closes: 1, refusals: 1}, processes: together(mutex(1), mutex(1).of("l")), set: eager, without: closing},
		{name: "two keys, the record of one is deleted", budget: budget{deletes: 1}, processes: together(mutex(1).staying(), mutex(1).of("l").staying()), set: eager},
		{name: "notice", budget: budget{windDown: 1}, processes: together(mutex(1), mutex(1)), set: deaf},
		{name: "observers", budget: budget{observes: 2, faults: 1}, processes: each(mutex(1)), set: deaf, without: inHaste},
		{name: "observers, and a slow listener", budget: budget{observes: 2, slow: 1}, processes: each(mutex(1)), without: inHaste},
		{name: "observers, cut off", budget: budget{observes: 1, cuts: 1}, processes: each(mutex(1)), set: eager},
		{name: "observers, closing", budget: budget{observes: 1, closes: 1, faults: 1}, processes: each(mutex(1)), set: eager, without: inHaste},
		{name: "observed", budget: budget{faults: 1}, processes: each(mutex(1)), set: observed},
		{name: "a record is deleted", budget: budget{deletes: 1}, processes: each(mutex(1).staying(), mutex(1)), set: eager},
		{name: "a record is deleted, cut off", budget: budget{deletes: 1, cuts: 1}, processes: each(mutex(1).staying()), set: deaf},
		{name: "a record is deleted twice", budget: budget{deletes: 2}, processes: each(mutex(1).staying()), set: deaf},
		{name: "a record is deleted, two callers", budget: budget{deletes: 1}, processes: together(mutex(2), mutex(1)), set: deaf},
		{name: "a record is deleted, readers", budget: budget{deletes: 1}, processes: [][]caller{{reader(1), reader(1)}, {writer(1)}}, set: eager},
		{name: "a record is deleted, lingering", budget: budget{deletes: 1}, processes: each(mutex(2)), change: lingers, set: deaf},
		{name: "a record and its session's are deleted, a lease", budget: budget{deletes: 1, expels: 1, extends: 1}, processes: each(mutex(1).lease(24 * time.Second)), set: deaf},
		{name: "a record is deleted, a lease", budget: budget{deletes: 1, extends: 1}, processes: each(mutex(1).lease(12 * time.Second)), set: deaf},
		{name: "two fail-overs", budget: budget{failOvers: 2}, processes: each(mutex(2)), set: deaf},
		{name: "a fail-over, two callers", budget: budget{failOvers: 1}, processes: together(mutex(1), mutex(1)), change: noHandOff, set: deaf},
		{name: "a fail-over, two processes", budget: budget{failOvers: 1}, processes: each(mutex(1), mutex(1))},
		{name: "a fail-over, a fault", budget: budget{failOvers: 1, faults: 1}, processes: each(mutex(1)), change: patient, set: deaf},
		{name: "a fail-over, no copies", budget: budget{failOvers: 1, faults: 1}, processes: each(mutex(1)), set: final},
		{name: "a deposed primary", budget: budget{failOvers: 1, deposed: 1}, processes: each(mutex(2)), set: deaf},
		{name: "a deposed primary, two processes", budget: budget{failOvers: 1, deposed: 2}, processes: each(mutex(1), mutex(1)), set: eager, without: astrayInHaste},
		{name: "a deposed primary, one caller gives up", budget: budget{failOvers: 1, deposed: 1, giveUps: 1}, processes: each(mutex(1), mutex(1)), set: routed, without: astrayInHaste},
		{name: "a deposed primary reads what is held", budget: budget{failOvers: 1, deposed: 1, faults: 1}, processes: each(mutex(1), mutex(1)), set: routed, without: readAstray},
		{name: "a deposed primary, waiters are read", budget: budget{failOvers: 1, deposed: 1}, processes: [][]caller{{mutex(1), mutex(1).of("l")}, {mutex(1), mutex(1).of("l"), breaker().of("m")}}, change: readsWaiters, without: waitersRead},
		{name: "a deposed primary, two calls of Break", budget: budget{failOvers: 1, deposed: 1}, processes: [][]caller{{mutex(1)}, {breaker(), breaker()}}, set: deafRouted, without: breakAstray},
		{name: "a deposed primary, a value is published", budget: budget{failOvers: 1, deposed: 1, publishes: 1}, processes: each(mutex(1)), set: deafRouted, without: publishAstray},
		{name: "a deposed primary, a lease", budget: budget{failOvers: 1, deposed: 1, extends: 1}, processes: each(mutex(1).lease(6 * time.Second)), set: deaf},
		{name: "a deposed primary, a lease of an expired session", budget: budget{failOvers: 1, deposed: 1, extends: 1, expels: 1}, processes: each(mutex(1).lease(45 * time.Second)), set: eager, without: extendAstray},
		{name: "a deposed primary does not know the successor", budget: budget{failOvers: 1, deposed: 1, faults: 1}, processes: each(mutex(1).passing(), mutex(1)), change: impatient, set: routed, without: releaseAstray},
		{name: "a fail-over, readers", budget: budget{failOvers: 1}, processes: together(reader(1), reader(1)), set: deaf},

		{name: "a semaphore", processes: [][]caller{{semaphore, semaphore}, {semaphore}}, set: eager, long: true},
		{name: "progress, a break", budget: budget{progress: 1, breaks: 1}, processes: together(mutex(1).within(3*time.Second).leaves(driver.Release{Keep: 6 * time.Second}), mutex(1)), set: deaf, long: true},
		{name: "kept as said before, and a break", budget: budget{breaks: 1, windDown: 1}, processes: together(mutex(1).auto().passing().leaves(driver.Release{Keep: 6 * time.Second}), mutex(1)), set: deaf, long: true},
		{name: "two processes, one gives up", budget: budget{giveUps: 1}, processes: each(mutex(1), mutex(1)), long: true},
		{name: "two processes, one closes", budget: budget{closes: 1}, processes: each(mutex(1), mutex(1)), long: true},
		{name: "two processes, a fault", budget: budget{faults: 1}, processes: each(mutex(1), mutex(1)), set: eager, long: true},
		{name: "one caller twice, two faults", budget: budget{faults: 2}, processes: each(mutex(2)), set: deaf, long: true},
		{name: "lingering, two processes, a slow listener", budget: budget{slow: 1}, processes: each(mutex(1), mutex(1)), change: lingers, long: true},
		{name: "a lock by force, a fault", budget: budget{faults: 1}, processes: each(mutex(1).staying(), mutex(1).forces()), set: eager, long: true},
		{name: "a lease, others wait, a fault", budget: budget{faults: 1, extends: 1}, processes: each(mutex(1).lease(6*time.Second), mutex(1)), set: eager, long: true},
		{name: "a semaphore, a crash", budget: budget{crashes: 1}, processes: [][]caller{{semaphore}, {semaphore, semaphore}}, set: eager, long: true},
		{name: "one lane, a fault", budget: budget{faults: 1}, processes: together(mutex(1), mutex(1)), change: oneLane, long: true},
		{name: "a process is cut off, and the clock steps", budget: budget{cuts: 1, steps: 2}, processes: each(mutex(1), mutex(1)), set: eager, long: true, without: cutOffWith("clock steps")},
		{name: "closing, a fault", budget: budget{closes: 1, faults: 1}, processes: together(mutex(1), mutex(1).auto()), set: deaf, long: true},
	}
}

// Large worlds are explored by random walks, each from a seed. Every run of the test, including runs on mutants, tries
// one fixed seed. With LEASEHOLD_LONG it tries a few more seeds. Other seeds are tried only on request:
//
//	LEASEHOLD_SEED=7 go test ./internal/explore -run TestLargeWorlds                         # repeats what seed 7 has found
//	LEASEHOLD_SEED=7 LEASEHOLD_WORLDS=1000 go test -v ./internal/explore -run TestLargeWorlds # seeds 7 to 1006
//
// A seed always makes the same 20,000 walks; with -short, it makes only the first 4,000. Each seed is a subtest, so
// the other seeds are tried even if one finds an error. The failure prints the command that repeats the seed.
func TestLargeWorlds(t *testing.T) {
	testkit.Large(t)
	asked := func(name string, otherwise uint64) uint64 {
		s := os.Getenv(name)
		if s == "" {
			return otherwise
		}
		n, err := strconv.ParseUint(s, 10, 64)
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		return n
	}
	const onFile = 20782
	first, worlds := asked("LEASEHOLD_SEED", 0), asked("LEASEHOLD_WORLDS", 1)
	if os.Getenv("LEASEHOLD_SEED")+os.Getenv("LEASEHOLD_WORLDS") == "" {
		first, worlds = onFile, uint64(testkit.Rounds(1, 5))
	}
	for seed := first; seed-first < worlds; seed++ {
		name := strconv.FormatUint(seed, 10)
		if seed == onFile {
			name = "on file"
		}
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			walks(t, seed)
		})
	}
}

func walks(t *testing.T, seed uint64) {
	walks := uint64(20_000)
	if testing.Short() {
		walks = 4_000
	}
	steps := 0
	for n := range walks {
		passed, err := walk(rand.New(rand.NewPCG(seed, n)))
		if steps += len(passed); err != nil {
			t.Fatalf("LEASEHOLD_SEED=%d go test ./internal/explore -run TestLargeWorlds\nwalk %d, after %d steps: %v\n%s", seed, n, len(passed), err, strings.Join(passed, "\n"))
		}
	}
	t.Logf("seed %d: %d walks, %d steps", seed, walks, steps)
}

// randomSetting returns the setting of a large world, chosen at random.
func randomSetting(r *rand.Rand) setting {
	s := setting{budget: budget{
		faults: r.IntN(6), refusals: r.IntN(6) / 5, giveUps: r.IntN(3), freezes: r.IntN(2), crashes: r.IntN(4) / 3, cuts: r.IntN(4),
		closes: r.IntN(2), breaks: r.IntN(3), windDown: r.IntN(4) / 3, steps: r.IntN(3), extends: r.IntN(3), slow: r.IntN(3),
	}}
	linger, lanes, poll, handOff, quiet := r.IntN(3) == 0, r.IntN(4) == 0, r.IntN(2) == 0, r.IntN(8) == 0, r.IntN(4) == 0
	s.change = func(c *core.Config) {
		if linger {
			c.Linger = 2 * time.Second
		}
		if lanes {
			c.Lanes, c.PollLanes = 1, 1
		}
		if poll {
			c.Poll = 0
		}
		if handOff {
			c.HandOff = 0
		}
	}
	s.set = func(w *world) { w.deaf, w.store.observed = quiet, linger }
	kind := r.IntN(6)
	for range 2 + r.IntN(2) {
		var callers []caller
		for range 1 + r.IntN(3) {
			o := mutex(1 + r.IntN(3))
			switch kind {
			case 0:
				if o = reader(o.rounds); r.IntN(3) == 0 {
					o = writer(o.rounds)
				}
			case 1:
				o = o.as(driver.KindSemaphore, 1+r.Int64N(2), 3)
			case 2:
				o.want.Kind, o.want.Tick = driver.KindPeriodic, 1+r.Int64N(3)
				if r.IntN(2) == 0 {
					o = o.leaves(driver.Release{Seal: o.want.Tick})
				}
			case 3:
				switch r.IntN(4) {
				case 0:
					o = o.lease(6 * time.Second)
				case 1:
					o = o.lease(time.Minute)
				}
			}
			switch r.IntN(12) {
			case 0:
				o = o.tries()
			case 1:
				o = o.insisting()
			case 2:
				if o.want.Tick == 0 { // the library has no call to force a hold of a Periodic
					o = o.forces()
				}
			case 3:
				o = o.auto()
			case 4:
				if o.leave.Seal > 0 || o.want.Kind == driver.KindSemaphore || o.want.Lease > 0 {
					break
				}
				o = o.leaves(driver.Release{Keep: 3 * time.Second})
			case 5:
				o = o.passing()
			case 6:
				o = breaker()
			}
			callers = append(callers, o)
		}
		s.processes = append(s.processes, callers)
	}
	if kind > 3 { // these callers have no leases, so reuse the number of extends as the number of progress reports
		if s.budget.progress = s.budget.extends; s.budget.progress > 0 {
			s.processes[0][0].limit = 3 * time.Second
		}
	}
	if r.IntN(20) == 0 { // one caller uses the key as another kind
		o := &s.processes[0][0]
		*o = mutex(o.rounds).as(driver.KindSemaphore, 1, 2)
	}
	if r.IntN(4) == 0 {
		s.budget.failOvers = 1 + r.IntN(2)
		if set := s.set; r.IntN(2) == 0 {
			s.set = func(w *world) { set(w); w.store.final = true }
		}
		s.budget.deposed = r.IntN(5)
		if set := s.set; r.IntN(3) == 0 {
			s.set = func(w *world) { set(w); w.store.early = false }
		}
	}
	longer, narrow, thrice := r.IntN(4) > 0, r.IntN(2) == 0, r.IntN(4) == 0
	change, set := s.change, s.set
	s.change = func(c *core.Config) {
		change(c)
		if longer { // pauses grow with each failure
			c.Retry, c.Backoff = time.Second, 4*time.Second
		}
		if narrow {
			c.LeastMargin, c.LeastGrace = 0, 0
		}
	}
	s.set = func(w *world) {
		set(w)
		w.thrice = thrice
	}
	if r.IntN(8) == 0 { // nothing is late
		b := &s.budget
		b.faults, b.refusals, b.freezes, b.cuts, b.slow, b.failOvers, b.deposed = 0, 0, 0, 0, 0, 0, 0
	}
	return s
}

// walk takes a random walk through a large world.
func walk(r *rand.Rand) (passed []string, err error) { return newWorld(randomSetting(r)).walk(r, 200) }

// walk takes the given number of random steps, or fewer if nothing more can happen, and then continues without faults
// until every caller is served.
func (w *world) walk(r *rand.Rand, steps int) (passed []string, err error) {
	var all list
	for range steps {
		if all = w.actions(false, all); len(all) == 0 {
			break
		}
		a := &all[r.IntN(len(all))]
		for r.IntN(10) > 0 && a.rare {
			a = &all[r.IntN(len(all))]
		}
		passed = append(passed, a.String())
		if err := a.on(w); err != nil {
			return passed, err
		}
	}
	return passed, w.ends()
}

// Two walks with the same seed take the same steps, because a world does not depend on map order, a real clock or any
// other randomness.
func TestWalksRepeat(t *testing.T) {
	for n := range uint64(50) {
		first, err := walk(rand.New(rand.NewPCG(1, n)))
		again, err2 := walk(rand.New(rand.NewPCG(1, n)))
		if fmt.Sprint(err) != fmt.Sprint(err2) || !slices.Equal(first, again) {
			t.Fatalf("walk %d took other steps:\n%s\n\n%s", n, strings.Join(first, "\n"), strings.Join(again, "\n"))
		}
	}
}
