package dsynchttp

import (
	"time"

	"github.com/leasehold-go/leasehold/dsync"
)

// newKeyLook returns what is shown of st; own is the id of this process's session,
// color returns the style of one.
func newKeyLook(st dsync.Status, own string, color func(session string) string) keyLook {
	k := keyLook{
		Key: st.Key, Kind: st.Kind, Now: st.Now, Limit: st.Limit, Token: st.Token, Term: st.Term,
		Sealed: st.Sealed, Value: st.Value, Held: st.Held(), Waiting: st.Waiting, Holders: []ownerLook{},
	}
	owner := func(o dsync.Owner) ownerLook {
		style := "own"
		if o.Session != own {
			style = color(o.Session)
		}
		return ownerLook{
			style: style, use: st.Use(o),
			Claim: o.Claim, Session: o.Session, Name: o.Name, Host: o.Host, PID: o.PID, App: o.App,
			Weight: o.Weight, Mine: o.Session == own,
		}
	}
	for _, h := range st.Holders {
		o := owner(h)
		o.Token, o.Lapsed = h.Token, h.Lapsed
		o.Since, o.For = known(h.Since), milliseconds(st.Now.Sub(h.Since))
		o.Until, o.Left = known(h.Until), milliseconds(h.Until.Sub(st.Now))
		k.Holders = append(k.Holders, o)
	}
	for _, w := range st.Line {
		k.Line = append(k.Line, owner(w))
	}
	return k
}

// history fills in who held the key last.
func (k *keyLook) history(r *recorder, now time.Time, window time.Duration) {
	spans := r.of(k.Key)
	for _, s := range spans {
		k.History = append(k.History, spanLook{
			Who: s.who, Session: s.session, Mine: s.own(), Token: s.token,
			Start: s.start, Seen: s.seen, End: known(s.end), Lost: s.lost,
		})
	}
	k.timeline = newTimeline(spans, now, window, r.color)
}
