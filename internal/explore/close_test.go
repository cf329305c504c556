package explore

import (
	"errors"
	"fmt"
	"slices"

	"github.com/leasehold-go/leasehold/dsync/driver"
	"github.com/leasehold-go/leasehold/internal/core"
)

// A request is a claim that the store may have, as far as its process can know.
type request struct {
	id, key   string
	since     core.Instant  // when it was first sent
	lease     bool          // the store may have set the end of the lease, so it may outlive its session
	delivered bool          // a caller has got a hold of it
	answered  bool          // the store's last answer shows that it has left the queue, or Close need not release it
	missed    bool          // the store has answered a release that it does not have the claim
	applied   driver.OpTime // when its early release was applied, if a fail-over may still undo it
}

// requested records that the process sends a request for the claim or its release, or has found the claim in the store.
func (n *node) requested(now core.Instant, c driver.Claim) {
	r := n.request(c.ID)
	if r == nil {
		n.requests = append(n.requests, request{id: c.ID, key: c.Key, since: now})
		return
	}
	r.answered, r.applied = false, driver.OpTime{}
}

func (n *node) request(id string) *request {
	for i := range n.requests {
		if n.requests[i].id == id {
			return &n.requests[i]
		}
	}
	return nil
}

func (n *node) forgetRequests(f func(r request) bool) { n.requests = slices.DeleteFunc(n.requests, f) }

// sessionEnded records that the process knows that the store does not have the session, or that Close need not care.
func (n *node) sessionEnded(session string) {
	n.forgetRequests(func(r request) bool { return !r.lease && sessionOf(r.id) == session })
	if n.listed == session {
		n.listed = ""
	}
}

// learns records what the process learns from the answer to a command.
func (n *node) learns(now core.Instant, c *core.Command, r *core.Reply) {
	switch {
	case c.Op == core.Heartbeat && errors.Is(r.Err, driver.ErrSessionExpired):
		if c.Session == n.core.Session() {
			n.sessionEnded(c.Session)
		}
	case r.Err != nil:
	case c.Op == core.Unregister:
		n.sessionEnded(c.Session)
	case c.Op == core.Heartbeat:
		n.forgetRequests(func(q request) bool {
			return q.applied != (driver.OpTime{}) && q.applied.Term == r.Committed.Term && q.applied.Time <= r.Committed.Time
		})
	case c.Op == core.Discard:
		n.forgetRequests(func(q request) bool {
			return slices.ContainsFunc(c.Claims, func(d driver.Claim) bool { return d.ID == q.id })
		})
	}
	n.unsure = n.unsure || c.Op == core.Register && r.Lost
	if j := c.Edit.Acquire; j != nil && !r.Lost && (r.Err != nil || !shows(&r.State, j.Claim.ID)) {
		if q := n.request(j.Claim.ID); q != nil {
			q.answered = true
		}
	}
	v := c.Edit.Release
	if v == nil || r.Err != nil {
		return
	}
	q := n.request(v.Claim.ID)
	lost := sessionOf(v.Claim.ID) != n.core.Session() || now >= n.core.Deadline()
	switch {
	case q == nil:
	case lost && !q.lease: // Close names what it has not released when the session is lost, and ignores later answers
	case r.Found && r.Applied != (driver.OpTime{}):
		q.applied = r.Applied
	case r.Found && v.Keep > 0:
		q.answered = true
	case r.Found, q.missed && c.Op == core.Release:
		n.forgetRequests(func(o request) bool { return o.id == v.Claim.ID })
	case c.Op == core.Release: // a deposed primary may have answered
		q.answered, q.missed = true, true
	}
}

// shows reports whether the state shows that the claim holds the key or waits for it.
func shows(s *driver.State, id string) bool {
	_, holds := s.Holder(id)
	return holds || s.Position > 0
}

// closeSays checks that the result of Close is true. It must name the keys that the store still has for the session,
// and say that the session is registered if it is. It must not name keys of which the process knows that the store has
// released all claims, nor a session of which the process knows that the store does not list it.
func (w *world) closeSays(i int, err error) error {
	n := &w.nodes[i]
	var e *core.NotReleasedError
	var keys []string
	if errors.As(err, &e) {
		keys = e.Keys
		if len(keys) == 0 || !slices.IsSorted(keys) || len(slices.Compact(slices.Clone(keys))) < len(keys) || errors.Unwrap(e) == nil {
			return fmt.Errorf("the Close of %s returned %q with the keys %q", name(i), err, keys)
		}
	}
	for _, key := range keys {
		if !slices.ContainsFunc(n.requests, func(r request) bool { return r.key == key }) {
			return fmt.Errorf("the Close of %s returned %q, but the store has answered that it has released the key %s", name(i), err, key)
		}
	}
	for _, r := range n.requests {
		if (!r.answered || r.applied != (driver.OpTime{})) && !slices.Contains(keys, r.key) && w.blocks(&r) {
			return fmt.Errorf("the Close of %s returned %v, but the store still has its claim: key %s, claim %s", name(i), err, r.key, r.id)
		}
	}
	listed, unlisted := n.listed, errors.Is(err, core.ErrNotUnregistered)
	if listed == "" {
		listed = n.registers
	}
	if unlisted && listed == "" && !n.unsure {
		return fmt.Errorf("the Close of %s returned %q, but the process knows that the store does not list the session", name(i), err)
	}
	if err != nil && keys == nil && !unlisted {
		return fmt.Errorf("the Close of %s returned %q, which says neither that a key nor that the session remains", name(i), err)
	}
	r, known := w.store.sessions[listed]
	now := w.store.now(w.now)
	switch {
	case unlisted, !known, r.expired:
	case listed == n.registers && (w.now >= n.registered.Add(w.cfg.Attempt+w.cfg.TTL) || !now.Before(r.at.Add(r.ttl))):
		// A Register may be executed more than an attempt's time after it was sent, but Close does not count on that.
	default:
		return fmt.Errorf("the Close of %s returned %v, but its session is still registered", name(i), err)
	}
	return nil
}

// blocks reports whether the claim holds its key or waits for it, and the store will not drop it soon.
func (w *world) blocks(r *request) bool {
	k, now := w.store.keys[r.key], w.store.now(w.now)
	h, holds := k.Holder(r.id)
	if holds && !h.Until.IsZero() {
		return h.Until.Sub(now) > w.cfg.Margin
	}
	s, known := w.store.sessions[sessionOf(r.id)]
	return (holds || k.Position(r.id) > 0) && known && !s.expired
}
