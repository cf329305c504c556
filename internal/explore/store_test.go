package explore

import (
	"encoding/binary"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/leasehold-go/leasehold/dsync/driver"
	"github.com/leasehold-go/leasehold/internal/core"
	"github.com/leasehold-go/leasehold/internal/model"
)

// A store is a store in memory, built on package model. It is a value that can be cloned. A sweep deletes only
// sessions.
type store struct {
	sessions map[string]registration
	keys     map[string]model.Record
	skew     time.Duration
	observed bool          // all keys are observed
	hostFile string        // host file of every session; "": the processes run on different machines
	longer   time.Duration // the margin of A's sessions, if it is longer than that of the others; 0: it is not
	early    bool          // the store may answer a Release with Early before the release is committed
	final    bool          // the store says so if no copy of a request can join any more
	log      driver.OpTime // position at the end of the log; only early releases are in the log
	undo     []undo        // early releases that are not committed yet
}

// undo holds a key's record as it was before an early release.
type undo struct {
	key    string
	before model.Record
}

type registration struct {
	at      time.Time
	ttl     time.Duration
	expired bool
	revoked []driver.Revocation

	observed []string // the keys that the session observes
	seq      int64    // the number of that list
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
			r.Err, r.Lost = driver.ErrSessionExists, true // as package engine says it: another copy has registered the id
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
	case core.Announce:
		switch {
		case !known || reg.expired:
			r.Err = driver.ErrSessionExpired
		case cmd.Seq > reg.seq:
			reg.observed, reg.seq = cmd.Observed, cmd.Seq
			s.sessions[cmd.Session] = reg
		}
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
		for _, id := range cmd.Sessions.IDs {
			if reg, known := s.sessions[id]; known {
				m := driver.Member{ID: id, TTL: reg.ttl, HostFile: s.hostFile, LastHeartbeat: reg.at, Expired: reg.expired}
				if id[0] == 'A' {
					m.Settings.Margin = s.longer
				}
				r.Members = append(r.Members, m)
			}
		}
	case core.Load:
		r.State = s.keys[cmd.Key].State(cmd.Key, "", now, driver.MaxQueue)
	case core.Keys:
		for _, key := range cmd.Keys.Keys {
			if k, known := s.keys[key]; known {
				r.States = append(r.States, driver.State{Key: key, Holders: k.HeldBy(cmd.Session)})
			}
		}
	case core.Acquire, core.Release, core.Extend, core.Publish:
		s.edit(cmd.Edit, now, &r)
	case core.Discard:
		for _, c := range cmd.Claims {
			after, did := s.keys[c.Key].Clip().Discard(c, now)
			s.keys[c.Key] = after
			r.Notices = append(r.Notices, s.due(did.Notices)...)
		}
	}
	return r
}

// releaseEarly executes a release if the store may answer the command before the write is committed, and reports
// whether it did. The command must allow this, and nobody may wait for the key or observe the key.
func (s *store) releaseEarly(e driver.Edit, now time.Time, r *core.Reply) bool {
	if !s.early || !e.Release.Early {
		return false
	}
	key := e.Key()
	k := s.keys[key]
	if !k.MayAnswerEarly(*e.Release) || s.observed {
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

// edit executes an edit.
func (s *store) edit(e driver.Edit, now time.Time, r *core.Reply) {
	key := e.Key()
	k := s.keys[key].Clip()
	after, did, met := short(k, e, now)
	if !met {
		after, did, r.Err = k.Edit(e, now)
	}
	if r.Err != nil {
		return
	}
	s.keys[key] = after
	r.State, r.Found, r.Holder = did.State, did.Found, did.Holder
	r.Notices = append(r.Notices, s.due(did.Notices)...)
}

// due returns the notices to send. If no key is observed, it leaves out those for observers.
func (s *store) due(notices []driver.Notice) []driver.Notice {
	return slices.DeleteFunc(notices, func(n driver.Notice) bool { return n.Type == driver.NoticeChange && !s.observed })
}

// short executes an edit as the short commands of dsync/mongo do: see docs/protocol.md. They check only the conditions
// below, and then write as if nobody else held the key. met reports whether the conditions are met.
func short(k model.Record, e driver.Edit, now time.Time) (after model.Record, did model.Effect, met bool) {
	j, l := e.Acquire, e.Release
	simple := func(c *driver.Claim) bool {
		return c.Weight == 1 && c.Limit == 1 && c.Lease == 0 && !c.Yield && !c.First
	}
	switch {
	case j == nil && l == nil, j != nil && !simple(&j.Claim), l != nil && !simple(&l.Claim):
		return k, did, false
	case j != nil && now.After(j.NotAfter):
		return k, did, false
	case j != nil && j.Claim.Tick > 0, l == nil && (len(k.Holders) > 0 || len(k.Queue) > 0 || k.Sealed > 0):
		return k, did, false
	case l == nil && k.Kind != "" && (k.Kind != j.Claim.Kind || k.Limit != 1):
		return k, did, false
	case l != nil && (len(k.Holders) != 1 || k.Holders[0].Claim != l.Claim.ID):
		return k, did, false
	case l != nil && (k.Limit != 1 || l.Keep > 0 || l.Seal > 0 || l.Successor != "" || len(k.Queue) > 0 && k.Queue[0].Yield):
		return k, did, false
	}
	blind := k
	blind.Holders, blind.Sealed = nil, 0
	if l != nil {
		blind.Holders = []model.Holder{{Holder: driver.Holder{Claim: l.Claim.ID}}}
	}
	if j != nil {
		request := *j
		request.NotAfter = now
		request.Expired = nil
		e.Acquire = &request
	}
	after, did, err := blind.Edit(e, now)
	if l == nil {
		after.Holders = slices.Concat(k.Holders, after.Holders)
	}
	after.Sealed = k.Sealed
	return after, did, err == nil
}

// state appends an encoding of the store's state, as [core.Core.State] does. It omits sessions that nothing refers to.
func (s *store) state(b []byte, at core.Instant, name *namer) []byte {
	now := s.now(at)
	put := func(n int64) { b = binary.AppendVarint(b, n) }
	put(int64(s.skew))
	put(s.log.Term)
	put(int64(s.log.Time))
	for _, u := range s.undo {
		for _, h := range u.before.Holders {
			put(int64(name.claim(h.Claim)))
		}
	}
	for _, key := range slices.Sorted(maps.Keys(s.keys)) {
		k := s.keys[key]
		b = append(b, key...)
		put(max(0, k.Token/driver.TokenStep-now.UnixMilli())) // how far tokens are ahead of the clock
		if k.Sealed > 0 {
			put(-3 - k.Sealed)
			put(int64(name.claim(string(k.Result))))
		}
		if len(k.Holders)+len(k.Queue) > 0 {
			b = append(append(b, k.Kind...), byte(k.Limit))
		}
		for _, h := range k.Holders {
			put(int64(name.claim(h.Claim)))
			if !h.Until.IsZero() {
				put(int64(max(-1, h.Until.Sub(now))))
			}
		}
		put(-1)
		for _, w := range k.Queue {
			put(int64(name.claim(w.Claim)))
			put(w.Tick)
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
			put(-4 - r.seq)
			put(int64(len(r.observed)))
		}
	}
	return b
}

// A namer gives numbers to ids, in the order in which the ids first occur.
type namer struct {
	names []named
	node  int // the process that sent the commands to be numbered
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
