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
)

// A store is what package driver says of one, for exclusive claims, as a value that can be copied.
type store struct {
	sessions map[string]registration
	keys     map[string]record
	skew     time.Duration
}

type registration struct {
	at      time.Time
	ttl     time.Duration
	expired bool
}

type record struct {
	token   int64
	holders []driver.Holder // one at most
	queue   []driver.Waiter
}

func (s *store) clone() store {
	return store{maps.Clone(s.sessions), maps.Clone(s.keys), s.skew} // slices in it are replaced, never changed
}

// now is the store's clock at an instant.
func (s *store) now(i core.Instant) time.Time { return time.Unix(1000, int64(i)).Add(s.skew) }

// execute executes a command and returns its reply.
func (s *store) execute(cmd core.Command, ttl time.Duration, at core.Instant) (r core.Reply) {
	now := s.now(at)
	r.Now = now
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
		s.sessions[cmd.Session] = reg
	case core.Unregister:
		reg.expired = true
		s.sessions[cmd.Session] = reg
	case core.Expire:
		if left := reg.at.Add(reg.ttl).Sub(now); known && !reg.expired && left > 0 {
			r.Left = left
			return r
		}
		reg.expired = true
		s.sessions[cmd.Session] = reg
	case core.Read:
		for _, id := range cmd.Sessions {
			if reg, known := s.sessions[id]; known {
				r.Members = append(r.Members, driver.Member{ID: id, TTL: reg.ttl, LastHeartbeat: reg.at, Expired: reg.expired})
			}
		}
	case core.Join:
		s.join(cmd.Edit.Join, now, &r)
	case core.Release:
		r.Found = s.leave(cmd.Edit.Leave.Claim, now, &r)
	case core.Discard:
		for _, c := range cmd.Claims {
			s.leave(c, now, &r)
		}
	}
	return r
}

func (s *store) join(join *driver.Join, now time.Time, r *core.Reply) {
	k, c := s.keys[join.Claim.Key], join.Claim
	gone := func(session string) bool { return slices.Contains(join.Expired, session) }
	k.holders = slices.DeleteFunc(slices.Clone(k.holders), func(h driver.Holder) bool { return gone(h.Session) })
	k.queue = slices.DeleteFunc(slices.Clone(k.queue), func(w driver.Waiter) bool { return gone(w.Session) })
	there := slices.ContainsFunc(k.holders, func(h driver.Holder) bool { return h.Claim == c.ID }) ||
		slices.ContainsFunc(k.queue, func(w driver.Waiter) bool { return w.Claim == c.ID })
	if !there && !now.After(join.NotAfter) {
		k.queue = append(k.queue, driver.Waiter{Claim: c.ID, Session: c.Session, Weight: 1})
	}
	k.settle(c.Key, c.ID, now, r)
	s.keys[c.Key] = k
	st := driver.State{Key: c.Key, Now: now, Holders: k.holders, Waiting: len(k.queue), Token: k.token}
	for i, w := range k.queue {
		if w.Claim == c.ID {
			st.Position, st.WaitersAhead = i+1, k.queue[:i]
		}
	}
	if st.Position == 0 {
		st.WaitersAhead = k.queue
	}
	r.State = st
}

func (s *store) leave(c driver.Claim, now time.Time, r *core.Reply) (found bool) {
	k := s.keys[c.Key]
	n := len(k.holders) + len(k.queue)
	k.holders = slices.DeleteFunc(slices.Clone(k.holders), func(h driver.Holder) bool { return h.Claim == c.ID })
	k.queue = slices.DeleteFunc(slices.Clone(k.queue), func(w driver.Waiter) bool { return w.Claim == c.ID })
	found = len(k.holders)+len(k.queue) < n
	k.settle(c.Key, c.ID, now, r)
	s.keys[c.Key] = k
	return found
}

// settle grants the key to the first waiter if nobody holds it.
func (k *record) settle(key, mine string, now time.Time, r *core.Reply) {
	if len(k.holders) > 0 || len(k.queue) == 0 {
		return
	}
	w := k.queue[0]
	k.queue = k.queue[1:]
	k.token = max(k.token+driver.TokenStep, now.UnixMilli()*driver.TokenStep)
	k.holders = []driver.Holder{{Claim: w.Claim, Session: w.Session, Weight: 1, Token: k.token, Since: now}}
	if w.Claim != mine {
		r.Notices = append(r.Notices, driver.Notice{
			Type: driver.NoticeGrant, Session: w.Session, Key: key, Claim: w.Claim, Token: k.token, Crowded: len(k.queue) > 0,
		})
	}
}

// state appends the store's state, as [core.Core.State] does. Sessions that nobody names any more do not
// count.
func (s *store) state(b []byte, at core.Instant, name *namer) []byte {
	now := s.now(at)
	put := func(n int64) { b = binary.AppendVarint(b, n) }
	put(int64(s.skew))
	for _, key := range slices.Sorted(maps.Keys(s.keys)) {
		k := s.keys[key]
		put(max(0, k.token/driver.TokenStep-now.UnixMilli())) // how far tokens are ahead of the clock
		for _, h := range k.holders {
			put(int64(name.claim(h.Claim)))
		}
		put(-1)
		for _, w := range k.queue {
			put(int64(name.claim(w.Claim)))
		}
		put(-2)
	}
	for _, id := range slices.Sorted(maps.Keys(s.sessions)) {
		if r := s.sessions[id]; name.names["s"+id] > 0 {
			put(int64(name.Session(id)))
			put(int64(max(-1, r.at.Add(r.ttl).Sub(now))))
			if r.expired {
				put(-3)
			}
		}
	}
	return b
}

// A namer numbers what it is asked about, in the order in which it is asked.
type namer struct{ names map[string]uint64 }

func (n *namer) name(id string) uint64 {
	k, ok := n.names[id]
	if !ok {
		k = uint64(len(n.names) + 1)
		n.names[id] = k
	}
	return k
}

func (n *namer) Session(id string) uint64 { return n.name("s" + id) }

func (n *namer) Number(kind byte, k uint64) uint64 {
	if k == 0 {
		return 0
	}
	return n.name(string(kind) + strconv.FormatUint(k, 10))
}

// claim names a claim by its id.
func (n *namer) claim(id string) uint64 {
	session, number, _ := strings.Cut(id, ".")
	return n.Session(session)<<16 | n.name("n"+number)
}
