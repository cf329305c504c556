package explore

import (
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/leasehold-go/leasehold/dsync/driver"
	"github.com/leasehold-go/leasehold/internal/core"
)

// A world is some sessions, what they say to each other and to the store, and how many faults may still
// come. It is a value: a step makes a new one.
type world struct {
	now     core.Instant
	store   store
	nodes   []node
	mail    []letter // in the order in which it was sent
	tokens  map[string]int64
	ids     int // that were given to sessions
	letters int // that were sent

	faults  int // requests, replies and notices that may still be lost, late or repeated
	giveUps int // callers that may still give up
	freezes int // processes that may still freeze
	cuts    int // processes that may still be cut off from the store for a while
	closes  int // sessions that may still close
	breaks  int // times that somebody may still ask for the key
	steps   int // steps of the store's clock within the margin that may still come
}

// A node is one process.
type node struct {
	core    *core.Core
	frozen  bool
	cut     bool
	closed  bool
	callers []caller
}

// A caller locks and unlocks a key some times.
type caller struct {
	key    string
	rounds int // that are left
	call   uint64
	hold   uint64
	token  int64
	ended  core.Instant // when Lost closed; 0: it has not
}

// A letter is a command on its way, its reply, or a notice.
type letter struct {
	number int
	node   int // whose command, or to whom

	command *core.Send // nil: a notice
	notice  driver.Notice

	sent     core.Instant
	answered bool        // its sender has had a reply, or has given up waiting for one
	executed bool        // and is kept only because its reply, or a copy of it, is still to come
	reply    *core.Reply // on its way back
	late     bool        // it may take its time: time passes although it has not arrived
	copies   bool        // it comes once more after it was executed
}

var config = &core.Config{
	TTL: 12 * time.Second, Margin: time.Second, Grace: time.Second, Heartbeat: 4 * time.Second,
	Attempt: 2 * time.Second, Poll: 8 * time.Second, HandOff: time.Second, Retry: 4 * time.Second, Backoff: 4 * time.Second,
	Rand: func(n int64) int64 { return n / 2 }, // so all times but the deadline's are whole seconds
}

func (w *world) clone() *world {
	n := *w
	n.store = w.store.clone()
	n.nodes = slices.Clone(w.nodes)
	for i := range n.nodes {
		n.nodes[i].core = w.nodes[i].core.Clone()
		n.nodes[i].callers = slices.Clone(w.nodes[i].callers)
	}
	n.mail = slices.Clone(w.mail)
	n.tokens = make(map[string]int64, len(w.tokens))
	for k, t := range w.tokens {
		n.tokens[k] = t
	}
	return &n
}

// step has a node take an event, and does its effects.
func (w *world) step(i int, e core.Event) error {
	n := &w.nodes[i]
	deadline := core.Instant(1 << 62)
	if n.core.Session() != "" {
		deadline = n.core.Deadline()
	}
	for _, f := range n.core.Step(w.now, e) {
		switch f := f.(type) {
		case core.Send:
			if f.Op == core.Register {
				w.ids++
				f.Session = fmt.Sprint("s", w.ids)
			}
			w.letters++
			w.mail = append(w.mail, letter{number: w.letters, node: i, command: &f, sent: w.now, executed: n.cut})
		case core.Notify:
			for _, notice := range f.Notices {
				for j := range w.nodes {
					if w.nodes[j].core.Session() == notice.Session && !n.cut && !w.nodes[j].cut {
						w.letters++
						w.mail = append(w.mail, letter{number: w.letters, node: j, notice: notice, sent: w.now})
					}
				}
			}
		case core.Deliver:
			if err := w.deliver(i, f); err != nil {
				return err
			}
		case core.End:
			for c := range n.callers {
				if n.callers[c].hold == f.Hold {
					n.callers[c].ended = min(w.now, deadline) // later only after a freeze
				}
			}
		case core.Closed:
			n.closed = true
		}
	}
	return nil
}

// deliver gives a hold to its caller, and checks that it may have it.
func (w *world) deliver(i int, d core.Deliver) error {
	for j := range w.nodes {
		for c := range w.nodes[j].callers {
			o := &w.nodes[j].callers[c]
			if d.Hold == 0 || o.hold == 0 || o.key != w.keyOf(i, d.Call) {
				continue
			}
			if i == j {
				return fmt.Errorf("%s delivers to call %d, and the holder of %d here is not done", name(i), d.Call, o.hold)
			}
			if w.protected(j, o) {
				return fmt.Errorf("two holders: %s delivers to call %d, and hold %d of %s is not over", name(i), d.Call, o.hold, name(j))
			}
		}
	}
	for c := range w.nodes[i].callers {
		o := &w.nodes[i].callers[c]
		if o.call != d.Call {
			continue
		}
		o.call = 0
		if d.Hold == 0 {
			o.rounds = 0
			return nil
		}
		o.hold, o.token, o.ended = d.Hold, d.Token, 0
		if d.Token <= w.tokens[o.key] {
			return fmt.Errorf("token %d after %d", d.Token, w.tokens[o.key])
		}
		w.tokens[o.key] = d.Token
		return nil
	}
	if d.Hold != 0 {
		return w.step(i, core.Done{Hold: d.Hold}) // its caller has given up
	}
	return nil
}

// protected reports whether nobody else may hold what o holds: Lost is open, or closed for less than the
// grace. A process that is frozen past its deadline cannot be told; whatever it does next, it sees that.
func (w *world) protected(i int, o *caller) bool {
	switch {
	case o.ended != 0:
		return w.now.Sub(o.ended) < config.Grace
	case w.nodes[i].frozen:
		return w.now < w.nodes[i].core.Deadline()
	}
	return true
}

// keyOf returns the key that a call of a node is for.
func (w *world) keyOf(i int, call uint64) string {
	for _, o := range w.nodes[i].callers {
		if o.call == call {
			return o.key
		}
	}
	return ""
}

func name(i int) string { return string(rune('A' + i)) }

// An action is one way in which a world can go on.
type action struct {
	what string
	do   func(w *world) error
}

// actions returns all that can happen next. Without faults it is what a fair network and scheduler do.
func (w *world) actions(fair bool) (all []action) {
	add := func(what string, do func(w *world) error) { all = append(all, action{what, do}) }
	for m := range w.mail {
		l := &w.mail[m]
		if fair && len(all) > 0 {
			return all
		}
		w.letterActions(m, l, fair, add)
	}
	if fair && len(all) > 0 {
		return all
	}
	for i := range w.nodes {
		n := &w.nodes[i]
		if n.frozen {
			add(name(i)+" goes on after a freeze", func(w *world) error {
				w.nodes[i].frozen = false
				return w.step(i, core.Tick{})
			})
			continue
		}
		if n.core.Next() <= w.now {
			add(name(i)+"'s timer", func(w *world) error { return w.step(i, core.Tick{}) })
			if fair {
				return all
			}
		}
		w.callerActions(i, fair, add)
		if fair && len(all) > 0 {
			return all
		}
		if n.cut {
			add(name(i)+" is no longer cut off", func(w *world) error { w.nodes[i].cut = false; return nil })
			if fair {
				return all
			}
		} else if !fair && w.cuts > 0 {
			add(name(i)+" is cut off", func(w *world) error { w.cuts--; w.cutOff(i); return nil })
		}
		if !fair && w.freezes > 0 {
			add(name(i)+" freezes", func(w *world) error { w.nodes[i].frozen = true; w.freezes--; return nil })
		}
		if !fair && w.closes > 0 && n.core.Session() != "" {
			add(name(i)+" closes", func(w *world) error {
				w.closes--
				for c := range w.nodes[i].callers {
					w.nodes[i].callers[c].rounds = 0
				}
				return w.step(i, core.Close{})
			})
		}
	}
	if !fair && w.breaks > 0 {
		for _, key := range slices.Sorted(maps.Keys(w.store.keys)) {
			for _, h := range w.store.keys[key].holders {
				add("the holder is asked to give the key up", func(w *world) error {
					w.breaks--
					i := w.nodeOf(h.Session, 0)
					return w.step(i, core.Noticed{Notice: driver.Notice{Type: driver.NoticeRevoke, Session: h.Session, Key: key, Claim: h.Claim}})
				})
			}
		}
	}
	if !fair && w.steps > 0 {
		d := -config.Margin * 9 / 10
		if w.store.skew < 0 {
			d = -w.store.skew
		}
		add(fmt.Sprintf("the store's clock steps by %v", d), func(w *world) error { w.steps--; w.store.skew += d; return nil })
	}
	if next, ok := w.nextTime(); ok && (!fair || len(all) == 0) {
		add(fmt.Sprintf("%v pass", next.Sub(w.now)), func(w *world) error { w.now = next; return nil })
	}
	return all
}

// letterActions adds what can become of a letter.
func (w *world) letterActions(m int, l *letter, fair bool, add func(string, func(*world) error)) {
	what := fmt.Sprintf("%s's %v", name(l.node), opOf(l))
	frozen := w.nodes[l.node].frozen
	switch {
	case l.command != nil && !l.answered && w.now >= l.sent.Add(config.Attempt):
		add(what+" times out", func(w *world) error {
			l := &w.mail[m]
			l.answered = true
			id, node := l.command.ID, l.node
			if l.executed {
				w.drop(m)
			}
			return w.step(node, core.Reply{Command: id, Lost: true})
		})
		if l.reply != nil && !frozen && w.now == l.sent.Add(config.Attempt) {
			add("the reply to "+what+" arrives in the last moment", func(w *world) error { return w.arrive(m) })
		}
		return
	case l.reply != nil:
		if !frozen {
			add("the reply to "+what+" arrives", func(w *world) error { return w.arrive(m) })
		}
		if !fair && w.faults > 0 && !l.late {
			add("the reply to "+what+" is delayed", func(w *world) error {
				w.faults--
				w.mail[m].late, w.mail[m].answered = true, false
				return nil
			})
		}
		return
	case l.command == nil:
		if !frozen {
			add("the notice to "+name(l.node)+" arrives", func(w *world) error {
				notice := w.mail[m].notice
				w.drop(m)
				return w.step(w.nodeOf(notice.Session, l.node), core.Noticed{Notice: notice})
			})
		}
	}
	if l.command != nil && !l.executed {
		add(what+" is executed", func(w *world) error { return w.execute(m, true) })
	}
	if fair || w.faults == 0 {
		return
	}
	switch {
	case l.command == nil:
		add("the notice to "+name(l.node)+" is lost", func(w *world) error { w.faults--; w.drop(m); return nil })
	case !l.executed && !l.late:
		add(what+" is lost", func(w *world) error {
			w.faults--
			w.mail[m].executed = true
			return nil
		})
		add(what+" is executed, and its reply is lost", func(w *world) error {
			w.faults--
			return w.execute(m, false)
		})
		if !l.copies {
			add(what+" will come twice", func(w *world) error { w.faults--; w.mail[m].copies = true; return nil })
		}
	}
	if !l.late && !l.executed {
		add(what+" is late", func(w *world) error { w.faults--; w.mail[m].late = true; return nil })
	}
}

// cutOff cuts a process off: all that is under way from or to it is lost, and so is what it sends.
func (w *world) cutOff(i int) {
	w.nodes[i].cut = true
	w.mail = slices.DeleteFunc(w.mail, func(l letter) bool { return l.node == i && (l.command == nil || l.answered && l.reply == nil) })
	for m := range w.mail {
		if l := &w.mail[m]; l.node == i {
			l.executed, l.answered, l.reply = true, false, nil // its sender waits for a reply in vain
		}
	}
}

// claimOf returns the claim that an edit is about, if it is about one.
func claimOf(e driver.Edit) driver.Claim {
	switch {
	case e.Join != nil:
		return e.Join.Claim
	case e.Leave != nil:
		return e.Leave.Claim
	}
	return driver.Claim{}
}

func opOf(l *letter) string {
	if l.command == nil {
		return "notice"
	}
	return fmt.Sprint(l.command.Op, " ", claimOf(l.command.Edit).ID)
}

// nodeOf returns the node that listens for the session, or i.
func (w *world) nodeOf(session string, i int) int {
	for j := range w.nodes {
		if w.nodes[j].core.Session() == session {
			return j
		}
	}
	return i
}

func (w *world) drop(m int) { w.mail = slices.Delete(w.mail, m, m+1) }

// execute has the store execute a command. Its reply is on its way then.
func (w *world) execute(m int, replies bool) error {
	l := &w.mail[m]
	r := w.store.execute(l.command.Command, config.TTL, w.now)
	r.Command, r.Session = l.command.ID, l.command.Session
	switch {
	case l.copies: // this was the first copy; the second may come at any later time
		l.copies, l.late = false, true
		if !l.answered && replies {
			w.letters++
			w.mail = append(w.mail, letter{number: w.letters, node: l.node, command: l.command, sent: l.sent, answered: true, executed: true, reply: &r})
			l.answered = true
		}
		return nil
	case l.answered:
		w.drop(m)
		return nil
	case !replies:
		l.executed = true
		return nil
	}
	l.executed, l.answered, l.late, l.reply = true, true, false, &r
	return nil
}

// arrive has the reply of a letter arrive.
func (w *world) arrive(m int) error {
	l := w.mail[m]
	w.drop(m)
	return w.step(l.node, *l.reply)
}

// callerActions adds what the callers of a node can do.
func (w *world) callerActions(i int, fair bool, add func(string, func(*world) error)) {
	for c := range w.nodes[i].callers {
		o := &w.nodes[i].callers[c]
		switch {
		case o.hold != 0:
			add(fmt.Sprintf("%s unlocks", name(i)), func(w *world) error {
				o := &w.nodes[i].callers[c]
				hold := o.hold
				o.hold, o.token = 0, 0
				o.rounds--
				return w.step(i, core.Done{Hold: hold})
			})
		case o.call != 0:
			if !fair && w.giveUps > 0 {
				add(fmt.Sprintf("%s gives up", name(i)), func(w *world) error {
					w.giveUps--
					o := &w.nodes[i].callers[c]
					call := o.call
					o.call = 0
					o.rounds--
					return w.step(i, core.GiveUp{Call: call})
				})
			}
		case o.rounds > 0:
			add(fmt.Sprintf("%s locks", name(i)), func(w *world) error {
				w.letters++
				o := &w.nodes[i].callers[c]
				o.call = uint64(w.letters)
				return w.step(i, core.Acquire{Call: o.call, Key: o.key})
			})
		}
	}
}

// nextTime returns the next moment at which something can happen by itself. Time does not pass while a
// letter that is not late is under way, or a timer is due.
func (w *world) nextTime() (next core.Instant, ok bool) {
	earlier := func(i core.Instant) {
		if i > w.now && (!ok || i < next) {
			next, ok = i, true
		}
	}
	for i := range w.mail {
		l := &w.mail[i]
		if !l.late && (l.reply != nil && !w.nodes[l.node].frozen || !l.executed && l.command != nil || l.command == nil && !w.nodes[l.node].frozen) {
			return 0, false
		}
		if l.command != nil && !l.answered {
			if due := l.sent.Add(config.Attempt); due <= w.now {
				return 0, false
			} else {
				earlier(due)
			}
		}
	}
	for i := range w.nodes {
		n := &w.nodes[i]
		if at := n.core.Next(); !n.frozen && at <= w.now {
			return 0, false
		} else if !n.frozen && at < 1<<62 {
			earlier(at)
		} else if n.frozen && n.core.Session() != "" {
			earlier(n.core.Deadline())
			earlier(n.core.Deadline().Add(config.TTL))
		}
		for _, o := range n.callers {
			if o.hold != 0 && o.ended != 0 {
				earlier(o.ended.Add(config.Grace))
			}
		}
	}
	return next, ok
}

// done reports whether all callers have had what they wanted, and nothing is left of living sessions.
func (w *world) done() bool {
	for i := range w.nodes {
		for _, o := range w.nodes[i].callers {
			if o.hold != 0 || o.call != 0 || o.rounds > 0 {
				return false
			}
		}
	}
	for _, k := range w.store.keys {
		for _, h := range k.holders {
			if w.alive(h.Session) {
				return false
			}
		}
		for _, q := range k.queue {
			if w.alive(q.Session) {
				return false
			}
		}
	}
	return true
}

func (w *world) alive(session string) bool {
	for i := range w.nodes {
		if w.nodes[i].core.Session() == session {
			return true
		}
	}
	return false
}
