package main

import (
	"fmt"
	"time"

	"github.com/leasehold-go/leasehold/dsync"
)

// A change is one thing that became of a key.
type change struct {
	at    time.Time // of a grant the grant's, else when it was seen; the server's clock
	what  string
	st    dsync.Status // as it is now
	owner *dsync.Owner // whom it concerns, nil: nobody in particular
}

// What changes are.
const (
	changeHeld      = "held"      // when the watch began
	changeGranted   = "granted"   // somebody holds it now
	changeLapsed    = "lapsed"    // a holder's time is over, and nobody has asked since
	changeRevived   = "revived"   // a holder that had lapsed has sent a heartbeat
	changeEnded     = "ended"     // somebody does not hold it any more
	changeLine      = "line"      // another number waits
	changePublished = "published" // another value
	changeSealed    = "done"      // a once is done for ever
	changeResized   = "resized"   // another limit
)

// changes returns what became of a key between two readings, or, with nil before it,
// what there is to say of it at first.
func changes(before *dsync.Status, st dsync.Status) (all []change) {
	add := func(what string, at time.Time, o *dsync.Owner) {
		all = append(all, change{at, what, st, o})
	}
	var was dsync.Status
	if before != nil {
		was = *before
	}
	now := make(map[string]bool)
	for _, h := range st.Holders {
		now[h.Claim] = true
	}
	held := make(map[string]dsync.Owner)
	for _, h := range was.Holders {
		held[h.Claim] = h
		if !now[h.Claim] {
			add(changeEnded, st.Now, &h)
		}
	}
	for _, h := range st.Holders {
		old, ok := held[h.Claim]
		switch {
		case before == nil:
			add(changeHeld, st.Now, &h)
		case !ok:
			add(changeGranted, h.Since, &h)
		}
		switch {
		case h.Lapsed && !old.Lapsed:
			add(changeLapsed, st.Now, &h)
		case old.Lapsed && !h.Lapsed:
			add(changeRevived, st.Now, &h)
		}
	}
	if st.Waiting != was.Waiting {
		add(changeLine, st.Now, nil)
	}
	if st.Sealed && !was.Sealed {
		add(changeSealed, st.Now, nil)
	} else if string(st.Value) != string(was.Value) && st.Value != nil {
		add(changePublished, st.Now, nil)
	}
	if was.Limit != 0 && st.Limit != was.Limit && st.Kind == was.Kind {
		add(changeResized, st.Now, nil)
	}
	return all
}

// String is the change for people, in one line.
func (c change) String() string {
	text := fmt.Sprintf("%s  %s  %s", stamp(c.at), plain(c.st.Key), c.what)
	switch c.what {
	case changeLine:
		return fmt.Sprintf("%s: %d waiting", text, c.st.Waiting)
	case changePublished, changeSealed:
		return fmt.Sprintf("%s: %s", text, short(c.st.Value))
	case changeResized:
		return fmt.Sprintf("%s: to %d", text, c.st.Limit)
	}
	o := who(*c.owner)
	text += fmt.Sprintf("%s: %s on %s, process %s, token %d", part(c.st, *c.owner), o[0], o[1], o[2], c.owner.Token)
	if c.what == changeHeld {
		text += ", since " + stamp(c.owner.Since)
	}
	return text
}

// A changeJSON is a change for programs: see watch's help.
type changeJSON struct {
	At      string `json:"at"`
	Key     string `json:"key"`
	Kind    string `json:"kind"`
	Change  string `json:"change"`
	Limit   int64  `json:"limit"`
	Term    int64  `json:"term"`
	Waiting int    `json:"waiting"`
	valueJSON
	Owner *ownerJSON `json:"owner,omitempty"`
}

func newChangeJSON(c change) changeJSON {
	j := changeJSON{
		At: stamp(c.at), Key: c.st.Key, Kind: string(c.st.Kind), Change: c.what,
		Limit: c.st.Limit, Term: c.st.Term, Waiting: c.st.Waiting, valueJSON: newValueJSON(c.st.Value),
	}
	if c.owner != nil {
		o := newHolderJSON(*c.owner)
		j.Owner = &o
	}
	return j
}
