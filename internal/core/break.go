package core

import (
	"errors"
	"time"

	"github.com/leasehold-go/leasehold/dsync/driver"
)

// A Break is a Call for nothing: a Want whose Weight is 0. Its caller waits until the claims that hold the key at its
// first reading have been given up, and then gets the error [ErrFree]. It waits as a claim with First does, and the same
// code revokes claims, expires sessions, retries and polls for both. But the store never has its claim, and it is in no
// queue of this process. Its request is a reading of the key. If sessions have expired, its request is an Acquire that
// never joins the queue, because its NotAfter is long past: it only drops the claims of those sessions. To release those
// claims would be wrong: since the reading, a holder may have closed its session and left its claim in the store for the
// rest of its grace.

// breaks reports whether the call is a Break.
func (w *Want) breaks() bool { return w.Weight == 0 }

func (cl *claim) breaks() bool { return cl.call != nil && cl.call.breaks() }

func (c *Core) forBreak(cl *claim, _ *args) bool { return cl.breaks() }

func (c *Core) breakKey(a *Call) {
	c.last.claim++
	cl := c.addClaim(c.last.claim)
	cl.call, cl.wait, cl.request = a, &wait{}, driver.Claim{Key: a.Key}
	c.fire(cl, requested, args{})
}

// sendBreak sends the request of a Break.
func (c *Core) sendBreak(cl *claim, poll bool) {
	r := cl.request
	cmd := &Command{Op: Load, Key: r.Key}
	if expired := cl.wait.named; len(expired) > 0 {
		r.ID = c.claimID(cl.number)
		cmd = &Command{Op: Acquire, Session: r.Session, Edit: driver.Edit{Acquire: &driver.Acquire{Claim: r, Expired: expired, NotAfter: time.Unix(0, 0)}}}
	}
	cl.command = c.sendNow(&sent{session: r.Session, claim: cl.number, poll: poll}, cmd)
}

// breakAnswered handles the answer to the request of a Break. The session registers only if somebody holds the key.
func (c *Core) breakAnswered(cl *claim, r *Reply) {
	w, st := cl.wait, r.State
	switch {
	case r.Lost, errors.Is(r.Err, driver.ErrSessionExpired):
		c.fire(cl, unanswered, args{cause: r.Err})
		return
	case errors.Is(r.Err, driver.ErrMismatch): // the key is now in use as another kind
		w.ahead = nil
		c.fire(cl, again, args{})
		return
	case r.Err != nil:
		c.fire(cl, refused, args{cause: r.Err})
		return
	}
	cl.failed = 0
	c.sawClock(st.Now)
	first := w.revokes == nil
	if first {
		w.revokes = make(map[string]revoking)
		for i := range st.Holders {
			w.revokes[st.Holders[i].Claim] = revoking{due: true}
		}
	}
	st.Holders, st.WaitersAhead = nil, nil
	for _, h := range r.State.Holders {
		if _, asked := w.revokes[h.Claim]; asked && !h.Ended(st.Now) {
			st.Holders = append(st.Holders, h)
		}
	}
	switch {
	case len(st.Holders) == 0:
		c.fire(cl, refused, args{cause: ErrFree})
	case c.session.id == "":
		c.needSession()
	default:
		if cl.request.Session != c.session.id && c.listener.keys[st.Key] == 0 {
			c.stopListening() // waits opens another, which hears of the key's changes
		}
		cl.request.Session, cl.request.Kind, cl.request.Weight, cl.request.Limit = c.session.id, st.Kind, 1, st.Limit
		c.ahead(w, &st)
		c.fire(cl, queued, args{})
	}
}

// breaksWaiting returns the Breaks that wait until the session is registered.
func (c *Core) breaksWaiting() []*claim {
	return c.those(func(cl *claim) bool { return cl.breaks() && cl.state == joining && cl.command == 0 && cl.due == never })
}

// endBreak gives the caller of a Break its result.
func (c *Core) endBreak(cl *claim, x *args) { c.deny(cl.call, x.cause) }

// breakAnew makes a Break go on after the session is lost.
func (c *Core) breakAnew(cl *claim, x *args) {
	cl.wait.ahead, cl.request.Session = nil, ""
	c.join(cl, x)
}
