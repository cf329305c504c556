package dsynchttp

import (
	"context"
	"time"

	"github.com/leasehold-go/leasehold/dsync"
	"github.com/leasehold-go/leasehold/dsync/admin"
	"github.com/leasehold-go/leasehold/dsync/driver"
	"github.com/leasehold-go/leasehold/internal/engine"
	"github.com/leasehold-go/leasehold/internal/reading"
	"github.com/leasehold-go/leasehold/internal/statusjson"
)

// A view is the response to a request, rendered as HTML or JSON. The times of this process are by its host's clock; the
// times of keys are by the store's clock.
type view struct {
	Now     statusjson.Time `json:"now"`
	Store   string          `json:"store,omitempty"` // Options.Store
	Session sessionView     `json:"session"`
	Health  []string        `json:"unhealthy,omitempty"` // the errors that dsync.Session.Healthy returns
	Mine    []mineView      `json:"mine"`                // what this process holds and waits for
	Keys    []keyView       `json:"keys"`
	Read    int             `json:"read"`           // number of keys read to find Keys
	Matched int             `json:"matched"`        // number of keys read that match the query
	Next    string          `json:"next,omitempty"` // the address of the next page of keys
	Waits   []waitView      `json:"waits,omitempty"`
	Members []memberView    `json:"members,omitempty"`
	Totals  totals          `json:"totals"`
	Error   string          `json:"error,omitempty"` // why the store could not be read

	CanBreak  bool `json:"-"`
	Asked     bool `json:"-"`
	MoreWaits bool `json:"-"`
	q         query
	anchor    anchor
}

// totals are the full lengths of lists that may be shown only in part.
type totals struct {
	Mine    int `json:"mine"` // number of matching holds and calls
	Members int `json:"members"`
}

// A sessionView is what the session knows about itself.
type sessionView struct {
	ID        string                  `json:"id,omitempty"`
	Name      string                  `json:"name,omitempty"`
	Host      string                  `json:"host,omitempty"`
	PID       int                     `json:"pid,omitempty"`
	App       string                  `json:"app,omitempty"`
	TTL       statusjson.Milliseconds `json:"ttl_ms"`
	Margin    statusjson.Milliseconds `json:"margin_ms"`
	Grace     statusjson.Milliseconds `json:"grace_ms"`
	Heartbeat statusjson.Milliseconds `json:"heartbeat_ms"`
	Poll      statusjson.Milliseconds `json:"poll_ms"` // poll interval of the first waiter in a queue
	Lease     statusjson.Milliseconds `json:"lease_ms"`
	Left      statusjson.Milliseconds `json:"left_ms"`
	Renewed   statusjson.Time         `json:"renewed,omitzero"`
	Listening bool                    `json:"listening"`
	Polling   bool                    `json:"polling"`
	Closed    bool                    `json:"closed"`
}

// A mineView is a hold of this process, or one of its waiting calls.
type mineView struct {
	Key          string                  `json:"key"`
	Kind         driver.Kind             `json:"kind"`
	State        string                  `json:"state"` // "holds", "lost", "lingers" or "waits"
	Since        statusjson.Time         `json:"since"` // when the key was granted, or the waiting call began
	For          statusjson.Milliseconds `json:"for_ms"`
	Token        int64                   `json:"token,omitempty"`
	Weight       int64                   `json:"weight"`
	Holders      int                     `json:"holders,omitempty"`
	HandOffs     int                     `json:"hand_offs,omitempty"`
	Position     int                     `json:"position,omitempty"`      // position of this process in the queue
	WaitersAhead int                     `json:"waiters_ahead,omitempty"` // calls of this process that wait ahead of this one
	Lost         string                  `json:"lost,omitempty"`
	LostFor      statusjson.Milliseconds `json:"lost_for_ms,omitempty"`

	Age     age `json:"-"`
	LostAge age `json:"-"`
}

// A keyView is the status of a key and its recent holders.
type keyView struct {
	statusjson.Status[participantView]
	HolderCount int        `json:"holder_count"` // number of holders; Holders lists only the first few
	History     []spanView `json:"history,omitempty"`

	Published []byte   `json:"-"`
	Timeline  timeline `json:"-"`
}

// marked has the fields that distinguish a session on the page.
type marked struct {
	Mine  bool   `json:"mine,omitempty"`
	Style string `json:"-"`
}

// A participantView is a holder of a key, or a waiter for it.
type participantView struct {
	statusjson.Participant
	marked
	Use string `json:"-"`
	Age age    `json:"-"`
}

// A memberView is a live session.
type memberView struct {
	statusjson.Member
	Ago statusjson.Milliseconds `json:"ago_ms"`
	marked
	Age age `json:"-"` // age of the last heartbeat
}

// A spanView is a span of the timeline. Its times are by this host's clock.
type spanView struct {
	Who     string          `json:"who"`
	Session string          `json:"session,omitempty"`
	Mine    bool            `json:"mine,omitempty"`
	Token   int64           `json:"token"`
	Start   statusjson.Time `json:"start"`
	Seen    statusjson.Time `json:"seen,omitzero"` // when the key was last known to be held; for a hold of this process, when it ended
	End     statusjson.Time `json:"end,omitzero"`  // when the hold ended, or the latest time at which it can have ended
	Lost    string          `json:"lost,omitempty"`
}

// read returns what q selects, except for the parts that the store does not return in time. Ages and timelines are
// relative to the given anchor or, if that is zero or too old, to the current time. The view contains the anchor that
// was used.
func (h *Handler) read(ctx context.Context, q query, since anchor) view {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	l := view{q: q, Store: h.opt.Store, CanBreak: h.opt.Authorize != nil, Keys: []keyView{}}
	l.anchor = since.at(time.Now(), q.window)
	found, err := h.scan(ctx, q)
	now := time.Now()
	for _, st := range found.shown {
		h.history.see(now, st)
		l.anchor.saw(st.Now, now)
	}
	var members []driver.Member
	var storeNow time.Time
	if err == nil && q.key == "" {
		members, storeNow, err = h.all.Members(ctx)
		l.anchor.saw(storeNow, time.Now())
	}
	if err != nil {
		l.Error = err.Error()
	}
	l.local(h.s)
	mark := func(session string) marked {
		if session == l.Session.ID {
			return marked{true, "own"}
		}
		return marked{Style: h.history.color(session)}
	}
	for _, st := range found.shown {
		k := newKeyView(st, q, mark, l.anchor)
		k.history(h.history, q.window, l.anchor)
		l.Keys = append(l.Keys, k)
	}
	l.Read, l.Matched = found.read, found.matched
	if found.next != "" {
		next := q
		next.after = found.next
		l.Next = next.link()
	}
	l.Waits, l.MoreWaits = found.waits.list(q.n, mark)
	l.Totals.Members = len(members)
	for _, m := range part(members, q.members, q.n) {
		l.Members = append(l.Members, memberView{
			Member: statusjson.NewMember(m), Ago: statusjson.Milliseconds(storeNow.Sub(m.LastHeartbeat)), marked: mark(m.ID),
			Age: age(l.anchor.store.Sub(m.LastHeartbeat)),
		})
	}
	return l
}

// part returns up to n elements of list, starting at index from.
func part[T any](list []T, from, n int) []T {
	list = list[min(from, len(list)):]
	return list[:min(n, len(list))]
}

// newKeyView returns the view of st, with up to q.n holders and as many waiters.
func newKeyView(st admin.Status, q query, mark func(session string) marked, a anchor) keyView {
	holders := len(st.Holders)
	st.Holders, st.Queue = part(st.Holders, 0, q.n), part(st.Queue, 0, q.n)
	return keyView{Published: st.Value, HolderCount: holders, Status: statusjson.NewStatus(st, func(p admin.Participant, queued bool) participantView {
		return participantView{
			Participant: statusjson.NewParticipant(p, queued, st.Now), marked: mark(p.Session),
			Use: reading.Use(st.Kind, p.Weight, st.Limit), Age: age(a.store.Sub(p.Since)),
		}
	})}
}

// history fills in the recent holders.
func (k *keyView) history(r *recorder, window time.Duration, a anchor) {
	spans := r.of(k.Key)
	for _, s := range spans {
		k.History = append(k.History, spanView{
			Who: s.who, Session: s.session, Mine: s.own(), Token: s.token,
			Start: statusjson.Time{Time: s.start}, Seen: statusjson.Time{Time: s.seen}, End: statusjson.Time{Time: s.end}, Lost: s.lost,
		})
	}
	k.Timeline = newTimeline(spans, time.Now(), a.host, window, r.color)
}

// local fills in what the session knows about itself.
func (l *view) local(s *dsync.Session) {
	o := engine.Of(s).Local()
	now := time.Now()
	l.Now = statusjson.Time{Time: now}
	l.Session = sessionView{
		ID: o.ID, Name: o.Name, Host: o.Host, PID: o.PID, App: o.App,
		TTL: statusjson.Milliseconds(o.TTL), Margin: statusjson.Milliseconds(o.Margin), Grace: statusjson.Milliseconds(o.Grace), Heartbeat: statusjson.Milliseconds(o.Heartbeat),
		Poll:  statusjson.Milliseconds(o.Poll),
		Lease: statusjson.Milliseconds(o.Lease), Left: statusjson.Milliseconds(o.Left), Renewed: statusjson.Time{Time: o.Renewed},
		Listening: o.Listening, Polling: o.Polling, Closed: o.Closed,
	}
	l.Health = messages(s.Healthy())
	l.Mine = []mineView{}
	uses := l.q.uses(o)
	l.Totals.Mine = len(uses)
	for _, u := range part(uses, l.q.mine, l.q.n) {
		l.Mine = append(l.Mine, newMineView(u, now, l.anchor))
	}
}

// messages returns the messages of the errors that err joins or, if it joins none, err's own message.
func messages(err error) []string {
	if err == nil {
		return nil
	}
	if joined, ok := err.(interface{ Unwrap() []error }); ok {
		var all []string
		for _, err := range joined.Unwrap() {
			all = append(all, err.Error())
		}
		return all
	}
	return []string{err.Error()}
}
