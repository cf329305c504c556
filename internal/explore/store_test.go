package explore

import (
	"encoding/binary"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/leasehold-go/leasehold/dsync/driver"
	"github.com/leasehold-go/leasehold/internal/core"
)

// A store implements what package driver specifies, as a value that can be cloned. It lacks Publish, Resize and Keys,
// and its Sweep deletes only sessions.
type store struct {
	sessions map[string]registration
	keys     map[string]record
	skew     time.Duration
	observed bool          // all keys are observed
	hostFile string        // host file of every session; "": the processes run on different machines
	early    bool          // the store answers a Release with Early set before it is committed
	log      driver.OpTime // position at the end of the log; only early releases are in the log
	undo     []undo        // early releases that are not committed yet
}

// An undo holds a key's record as it was before an early release.
type undo struct {
	key    string
	before record
}

type registration struct {
	at      time.Time
	ttl     time.Duration
	expired bool
	revoked []driver.Revocation
}

type record struct {
	kind    driver.Kind
	limit   int64
	token   int64
	holders []driver.Holder
	queue   []waiting
	sealed  int64
	result  []byte
}

// waiting is a claim in a queue.
type waiting struct {
	driver.Waiter
	tick  int64
	yield bool
}

func (s *store) clone() store {
	n := *s // the slices in a store are replaced, never changed
	n.sessions, n.keys = maps.Clone(s.sessions), maps.Clone(s.keys)
	return n
}

// now returns the time of the store's clock at an instant.
func (s *store) now(i core.Instant) time.Time { return time.Unix(1000, int64(i)).Add(s.skew) }

// execute executes a command and returns its reply.
func (s *store) execute(cmd *core.Command, ttl time.Duration, at core.Instant) (r core.Reply) {
	now := s.now(at)
	r.Now = now
	if cmd.Op == core.Release && s.releaseEarly(cmd.Edit, now, &r) {
		return r
	}
	if cmd.Op != core.Read && cmd.Op != core.Load && cmd.Op != core.Keys {
		s.undo = nil // every command except reads and early releases commits all earlier writes
	}
	switch reg, known := s.sessions[cmd.Session]; cmd.Op {
	case core.Register:
		if known {
			r.Err = driver.ErrSessionExists
			return r
		}
		s.sessions[cmd.Session] = registration{at: now, ttl: ttl}
	case core.Heartbeat:
		if !known || reg.expired {
			r.Err = driver.ErrSessionExpired
			return r
		}
		reg.at = now
		reg.revoked = slices.DeleteFunc(slices.Clone(reg.revoked), func(v driver.Revocation) bool { return slices.Contains(cmd.Revoked, v) })
		r.Revoked = reg.revoked
		r.Committed = s.log
		s.sessions[cmd.Session] = reg
	case core.Unregister:
		reg.expired = true
		s.sessions[cmd.Session] = reg
	case core.Expire:
		if left := reg.at.Add(reg.ttl).Sub(now); known && !reg.expired && !cmd.Died && left > 0 {
			r.Left = left
			return r
		}
		reg.expired = true
		s.sessions[cmd.Session] = reg
	case core.Revoke:
		r.Notices, r.Err = s.revoke(cmd.Session, cmd.Revoked[0])
	case core.Read:
		for _, id := range cmd.Sessions {
			if reg, known := s.sessions[id]; known {
				r.Members = append(r.Members, driver.Member{ID: id, TTL: reg.ttl, HostFile: s.hostFile, LastHeartbeat: reg.at, Expired: reg.expired})
			}
		}
	case core.Load:
		k := s.keys[cmd.Key]
		r.State = k.state(cmd.Key, "", now)
	case core.Keys:
		for _, key := range cmd.Keys {
			if k, known := s.keys[key]; known {
				r.States = append(r.States, driver.State{Key: key, Holders: without(k.holders, func(h driver.Holder) bool { return h.Session != cmd.Session })})
			}
		}
	case core.Acquire, core.Release, core.Extend:
		s.edit(cmd.Edit, now, &r)
	case core.Asked:
		s.edit(cmd.Ask.Do.(driver.Edit), now, &r)
	case core.Discard:
		for _, c := range cmd.Claims {
			k := s.keys[c.Key]
			if h, holds := k.holder(c.ID); !holds || h.Until.IsZero() {
				s.edit(driver.Edit{Release: &driver.Release{Claim: c}}, now, &r)
			}
		}
	}
	return r
}

// releaseEarly executes a release that is answered before it is committed, and reports whether it did. It does so
// only if the command allows it and nobody waits for the key or observes it.
func (s *store) releaseEarly(e driver.Edit, now time.Time, r *core.Reply) bool {
	if !s.early || !e.Release.Early {
		return false
	}
	key := e.Key()
	k := s.keys[key]
	if _, holds := k.holder(e.Release.Claim.ID); !holds || len(k.queue) > 0 || s.observed {
		return false
	}
	s.edit(e, now, r)
	s.log.Time++
	s.undo = append(slices.Clip(s.undo), undo{key, k})
	r.Applied = s.log
	return true
}

// failOver undoes the early releases that are not committed yet.
func (s *store) failOver() {
	for _, u := range slices.Backward(s.undo) {
		s.keys[u.key] = u.before
	}
	s.undo = nil
	s.log.Term++
}

// sweep deletes the sessions that have expired or lapsed.
func (s *store) sweep(at core.Instant) {
	now := s.now(at)
	maps.DeleteFunc(s.sessions, func(_ string, r registration) bool { return r.expired || !now.Before(r.at.Add(r.ttl)) })
}

// revoke records a revocation.
func (s *store) revoke(session string, v driver.Revocation) ([]driver.Notice, error) {
	reg, known := s.sessions[session]
	if !known || reg.expired {
		return nil, driver.ErrSessionExpired
	}
	if !slices.Contains(reg.revoked, v) {
		reg.revoked = append(slices.Clip(reg.revoked), v)
		s.sessions[session] = reg
	}
	return []driver.Notice{{Type: driver.NoticeRevoke, Session: session, Key: v.Key, Claim: v.Claim}}, nil
}

// edit executes an edit, and then grants the key to the waiters that fit: see settle.
func (s *store) edit(e driver.Edit, now time.Time, r *core.Reply) {
	if r.Err = e.Check(); r.Err != nil {
		return
	}
	key := e.Key()
	k := s.keys[key]
	mine := ""
	if e.Acquire != nil {
		mine = e.Acquire.Claim.ID
	}
	var woken []waiting // waiters that must request the key again
	kept := false
	granted, short := k.short(e, now)
	switch {
	case short:
		r.Found = e.Acquire == nil
	case e.Acquire != nil:
		r.Err = k.join(e.Acquire, e.Release, now)
	case e.Release != nil:
		r.Found, kept, woken, r.Err = k.leave(e.Release, now)
	case e.Extend != nil:
		r.Holder, r.Err = k.extend(&e.Extend.Claim, now)
	}
	if r.Err != nil {
		return
	}
	notice := func(t driver.NoticeType, session, claim string) {
		r.Notices = append(r.Notices, driver.Notice{Type: t, Session: session, Key: key, Claim: claim})
	}
	if !short {
		granted = k.settle(now)
	}
	if len(woken) > 0 { // after a seal, waiters get a wake notice instead of a grant notice
		granted = nil
	}
	if e.Acquire != nil && !e.Acquire.Wait {
		k.queue = without(k.queue, func(q waiting) bool { return q.Claim == mine })
	}
	for _, h := range granted {
		if h.Claim != mine {
			r.Notices = append(r.Notices, driver.Notice{
				Type: driver.NoticeGrant, Session: h.Session, Key: key, Claim: h.Claim, Token: h.Token, Crowded: len(k.queue) > 0,
			})
		}
	}
	switch {
	case len(k.queue) == 0:
	case kept:
		woken = k.queue[:1]
	case e.Acquire != nil && k.queue[0].Claim == mine:
		for _, h := range k.holders {
			if h.Yield {
				notice(driver.NoticeYield, h.Session, h.Claim)
			}
		}
	}
	for _, q := range woken {
		notice(driver.NoticeWake, q.Session, q.Claim)
	}
	if s.observed && e.Extend == nil {
		notice(driver.NoticeChange, "", "")
	}
	s.keys[key] = k
	if e.Acquire != nil {
		r.State = k.state(key, mine, now)
	}
}

// join removes the claims of sessions that the Acquire names as expired, leases that are over and, if leave is not nil,
// the claim that leave releases. Then it puts the Acquire's claim into the queue, if that is allowed.
func (k *record) join(j *driver.Acquire, leave *driver.Release, now time.Time) error {
	c := &j.Claim
	before := *k
	goes := func(session, claim string) bool {
		return slices.Contains(j.Expired, session) || leave != nil && claim == leave.Claim.ID
	}
	k.holders = without(k.holders, func(h driver.Holder) bool {
		if h.Until.IsZero() {
			return goes(h.Session, h.Claim)
		}
		return !now.Before(h.Until) || leave != nil && h.Claim == leave.Claim.ID
	})
	k.queue = without(k.queue, func(w waiting) bool { return goes(w.Session, w.Claim) })
	_, holds := k.holder(c.ID)
	there := holds || k.position(c.ID) >= 0
	inUse := len(k.holders)+len(k.queue) > 0
	if suits := k.kind == c.Kind && (k.over(c.Tick) || k.limit == c.Limit) || !inUse && k.sealed == 0; !there && !suits {
		*k = before
		return &driver.MismatchError{Key: c.Key, Kind: k.kind, WantKind: c.Kind, Limit: k.limit, WantLimit: c.Limit}
	}
	if there || now.After(j.NotAfter) || k.over(c.Tick) {
		return nil
	}
	k.enqueue(c)
	return nil
}

// over reports whether the key is sealed for claims with the given tick.
func (k *record) over(tick int64) bool { return k.sealed > 0 && tick <= k.sealed }

// enqueue inserts the claim into the queue at its position.
func (k *record) enqueue(c *driver.Claim) {
	k.kind, k.limit = c.Kind, c.Limit
	w := waiting{driver.Waiter{Claim: c.ID, Session: c.Session, Weight: c.Weight}, c.Tick, c.Yield}
	behind := func(o waiting) bool { return c.First || c.Tick > 0 && o.tick > c.Tick }
	ahead := func(o waiting) bool { return !behind(o) }
	k.queue = slices.Concat(without(k.queue, behind), []waiting{w}, without(k.queue, ahead))
}

// leave releases a claim. If Keep is set, it keeps the claim for that time instead.
func (k *record) leave(l *driver.Release, now time.Time) (found, kept bool, woken []waiting, err error) {
	h, holds := k.holder(l.Claim.ID)
	keeps := l.Keep > 0 && l.Seal == 0
	if l.Successor != "" && !keeps && l.Seal == 0 {
		i := k.position(l.Successor)
		switch {
		case !holds:
			return false, false, nil, nil
		case i < 0:
			return false, false, nil, fmt.Errorf("%w: %s", driver.ErrNotWaiting, l.Successor)
		}
		k.queue = slices.Insert(slices.Delete(slices.Clone(k.queue), i, i+1), 0, k.queue[i])
	}
	switch {
	case !holds:
		n := len(k.queue)
		k.queue = without(k.queue, func(w waiting) bool { return w.Claim == l.Claim.ID })
		return len(k.queue) < n, false, nil, nil
	case keeps:
		if end := now.Add(l.Keep); h.Until.IsZero() || end.Before(h.Until) {
			k.setUntil(h.Claim, end)
			kept = true
		}
		return true, kept, nil, nil
	}
	k.holders = without(k.holders, func(o driver.Holder) bool { return o.Claim == h.Claim })
	if l.Seal > k.sealed && (h.Until.IsZero() || now.Before(h.Until)) {
		before := k.queue
		k.sealed, k.result = l.Seal, l.Result
		k.queue = without(before, func(w waiting) bool { return k.over(w.tick) })
		woken = without(before, func(w waiting) bool { return !k.over(w.tick) && w.Claim != k.queue[0].Claim })
	}
	return true, false, woken, nil
}

// extend moves the end of a hold to a later time.
func (k *record) extend(c *driver.Claim, now time.Time) (driver.Holder, error) {
	h, holds := k.holder(c.ID)
	if !holds || h.Token != c.Token || !h.Until.IsZero() && !now.Before(h.Until) {
		return driver.Holder{}, driver.ErrNotHeld
	}
	if end := now.Add(c.Lease); end.After(h.Until) {
		k.setUntil(c.ID, end)
		h.Until = end
	}
	return h, nil
}

func (k *record) setUntil(claim string, end time.Time) {
	k.holders = slices.Clone(k.holders)
	for i := range k.holders {
		if k.holders[i].Claim == claim {
			k.holders[i].Until = end
		}
	}
}

func (k *record) holder(claim string) (driver.Holder, bool) {
	return driver.State{Holders: k.holders}.Holder(claim)
}

// position returns the index of the claim in the queue, or -1.
func (k *record) position(claim string) int {
	return slices.IndexFunc(k.queue, func(w waiting) bool { return w.Claim == claim })
}

// settle grants the key to the claims in the queue, in order, until a claim does not fit.
func (k *record) settle(now time.Time) (granted []driver.Holder) {
	free := k.limit
	for _, h := range k.holders {
		free -= h.Weight
	}
	for len(k.queue) > 0 && k.queue[0].Weight <= free {
		h := k.grant(now)
		granted = append(granted, h)
		free -= h.Weight
	}
	return granted
}

// grant grants the key to the first claim in the queue.
func (k *record) grant(now time.Time) driver.Holder {
	w := k.queue[0]
	k.queue = k.queue[1:]
	k.token = max(k.token+driver.TokenStep, now.UnixMilli()*driver.TokenStep)
	h := driver.Holder{Claim: w.Claim, Session: w.Session, Weight: w.Weight, Token: k.token, Since: now, Yield: w.yield}
	if w.yield && w.Weight == k.limit {
		k.token += driver.TokenRoom - driver.TokenStep
	}
	k.holders = append(slices.Clip(k.holders), h)
	return h
}

// short executes an edit as the short commands of dsync/mongo do, which neither clean up nor settle: see
// docs/protocol.md. met reports whether the commands' conditions are met; if not, nothing changes.
func (k *record) short(e driver.Edit, now time.Time) (granted []driver.Holder, met bool) {
	j, l := e.Acquire, e.Release
	simple := func(c *driver.Claim) bool {
		return c.Weight == 1 && c.Limit == 1 && c.Lease == 0 && !c.Yield && !c.First
	}
	switch {
	case j == nil && l == nil, j != nil && !simple(&j.Claim), l != nil && !simple(&l.Claim):
		return nil, false
	case j != nil && now.After(j.NotAfter):
		return nil, false
	case j != nil && j.Claim.Tick > 0, l == nil && (len(k.holders) > 0 || len(k.queue) > 0 || k.sealed > 0):
		return nil, false
	case l == nil && k.kind != "" && (k.kind != j.Claim.Kind || k.limit != 1):
		return nil, false
	case l != nil && (len(k.holders) != 1 || k.holders[0].Claim != l.Claim.ID):
		return nil, false
	case l != nil && (k.limit != 1 || l.Keep > 0 || l.Seal > 0 || l.Successor != "" || len(k.queue) > 0 && k.queue[0].yield):
		return nil, false
	}
	if l != nil {
		k.holders = nil
	}
	if j != nil {
		k.enqueue(&j.Claim)
	}
	if len(k.queue) > 0 {
		granted = append(granted, k.grant(now))
	}
	return granted, true
}

// state returns the key's state as the store would report it to the given claim's session.
func (k *record) state(key, claim string, now time.Time) driver.State {
	st := driver.State{
		Key: key, Now: now, Kind: k.kind, Limit: k.limit, Token: k.token, Holders: k.holders, Waiting: len(k.queue), Sealed: k.sealed, Value: k.result,
	}
	ahead := k.queue
	if i := k.position(claim); i >= 0 && claim != "" {
		st.Position, ahead = i+1, k.queue[:i]
	}
	for _, w := range ahead {
		st.WaitersAhead = append(st.WaitersAhead, w.Waiter)
	}
	return st
}

func without[E any](s []E, drop func(E) bool) []E {
	if !slices.ContainsFunc(s, drop) {
		return s
	}
	return slices.DeleteFunc(slices.Clone(s), drop)
}

// state appends an encoding of the store's state, as [core.Core.State] does. It omits sessions that nothing refers to.
func (s *store) state(b []byte, at core.Instant, name *namer) []byte {
	now := s.now(at)
	put := func(n int64) { b = binary.AppendVarint(b, n) }
	put(int64(s.skew))
	put(s.log.Term)
	put(int64(s.log.Time))
	for _, u := range s.undo {
		for _, h := range u.before.holders {
			put(int64(name.claim(h.Claim)))
		}
	}
	for _, key := range slices.Sorted(maps.Keys(s.keys)) {
		k := s.keys[key]
		put(max(0, k.token/driver.TokenStep-now.UnixMilli())) // how far tokens are ahead of the clock
		if k.sealed > 0 {
			put(-3 - k.sealed)
			put(int64(name.claim(string(k.result))))
		}
		if len(k.holders)+len(k.queue) > 0 {
			b = append(append(b, k.kind...), byte(k.limit))
		}
		for _, h := range k.holders {
			put(int64(name.claim(h.Claim)))
			if !h.Until.IsZero() {
				put(int64(max(-1, h.Until.Sub(now))))
			}
		}
		put(-1)
		for _, w := range k.queue {
			put(int64(name.claim(w.Claim)))
			put(w.tick)
		}
		put(-2)
	}
	for _, id := range slices.Sorted(maps.Keys(s.sessions)) {
		if r := s.sessions[id]; slices.Contains(name.names, named{'s', 0, id}) {
			put(int64(name.Session(id)))
			put(int64(max(-1, r.at.Add(r.ttl).Sub(now))))
			if r.expired {
				put(-3)
			}
			for _, v := range r.revoked {
				put(int64(name.claim(v.Claim)))
			}
		}
	}
	return b
}

// A namer gives numbers to ids, in the order in which the ids first occur.
type namer struct {
	names []named
	node  int // the node whose commands it names
}

type named struct {
	kind byte
	n    uint64
	id   string
}

func (n *namer) name(what named) uint64 {
	i := slices.Index(n.names, what)
	if i < 0 {
		i = len(n.names)
		n.names = append(n.names, what)
	}
	return uint64(i + 1)
}

func (n *namer) Session(id string) uint64 { return n.name(named{'s', 0, id}) }

func (n *namer) Number(kind byte, k uint64) uint64 {
	switch {
	case k == 0:
		return 0
	case kind == 'c':
		k |= uint64(n.node) << 56
	}
	return n.name(named{kind, k, ""})
}

// claim returns the number of a claim, given its id.
func (n *namer) claim(id string) uint64 {
	session, number, _ := strings.Cut(id, ".")
	k, _ := strconv.ParseUint(number, 10, 64)
	return n.Session(session)<<16 | n.name(named{'n', k, ""})
}
