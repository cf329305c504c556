package dsynchttp

import (
	"cmp"
	"slices"

	"github.com/leasehold-go/leasehold/dsync"
)

// The bounds of the list of who waits for whom.
const (
	maxWaits       = 1000 // pairs of processes
	maxWaitHolders = 8    // of a key; Session.List returns as many of its waiters
	maxWaitKeys    = 3    // named for each pair
)

// A waitGraph has an edge from each process that waits to each that holds what it waits for.
type waitGraph struct {
	edges map[[2]string]*waitLook // by waiter and holder
	full  bool                    // there were more
}

// A waitLook is an edge: a process waits for another, or for itself.
type waitLook struct {
	Waiter partyLook `json:"waiter"`
	Holder partyLook `json:"holder"`
	Keys   []string  `json:"keys"`             // the first of those that it waits for
	More   int       `json:"more,omitempty"`   // the number of the others
	Circle bool      `json:"circle,omitempty"` // the holder waits for the waiter, perhaps through others

	blocks bool // it waits for a key other than an election's: a candidate works on while it waits
}

// A partyLook is a process that waits or holds.
type partyLook struct {
	Session string `json:"session"`
	Name    string `json:"name,omitempty"`
	Host    string `json:"host,omitempty"`
	PID     int    `json:"pid,omitempty"`
	Mine    bool   `json:"mine,omitempty"`

	style string
}

// add adds who waits for the holders of a key.
func (g *waitGraph) add(st dsync.Status) {
	for _, w := range st.Queue[:min(len(st.Queue), maxWaitHolders)] {
		for _, o := range st.Holders[:min(len(st.Holders), maxWaitHolders)] {
			between := [2]string{w.Session, o.Session}
			e := g.edges[between]
			switch {
			case e == nil && len(g.edges) == maxWaits:
				g.full = true
				continue
			case e == nil:
				if g.edges == nil {
					g.edges = make(map[[2]string]*waitLook)
				}
				e = &waitLook{Waiter: newPartyLook(w), Holder: newPartyLook(o)}
				g.edges[between] = e
			}
			e.blocks = e.blocks || st.Kind != dsync.KindElection
			switch {
			case slices.Contains(e.Keys, st.Key): // several of its goroutines wait
			case len(e.Keys) == maxWaitKeys:
				e.More++
			default:
				e.Keys = append(e.Keys, st.Key)
			}
		}
	}
}

func newPartyLook(p dsync.Participant) partyLook {
	return partyLook{Session: p.Session, Name: p.Name, Host: p.Host, PID: p.PID}
}

// list returns up to n edges: those of circles first, then those of the most keys. own is the
// id of this process's session, color returns the style of another session.
func (g *waitGraph) list(n int, own string, color func(session string) string) (all []waitLook, more bool) {
	to := make(map[string][]string)
	for between, e := range g.edges {
		if e.blocks && between[0] != between[1] {
			to[between[0]] = append(to[between[0]], between[1])
		}
	}
	for between, e := range g.edges {
		e.Circle = e.blocks && between[0] != between[1] && reaches(to, between[1], between[0])
		all = append(all, *e)
	}
	circle := func(w waitLook) int {
		if w.Circle {
			return 0
		}
		return 1
	}
	slices.SortFunc(all, func(a, b waitLook) int {
		return cmp.Or(circle(a)-circle(b), cmp.Compare(b.More, a.More), cmp.Compare(len(b.Keys), len(a.Keys)),
			cmp.Compare(a.Keys[0], b.Keys[0]), cmp.Compare(a.Waiter.Session, b.Waiter.Session), cmp.Compare(a.Holder.Session, b.Holder.Session))
	})
	more = g.full || len(all) > n
	all = all[:min(n, len(all))]
	for i := range all {
		for _, p := range []*partyLook{&all[i].Waiter, &all[i].Holder} {
			if p.Mine, p.style = p.Session == own, "own"; !p.Mine {
				p.style = color(p.Session)
			}
		}
	}
	return all, more
}

// reaches reports whether a path leads from one session to another.
func reaches(to map[string][]string, from, end string) bool {
	seen := map[string]bool{from: true}
	for next := []string{from}; len(next) > 0; {
		at := next[len(next)-1]
		next = next[:len(next)-1]
		if at == end {
			return true
		}
		for _, s := range to[at] {
			if !seen[s] {
				seen[s] = true
				next = append(next, s)
			}
		}
	}
	return false
}
