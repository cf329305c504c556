package core

import (
	"errors"
	"slices"
	"time"

	"github.com/leasehold-go/leasehold/dsync/driver"
)

// A Break is a Call with a Weight of 0. Its caller waits until the claims that held the key at its first reading have
// been given up, and then gets the error [ErrFree]. It waits as a claim with First does, and the same code revokes claims,
// expires sessions, retries and polls for both. But it has no claim in the store, and is in no queue of this process. Its
// request is a reading of the key. The first is sent once a heartbeat or registration that follows the Call has been
// acknowledged, because a deposed primary would not show the latest holders. Once sessions ahead have expired, its
// request is an Acquire that only drops their claims: it never joins, because its NotAfter is long past. To release those
// claims would be wrong, because since the reading a holder may have closed its session and left its claim in the store
// for the rest of its grace.

// breaks reports whether the claim is a Break's.
func (c *Core) breaks(cl *claim, _ *args) bool { return cl.call != nil && cl.call.Weight == 0 }

func (c *Core) breakKey(a *Call) {
	c.last.claim++
	cl := c.addClaim(c.last.claim)
	cl.call, cl.wait, cl.request = a, &wait{since: c.now}, driver.Claim{Key: a.Key}
	c.doubt(cl)
	c.fire(cl, requested, args{})
	c.needSession()
}

// sendBreak sends the request of a Break.
func (c *Core) sendBreak(cl *claim, poll bool) {
	r := cl.request
	cl.doubted = 0
	cmd := &Command{Op: Load, Key: r.Key}
	if expired := cl.wait.named; len(expired) > 0 {
		r.ID = c.claimID(cl.number)
		cmd = &Command{Op: Acquire, Session: r.Session, Edit: driver.Edit{Acquire: &driver.Acquire{Claim: r, Expired: expired, NotAfter: time.Unix(0, 0)}}}
	}
	cl.command = c.sendNow(&sent{claim: cl.number, poll: poll, Command: cmd})
}

// breakAnswered handles the answer to the request of a Break.
func (c *Core) breakAnswered(cl *claim, r *Reply) {
	switch {
	case r.Lost, errors.Is(r.Err, driver.ErrSessionExpired):
		c.fire(cl, unanswered, args{cause: r.Err})
	case errors.Is(r.Err, driver.ErrMismatch): // the key is now in use as another kind
		cl.wait.ahead = nil
		c.fire(cl, again, args{})
	case r.Err != nil:
		c.fire(cl, refused, args{cause: r.Err})
	default:
		cl.failed = 0
		c.sawClock(r.State.Now)
		c.breakRead(cl, r.State)
	}
}

// breakRead handles a reading of the key.
func (c *Core) breakRead(cl *claim, st driver.State) {
	w, holders := cl.wait, st.Holders
	if w.revokes == nil { // this is the first reading
		w.revokes = make(map[string]revoking)
		for i := range holders {
			w.revokes[holders[i].Claim] = revoking{due: true}
		}
	}
	st.Holders, st.WaitersAhead = nil, nil
	for _, h := range holders {
		if _, wanted := w.revokes[h.Claim]; wanted && !h.Ended(st.Now) {
			st.Holders = append(st.Holders, h)
		}
	}
	switch {
	case len(st.Holders) == 0:
		c.fire(cl, refused, args{cause: ErrFree})
		return
	case c.session.id == "":
		c.doubt(cl)
		c.needSession()
		return
	case cl.request.Session != c.session.id && c.listener.keys[st.Key] == 0:
		c.stopListening() // the next hears of the key's changes
		c.listen(0)       // now: other callers of this process may wait for notices
	}
	cl.request.Session, cl.request.Kind, cl.request.Weight, cl.request.Limit = c.session.id, st.Kind, 1, st.Limit
	c.ahead(w, &st)
	c.fire(cl, queued, args{})
}

// breaksWaiting returns the Breaks that wait for a heartbeat or registration.
func (c *Core) breaksWaiting() []*claim {
	return slices.DeleteFunc(c.inDoubt(), func(cl *claim) bool { return !c.breaks(cl, nil) })
}

// endBreak gives the caller of a Break its result.
func (c *Core) endBreak(cl *claim, x *args) { c.deny(cl.call, x.cause) }

// breakAnew makes a Break go on after the session is lost.
func (c *Core) breakAnew(cl *claim, x *args) {
	cl.wait.ahead = nil
	c.join(cl, x)
}
