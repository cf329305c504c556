package dsynchttp

import (
	"cmp"
	"slices"

	"github.com/leasehold-go/leasehold/dsync/admin"
)

// The limits of the list of waiting processes.
const (
	maxWaits       = 1000 // the most pairs of processes
	maxWaitHolders = 8    // the greatest number of holders of a key, and of its waiters; Inspector.List returns no more waiters
	maxWaitKeys    = 3    // the most keys listed for a pair
)

// A waitGraph is a wait-for graph: it has an edge from each waiting process to each process that
// holds the key.
type waitGraph struct {
	edges map[[2]string]*waitView // by the sessions of waiter and holder
	keys  []admin.Status          // the keys that have waiters, until full is set
	full  bool                    // some edges were left out
}

// A waitView is an edge: one process waits for another, or for itself.
type waitView struct {
	Waiter partyView `json:"waiter"`
	Holder partyView `json:"holder"`
	Keys   []string  `json:"keys"`            // the first keys that the waiter waits for
	More   int       `json:"more,omitempty"`  // number of further keys
	Cycle  bool      `json:"cycle,omitempty"` // the holder also waits for the waiter, perhaps through others
}

// A partyView is a process that waits or holds.
type partyView struct {
	Session string `json:"session"`
	Name    string `json:"name,omitempty"`
	Host    string `json:"host,omitempty"`
	PID     int    `json:"pid,omitempty"`
	marked
}

// add adds the edges of a key: from each of its waiters to each of its holders.
func (g *waitGraph) add(st admin.Status) {
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
					g.edges = make(map[[2]string]*waitView)
				}
				e = &waitView{Waiter: newPartyView(w), Holder: newPartyView(o)}
				g.edges[between] = e
			}
			switch {
			case slices.Contains(e.Keys, st.Key): // several goroutines of the waiter wait for the key
			case len(e.Keys) == maxWaitKeys:
				e.More++
			default:
				e.Keys = append(e.Keys, st.Key)
			}
		}
	}
	if len(st.Queue) > 0 && !g.full {
		g.keys = append(g.keys, st)
	}
}

func newPartyView(p admin.Participant) partyView {
	return partyView{Session: p.Session, Name: p.Name, Host: p.Host, PID: p.PID}
}

// list returns up to n edges. Edges in cycles come before others; among the rest, edges with more keys come first.
func (g *waitGraph) list(n int, mark func(session string) marked) (all []waitView, more bool) {
	for _, d := range admin.FindDeadlocks(g.keys, g.keys) {
		for i, m := range d.Members {
			if e := g.edges[[2]string{m.Session, d.Members[(i+1)%len(d.Members)].Session}]; e != nil {
				e.Cycle = true
			}
		}
	}
	for _, e := range g.edges {
		all = append(all, *e)
	}
	cycle := func(w waitView) int {
		if w.Cycle {
			return 0
		}
		return 1
	}
	slices.SortFunc(all, func(a, b waitView) int {
		return cmp.Or(cycle(a)-cycle(b), cmp.Compare(b.More, a.More), cmp.Compare(len(b.Keys), len(a.Keys)),
			cmp.Compare(a.Keys[0], b.Keys[0]), cmp.Compare(a.Waiter.Session, b.Waiter.Session), cmp.Compare(a.Holder.Session, b.Holder.Session))
	})
	more = g.full || len(all) > n
	all = all[:min(n, len(all))]
	for i := range all {
		for _, p := range []*partyView{&all[i].Waiter, &all[i].Holder} {
			p.marked = mark(p.Session)
		}
	}
	return all, more
}
