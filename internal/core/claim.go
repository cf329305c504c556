package core

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/leasehold-go/leasehold/dsync/driver"
)

// A claim is one request of the session for a key, as the store has it. Package core has its table.
type claim struct {
	number  uint64
	id      string
	key     string
	session string
	state   state

	call    uint64  // the caller that waits for it, in joining and waiting; 0: none
	command uint64  // under way for it; 0: none
	due     Instant // its timer; never: none
	poll    Instant // in waiting: when it requests again, whatever happens
	failed  int     // requests or releases that were not answered, in a row

	requests int       // to join, that were sent
	answers  int       // to those
	mayBe    bool      // the store has it, by a reply or a notice
	void     time.Time // by the store's clock: after that no request, or copy of one, can join

	ahead   []string // sessions that stand in the way, by the last reply
	expired []string // those that the last request named

	token   int64 // of the present hold
	first   int64 // of the grant
	alone   bool  // nobody waited at the grant, and its first request was answered with it
	granted Instant
	hold    uint64 // the present hold, or the last

	doubted uint64 // the acknowledged heartbeats when the store said first that it is not there; 0: never
}

type state int

const (
	joining state = iota
	waiting
	held
	windingDown
	lost
	leaving
	left
)

func (s state) String() string {
	return [...]string{"joining", "waiting", "held", "windingDown", "lost", "leaving", "left"}[s]
}

// A trigger is what moves a claim.
type trigger int

const (
	granted    trigger = iota // by a reply or a notice
	queued                    // reply: it waits
	tooLate                   // reply: the request came after its notAfter
	unanswered                // the request or release was lost
	timer                     // its timer, or a wake-up
	givenUp                   // its caller waits no longer
	holderDone                // its holder is done
	revoke                    // it must be given up
	sessionEnd                // the session is lost
	answered                  // the release was answered
)

func (t trigger) String() string {
	return [...]string{"granted", "queued", "tooLate", "unanswered", "timer", "givenUp", "holderDone", "revoke", "sessionEnd", "answered"}[t]
}

// move makes the claim's transition for t, as the table of package core has it.
func (c *Core) move(cl *claim, t trigger) {
	from := cl.state
	switch {
	case from <= waiting && t == granted:
		cl.state, cl.due, cl.granted = held, never, c.now
		c.deliver(cl, cl.call)
	case from == joining && t == queued:
		cl.state, cl.poll = waiting, c.now.Add(c.cfg.jitter(c.cfg.Poll))
		c.waitFor(cl)
	case from == joining && t == tooLate:
		c.join(cl)
	case from == joining && t == unanswered:
		cl.due = c.now.Add(c.cfg.pause(cl.failed))
		cl.failed++
	case from == joining && t == timer:
		if cl.command == 0 {
			c.join(cl)
		}
	case from == waiting && t == timer:
		if c.now < cl.poll && c.expireLapsed(cl) {
			c.waitFor(cl) // until that is answered
			return
		}
		cl.state = joining
		c.join(cl)
	case from <= waiting && t == givenUp:
		c.leave(cl)
	case from <= waiting && t == revoke:
		// Nobody holds it yet; its caller asks for another.
		c.again(cl)
		c.leave(cl)
	case from <= waiting && t == sessionEnd:
		c.again(cl)
		c.forget(cl)
	case from == held && t == holderDone:
		if !c.handOff(cl) {
			c.leave(cl)
		}
	case from == held && t == revoke:
		cl.state, cl.due = windingDown, c.now.Add(c.cfg.Grace)
		c.out = append(c.out, End{cl.hold, c.cause()})
	case from == windingDown && (t == holderDone || t == timer):
		c.leave(cl)
	case from == held && t == sessionEnd:
		cl.state, cl.due = lost, never
		c.out = append(c.out, End{cl.hold, c.cause()})
	case from == windingDown && t == sessionEnd:
		cl.state, cl.due = lost, never
	case from == lost && t == holderDone:
		c.forget(cl)
	case from == leaving && (t == timer || t == unanswered && c.closing):
		c.release(cl)
	case from == leaving && t == unanswered:
		cl.due = c.now.Add(c.cfg.pause(cl.failed))
		cl.failed++
	case from == leaving && t == answered:
		cl.state, cl.due = left, never
		if cl.void.IsZero() {
			c.forget(cl)
		}
	case from >= leaving && t == sessionEnd:
		c.forget(cl)
	case t == timer, t == granted, t == revoke, t == queued, t == tooLate, t == unanswered, t == answered:
		// It came late.
	default:
		panic(fmt.Sprintf("core: %v does not take %v", from, t))
	}
}

// cause is why holds end that were neither lost nor revoked by others.
func (c *Core) cause() error {
	switch {
	case c.closing:
		return ErrClosed
	case c.session.id == "":
		return ErrLost
	}
	return ErrRevoked
}

// newClaim returns a new claim for key.
func (c *Core) newClaim(key string) *claim {
	c.last.claim++
	cl := &claim{
		number: c.last.claim, key: key, session: c.session.id, due: never,
		id: c.session.id + "." + strconv.FormatUint(c.last.claim, 10),
	}
	c.claims[cl.number] = cl
	return cl
}

// join sends a request to join. It names the sessions ahead that have expired.
func (c *Core) join(cl *claim) {
	cl.due = never
	cl.expired = c.expiredAmong(cl.ahead)
	notAfter := c.storeClock().Add(c.cfg.Attempt)
	if notAfter.After(cl.void) {
		cl.void = notAfter
	}
	cl.requests++
	join := &driver.Join{Claim: c.request(cl), Wait: true, Expired: cl.expired, NotAfter: notAfter, Repeated: cl.requests > 1}
	cl.command = c.send(Command{Op: Join, Session: cl.session, Edit: driver.Edit{Join: join}}, cl.number)
}

// request returns the claim as commands name it.
func (c *Core) request(cl *claim) driver.Claim {
	return driver.Claim{
		Key: cl.key, ID: cl.id, Session: cl.session, Kind: driver.KindMutex, Weight: 1, Limit: 1,
		Token: cl.first, NoneWaiting: cl.alone,
	}
}

// joinAnswered takes the reply to a request to join.
func (c *Core) joinAnswered(cl *claim, r Reply) {
	if !r.Lost {
		cl.answers++
	}
	if r.Err == nil && !r.Lost {
		c.sawClock(r.Now)
		c.unknown(&r.State)
	}
	if cl.state == leaving { // given up meanwhile: the release waited for this
		c.release(cl)
		return
	}
	if cl.state != joining {
		return
	}
	if r.Lost || r.Err != nil {
		c.move(cl, unanswered)
		return
	}
	cl.failed = 0
	h, holds := r.State.Holder(cl.id)
	cl.mayBe = holds || r.State.Position > 0
	cl.ahead = sessionsIn(&r.State, cl.session)
	switch {
	case holds:
		cl.first, cl.token = h.Token, h.Token
		cl.alone = cl.requests == 1 && r.State.Waiting == 0
		c.move(cl, granted)
	case r.State.Position > 0:
		c.move(cl, queued)
	default:
		c.move(cl, tooLate)
	}
}

// noticed takes a notice for one of the claims.
func (c *Core) noticed(n driver.Notice) {
	if c.session.id == "" || n.Session != c.session.id {
		return
	}
	cl := c.byID(n.Claim)
	switch n.Type {
	case driver.NoticeGrant:
		switch {
		case cl == nil:
			c.adopt(n.Key, n.Claim)
		case cl.state <= waiting:
			cl.first, cl.token, cl.mayBe = n.Token, n.Token, true
			c.move(cl, granted)
		}
	case driver.NoticeWake:
		if cl != nil && cl.state == waiting {
			cl.poll = c.now
			c.move(cl, timer)
		}
	case driver.NoticeRevoke:
		c.revoked(Revoked{n.Claim, n.Key})
	}
}

// revoked gives up the claim, for somebody who asked for the key.
func (c *Core) revoked(r Revoked) {
	switch cl := c.byID(r.Claim); {
	case c.session.id == "":
	case cl == nil:
		c.adopt(r.Key, r.Claim)
	default:
		c.move(cl, revoke)
	}
}

// unknown releases the session's claims in a state that nobody here knows.
func (c *Core) unknown(st *driver.State) {
	for i := range st.Holders {
		if h := &st.Holders[i]; h.Session == c.session.id && h.Until.IsZero() && c.byID(h.Claim) == nil {
			c.adopt(st.Key, h.Claim)
		}
	}
	for i := range st.WaitersAhead {
		if w := &st.WaitersAhead[i]; w.Session == c.session.id && c.byID(w.Claim) == nil {
			c.adopt(st.Key, w.Claim)
		}
	}
}

// numberOf returns the number of the claim of the session with that id.
func (c *Core) numberOf(id string) (n uint64, ok bool) {
	rest, ok := strings.CutPrefix(id, c.session.id+".")
	n, err := strconv.ParseUint(rest, 10, 64)
	return n, ok && err == nil
}

// byID returns the claim with that id, or nil.
func (c *Core) byID(id string) *claim {
	n, ok := c.numberOf(id)
	if !ok {
		return nil
	}
	return c.claims[n]
}

// adopt releases a claim of this session that nobody here knows. A copy of a request has made it join,
// and another may come.
func (c *Core) adopt(key, id string) {
	n, ok := c.numberOf(id)
	if !ok {
		return
	}
	cl := &claim{
		number: n, id: id, key: key, session: c.session.id, state: leaving, due: never, mayBe: true,
		void: c.storeClock().Add(c.cfg.Attempt),
	}
	c.claims[n] = cl
	c.release(cl)
}

// again puts the claim's caller first in the queue.
func (c *Core) again(cl *claim) {
	if cl.call == 0 {
		return
	}
	if q := c.queues[cl.key]; q != nil && q.using == cl.number {
		q.calls = append([]uint64{cl.call}, q.calls...)
	}
	cl.call = 0
}

// handOff gives the claim, whose holder is done, to the next caller here, with the next token.
func (c *Core) handOff(cl *claim) bool {
	q := c.queues[cl.key]
	if len(q.calls) == 0 || c.now.Sub(cl.granted) >= c.cfg.HandOff || cl.token+1 >= cl.first+driver.TokenStep {
		return false
	}
	call := q.calls[0]
	q.calls = q.calls[1:]
	cl.token++
	c.deliver(cl, call)
	return true
}
