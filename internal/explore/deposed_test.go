package explore

import (
	"errors"
	"reflect"
	"time"

	"github.com/leasehold-go/leasehold/dsync/driver"
	"github.com/leasehold-go/leasehold/internal/core"
)

// A deposed primary goes on answering for a while after a fail-over. Nothing that it writes is ever committed. It is a
// value: its stores are replaced, never changed.
type deposed struct {
	committed *store // what its majority reads show: the store as the fail-over has left it
	own       *store // its data: early releases that the fail-over has undone, and all that it has executed since
	ahead     bool   // own has a write that is not committed
}

// execute executes a command on the deposed primary, and returns the deposed primary after that. answers is false if
// the command never gets an answer, because a write in own must be committed first.
//
// An early release is answered at once, and so are reads. Those of keys show what is committed, and those of sessions
// show own. A command that has nothing to write waits for earlier writes only. A heartbeat always writes its time:
// the clock has moved since the fail-over, even if no time has passed here.
func (d *deposed) execute(cmd *core.Command, ttl time.Duration, at core.Instant) (next *deposed, r core.Reply, answers bool) {
	switch cmd.Op {
	case core.Load, core.Keys:
		return d, d.committed.execute(cmd, ttl, at), true
	case core.Read:
		return d, d.own.execute(cmd, ttl, at), true
	case core.Notify: // the notices are lost
		return d, r, true
	}
	own := d.own.clone()
	r = own.execute(cmd, ttl, at)
	early := r.Applied != driver.OpTime{}
	changed := cmd.Op == core.Heartbeat && r.Err == nil ||
		!reflect.DeepEqual(own.keys, d.own.keys) || !reflect.DeepEqual(own.sessions, d.own.sessions)
	if !changed {
		return d, r, !d.ahead
	}
	return &deposed{d.committed, &own, true}, r, early
}

// failOver undoes the early releases that are not committed yet. If commands may still reach the deposed primary, it
// goes on, and no process knows the new primary yet.
func (w *world) failOver() error {
	own, ahead := w.store.clone(), len(w.store.undo) > 0
	own.undo = nil
	w.store.failOver()
	w.forgetDeposed()
	if w.deposed > 0 {
		committed := w.store.clone()
		w.old = &deposed{&committed, &own, ahead}
	}
	return w.stillHeld()
}

// forgetDeposed ends the deposed primary.
func (w *world) forgetDeposed() {
	w.old = nil
	for i := range w.nodes {
		w.nodes[i].met = false
	}
	for m := range w.mail {
		w.mail[m].met, w.mail[m].anew = false, false
	}
}

// reaches reports whether the command may be executed by the deposed primary. It may not if its process had sent it
// after the new primary answered a heartbeat or a registration.
func (w *world) reaches(l *letter) bool {
	return w.old != nil && w.deposed > 0 && l.command != nil && !l.executed && l.copies == 0 && !l.met
}

// deposedIsOver reports whether no command can reach the deposed primary any more.
func (w *world) deposedIsOver() bool {
	for m := range w.mail {
		if w.reaches(&w.mail[m]) {
			return false
		}
	}
	for i := range w.nodes {
		if n := &w.nodes[i]; !n.dead && !n.closed && !n.met {
			return w.deposed == 0
		}
	}
	return true
}

var errDeposed = errors.New("the primary stepped down")

// astray makes the deposed primary execute a command. If the command is not answered, fails says that the sender gets
// an error at once. Otherwise it times out.
func (w *world) astray(m int, fails bool) error {
	w.deposed--
	l := &w.mail[m]
	next, r, answers := w.old.execute(l.command.Command, w.cfg.TTL, w.now)
	w.old = next
	if l.executed = true; l.answered { // nobody waits for the answer
		w.drop(m)
		return nil
	}
	l.late = false
	switch {
	case !answers && !fails:
		return nil
	case !answers:
		r = core.Reply{Lost: true, Err: errDeposed}
	}
	r.Command, r.Session, r.State.Final = l.command.ID, l.command.Session, w.store.final
	l.reply = &r
	if w.atOnce(l) {
		return w.arrive(m)
	}
	l.answered = true
	return nil
}
