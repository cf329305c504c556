// Package deadlock finds processes that wait for each other. It searches readings of the keys that the processes hold
// and wait for. Package engine reads the keys, for sessions and for package admin.
package deadlock

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/leasehold-go/leasehold/dsync/driver"
)

// A Key is the state of a key, as read from the store.
type Key struct {
	Name    string
	Kind    driver.Kind
	Limit   int64
	Now     time.Time // time of the reading
	Holders []Claim
	Queue   []Claim // in FIFO order
}

// A Claim is a holder of a key, or a waiter.
type Claim struct {
	ID, Session string
	Weight      int64

	// For holders only:
	Since   time.Time // time of the grant
	Renewed bool      // the hold lives with its session; false: it has a fixed end
	Lapsed  bool      // its session has expired, or has lapsed and can be expired
	Yields  bool      // its process may keep it, unused, until others wait
}

// A Cycle is a deadlock: Members[i] holds Keys[i] and waits for Keys[i+1]; the last member waits for Keys[0].
type Cycle struct {
	Members []Claim // the claims with which the members wait
	Keys    []string
}

// Next returns the key that Members[i] waits for.
func (c Cycle) Next(i int) string { return after(c.Keys, i) }

func after(keys []string, i int) string { return keys[(i+1)%len(keys)] }

// Describe describes, for people, what each member of a cycle holds and waits for.
func Describe(members, keys []string) string {
	var all []string
	for i, m := range members {
		all = append(all, fmt.Sprintf("%s holds %q and waits for %q", m, keys[i], after(keys, i)))
	}
	return strings.Join(all, "; ")
}

// Find returns the deadlocks that two readings of the same keys show. Each waiter in a deadlock is a member of at least
// one of them. Each key is read at a different moment, so a single reading may show a cycle that never existed. But
// everything that both readings show existed at the same time, between the readings. A cycle counts only if nothing,
// such as a release by a holder outside the cycle, can free any of its members. The function ends reports whether a
// hold of a whole key may end by itself; if the function is nil, no hold does.
func Find(first, again []Key, ends func(h Claim, now time.Time) bool) (all []Cycle) {
	g := &waitGraph{waits: make(map[string][]Claim), key: make(map[string]*Key)}
	role := func(p Claim) string { return p.ID + p.Since.String() } // Since is zero for a waiter
	before := make(map[string]bool)
	for _, k := range first {
		for _, p := range slices.Concat(k.Holders, k.Queue) {
			before[role(p)] = true
		}
	}
	for _, k := range again {
		if k.Kind == driver.KindElection { // a candidate that waits in an election still does its other work
			continue
		}
		k.Holders = slices.DeleteFunc(slices.Clone(k.Holders), func(h Claim) bool {
			return !before[role(h)] || !h.Renewed || h.Lapsed || k.Now.Sub(h.Since) < 4*time.Second || // a key that changes hands often is not stuck
				ends != nil && h.Weight == k.Limit && ends(h, k.Now)
		})
		k.Queue = slices.DeleteFunc(slices.Clone(k.Queue), func(w Claim) bool { return !before[role(w)] })
		g.keys = append(g.keys, &k)
		for _, w := range k.Queue {
			g.waits[w.Session], g.key[w.ID] = append(g.waits[w.Session], w), &k
		}
	}
	g.reduce()
	for _, k := range g.keys {
		for _, w := range k.Queue {
			has := func(c Cycle) bool {
				return slices.ContainsFunc(c.Members, func(m Claim) bool { return m.ID == w.ID })
			}
			if c := g.through(w); c.Keys != nil && !slices.ContainsFunc(all, has) {
				all = append(all, c)
			}
		}
	}
	return all
}

// A waitGraph is a wait-for graph of claims.
type waitGraph struct {
	keys  []*Key             // with the holders and waiters that reduce has left
	waits map[string][]Claim // by session
	key   map[string]*Key    // by the id of a waiting claim: the key that it waits for
}

// reduce simulates what happens if every session that waits for nothing releases its holds. Then every session that
// no longer waits does the same, and so on. The claims that are never served remain. The order does not matter:
// what can be released or granted now can also be released or granted later. If the simulation grants a claim, it also
// releases the claim at once, because all other waits of the claim's session began before that grant.
func (g *waitGraph) reduce() {
	for changed := true; changed; {
		changed = false
		for _, k := range g.keys {
			before := len(k.Holders)
			k.Holders = slices.DeleteFunc(k.Holders, func(h Claim) bool { return len(g.keepers(k, h)) == 0 })
			changed = changed || len(k.Holders) < before
			free := k.Limit // subtract: a sum of weights can overflow
			for _, h := range k.Holders {
				free -= h.Weight
			}
			for len(k.Queue) > 0 && (len(k.Holders) == 0 || k.Queue[0].Weight <= free) {
				delete(g.key, k.Queue[0].ID)
				k.Queue = k.Queue[1:]
				changed = true
			}
		}
	}
}

// keepers returns the waits that may keep h's session from releasing h. They do not include waits that were requested
// before h, or waits for h's own key, because such waits belong to other goroutines. For example, one goroutine often
// holds part of a semaphore while others wait for it.
func (g *waitGraph) keepers(k *Key, h Claim) (some []Claim) {
	for _, w := range g.waits[h.Session] {
		later := cmp.Or(len(w.ID)-len(h.ID), strings.Compare(w.ID, h.ID)) > 0 // the ids end in numbers: see driver.Claim
		if at := g.key[w.ID]; at != nil && at != k && later {
			some = append(some, w)
		}
	}
	return some
}

// through returns the shortest cycle through w, or a Cycle without Keys if there is none. The cycle's first member holds
// the key that w waits for.
func (g *waitGraph) through(w Claim) (c Cycle) {
	before := make(map[string]Claim) // by the id of a wait: another wait, for a key that the first wait's session holds
	for line := []Claim{w}; len(line) > 0; line = line[1:] {
		at := line[0]
		for _, h := range g.key[at.ID].Holders {
			for _, next := range g.keepers(g.key[at.ID], h) {
				if _, seen := before[next.ID]; !seen && h.Session != at.Session {
					before[next.ID] = at
					line = append(line, next)
				}
			}
		}
	}
	_, cycle := before[w.ID]
	for at := w; cycle && (c.Keys == nil || at.ID != w.ID); at = before[at.ID] {
		c.Members = slices.Insert(c.Members, 0, at)
		c.Keys = slices.Insert(c.Keys, 0, g.key[before[at.ID].ID].Name)
	}
	return c
}
