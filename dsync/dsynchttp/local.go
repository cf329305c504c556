package dsynchttp

import (
	"time"

	"github.com/leasehold-go/leasehold/dsync"
)

// local fills in what the session knows of itself.
func (l *look) local(s *dsync.Session) {
	o := s.Local()
	l.Now = time.Now()
	l.Session = sessionLook{
		ID: o.ID, Name: o.Name, Host: o.Host, PID: o.PID, App: o.App,
		TTL: milliseconds(o.TTL), Margin: milliseconds(o.Margin), Grace: milliseconds(o.Grace), Heartbeat: milliseconds(o.Heartbeat),
		Lease: milliseconds(o.Lease), Left: milliseconds(o.Left), Renewed: known(o.Renewed),
		Watching: o.Watching, Polling: o.Polling, Closed: o.Closed,
	}
	l.Health = messages(s.Healthy())
	l.Mine = []mineLook{}
	for _, h := range o.Holds {
		m := mineLook{
			Key: h.Key, Kind: h.Kind, State: "holds", Since: h.Since, For: milliseconds(l.Now.Sub(h.Since)),
			Token: h.Token, Weight: h.Weight, Holders: h.Holders, HandOvers: h.HandOvers,
		}
		switch {
		case h.Lost != nil:
			m.State, m.Lost, m.LostFor = "lost", h.Lost.Error(), milliseconds(l.Now.Sub(h.LostSince))
		case h.Holders == 0:
			m.State = "lingers"
		}
		l.Mine = append(l.Mine, m)
	}
	for _, w := range o.Waits {
		l.Mine = append(l.Mine, mineLook{
			Key: w.Key, Kind: w.Kind, State: "waits", Since: w.Since, For: milliseconds(l.Now.Sub(w.Since)),
			Weight: w.Weight, Place: w.Place, Ahead: w.Ahead,
		})
	}
}

// messages returns err's message, or those of the errors that it joins.
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

// known returns t, nil for the zero time.
func known(t time.Time) *time.Time {
	if t.IsZero() {
		return nil
	}
	return &t
}
