package dsynchttp

import (
	"context"
	"time"

	"github.com/leasehold-go/leasehold/dsync"
)

// A look is what there was to see at one moment: what the page shows, and what JSON
// has. Times of this process are its host's, those of keys the store's.
type look struct {
	Now     time.Time    `json:"now"`
	Session sessionLook  `json:"session"`
	Health  []string     `json:"unhealthy,omitempty"` // of dsync.Session.Healthy
	Mine    []mineLook   `json:"mine"`                // what this process holds and waits for
	Keys    []keyLook    `json:"keys"`
	Next    string       `json:"next,omitempty"` // the address of the keys after these
	Members []memberLook `json:"members,omitempty"`
	Error   string       `json:"error,omitempty"` // the store could not be read

	q        query
	canBreak bool
	asked    bool
}

// A sessionLook is a [dsync.Local].
type sessionLook struct {
	ID        string       `json:"id,omitempty"`
	Name      string       `json:"name,omitempty"`
	Host      string       `json:"host,omitempty"`
	PID       int          `json:"pid,omitempty"`
	App       string       `json:"app,omitempty"`
	TTL       milliseconds `json:"ttlMs"`
	Margin    milliseconds `json:"marginMs"`
	Grace     milliseconds `json:"graceMs"`
	Heartbeat milliseconds `json:"heartbeatMs"`
	Lease     milliseconds `json:"leaseMs"`
	Left      milliseconds `json:"leftMs"`
	Renewed   *time.Time   `json:"renewed,omitempty"`
	Watching  bool         `json:"watching"`
	Polling   bool         `json:"polling"`
	Closed    bool         `json:"closed"`
}

// A mineLook is a hold of this process, or one of its calls that waits.
type mineLook struct {
	Key       string       `json:"key"`
	Kind      dsync.Kind   `json:"kind"`
	State     string       `json:"state"` // "holds", "lost", "lingers" or "waits"
	Since     time.Time    `json:"since"` // the grant, or the call that waits
	For       milliseconds `json:"forMs"`
	Token     int64        `json:"token,omitempty"`
	Weight    int64        `json:"weight"`
	Holders   int          `json:"holders,omitempty"`
	HandOvers int          `json:"handOvers,omitempty"`
	Place     int          `json:"place,omitempty"`
	Ahead     int          `json:"ahead,omitempty"`
	Lost      string       `json:"lost,omitempty"`
	LostFor   milliseconds `json:"lostForMs,omitempty"`
}

// A keyLook is a [dsync.Status], and who held the key last.
type keyLook struct {
	Key     string      `json:"key"`
	Kind    dsync.Kind  `json:"kind,omitempty"`
	Now     time.Time   `json:"now"`
	Limit   int64       `json:"limit,omitempty"`
	Token   int64       `json:"token,omitempty"`
	Term    int64       `json:"term,omitempty"`
	Sealed  bool        `json:"sealed,omitempty"`
	Value   []byte      `json:"value,omitempty"` // base64
	Held    bool        `json:"held"`
	Holders []ownerLook `json:"holders"`
	Waiting int         `json:"waiting"`
	Line    []ownerLook `json:"line,omitempty"`
	History []spanLook  `json:"history,omitempty"`

	timeline timeline
}

// An ownerLook is who holds a key or waits for it.
type ownerLook struct {
	Claim   string       `json:"claim"`
	Session string       `json:"session"`
	Name    string       `json:"name,omitempty"`
	Host    string       `json:"host,omitempty"`
	PID     int          `json:"pid,omitempty"`
	App     string       `json:"app,omitempty"`
	Weight  int64        `json:"weight"`
	Token   int64        `json:"token,omitempty"`
	Since   *time.Time   `json:"since,omitempty"`
	For     milliseconds `json:"forMs,omitempty"`
	Until   *time.Time   `json:"until,omitempty"`
	Left    milliseconds `json:"leftMs,omitempty"`
	Lapsed  bool         `json:"lapsed,omitempty"`
	Mine    bool         `json:"mine,omitempty"`

	style, use string
}

// A memberLook is a session that is alive.
type memberLook struct {
	Session string       `json:"session"`
	Name    string       `json:"name,omitempty"`
	Host    string       `json:"host,omitempty"`
	PID     int          `json:"pid,omitempty"`
	App     string       `json:"app,omitempty"`
	Seen    time.Time    `json:"seen"`
	Ago     milliseconds `json:"agoMs"`
	TTL     milliseconds `json:"ttlMs"`
	Mine    bool         `json:"mine,omitempty"`

	style string
}

// A spanLook is a span of the timeline, in this host's time.
type spanLook struct {
	Who     string     `json:"who"`
	Session string     `json:"session,omitempty"`
	Mine    bool       `json:"mine,omitempty"`
	Token   int64      `json:"token"`
	Start   time.Time  `json:"start"`
	Seen    time.Time  `json:"seen"`          // when it was last known to be held
	End     *time.Time `json:"end,omitempty"` // when it was known to be over
	Lost    string     `json:"lost,omitempty"`
}

// look reads what q asks for. What the store does not answer in time is left out.
func (h *Handler) look(ctx context.Context, q query) look {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	l := look{q: q, canBreak: h.opt.Authorize != nil, Keys: []keyLook{}}
	statuses, err := h.statuses(ctx, q)
	var members []dsync.Member
	var storeNow time.Time
	if err == nil && q.key == "" {
		members, storeNow, err = h.s.Members(ctx)
	}
	if err != nil {
		l.Error = err.Error()
	}
	l.local(h.s)
	for _, st := range statuses {
		l.Keys = append(l.Keys, newKeyLook(st, l.Session.ID, h.history.color))
	}
	now := time.Now()
	for i := range l.Keys {
		k := &l.Keys[i]
		k.history(h.history, now, q.window)
	}
	for _, m := range members {
		style := "own"
		if m.ID != l.Session.ID {
			style = h.history.color(m.ID)
		}
		l.Members = append(l.Members, memberLook{
			Session: m.ID, Name: m.Name, Host: m.Host, PID: m.PID, App: m.App, Seen: m.At,
			Ago: milliseconds(storeNow.Sub(m.At)), TTL: milliseconds(m.TTL), Mine: m.ID == l.Session.ID, style: style,
		})
	}
	if n := len(statuses); q.key == "" && n == q.n {
		next := q
		next.after = statuses[n-1].Key
		l.Next = next.link()
	}
	return l
}

// statuses reads the keys that q asks for, and records who holds them.
func (h *Handler) statuses(ctx context.Context, q query) (all []dsync.Status, err error) {
	if q.key != "" {
		st, err := h.s.Status(ctx, q.key)
		if err != nil {
			return nil, err
		}
		h.history.see(time.Now(), st)
		return append(all, st), nil
	}
	for st, err := range h.s.ListAfter(ctx, q.prefix, q.after) {
		if err != nil {
			return all, err
		}
		h.history.see(time.Now(), st)
		if all = append(all, st); len(all) == q.n {
			break
		}
	}
	return all, nil
}
