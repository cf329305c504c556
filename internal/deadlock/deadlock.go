// Package deadlock finds processes that wait for each other, in readings of the keys that they hold and wait for. It reads
// nothing itself: the engine does, for sessions and for package admin.
package deadlock

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/leasehold-go/leasehold/dsync/driver"
)

// A Key is what was read of a key.
type Key struct {
	Name    string
	Kind    driver.Kind
	Limit   int64
	Now     time.Time // of the reading
	Holders []Claim
	Queue   []Claim // in FIFO order
}

// A Claim is a holder of a key, or a waiter.
type Claim struct {
	ID, Session string
	Weight      int64

	// For holders only:
	Since   time.Time // the time of the grant
	Renewed bool      // the hold lives with its session; false: it has a fixed end
	Lapsed  bool      // its session has expired, or may
	Yields  bool      // its process may keep it unused until others wait
}

// A Cycle is a deadlock: Members[i] holds Keys[i] and waits for Keys[i+1], the last one for Keys[0].
type Cycle struct {
	Members []Claim // as waiters
	Keys    []string
}

// Next returns the key that Members[i] waits for.
func (c Cycle) Next(i int) string { return after(c.Keys, i) }

func after(keys []string, i int) string { return keys[(i+1)%len(keys)] }

// Describe says for people what each member of a cycle holds and waits for.
func Describe(members, keys []string) string {
	var all []string
	for i, m := range members {
		all = append(all, fmt.Sprintf("%s holds %q and waits for %q", m, keys[i], after(keys, i)))
	}
	return strings.Join(all, "; ")
}

// Find returns the deadlocks in two readings of some keys, such that each waiter in one is in at least one of
// them. Keys are each read at another moment, so together they may show a cycle that never was. What is in both readings
// was there from the one to the other, all at the same time. A cycle is found only if no holder outside of it, and no
// order in which holders release, lets anybody in it go on. The function ends reports of a hold of all of a key that it
// may end by itself; nil: of none.
func Find(first, again []Key, ends func(h Claim, now time.Time) bool) (all []Cycle) {
	g := &waitGraph{waits: make(map[string][]Claim), key: make(map[string]*Key)}
	role := func(p Claim) string { return p.ID + p.Since.String() } // a waiter has no Since
	before := make(map[string]bool)
	for _, k := range first {
		for _, p := range slices.Concat(k.Holders, k.Queue) {
			before[role(p)] = true
		}
	}
	for _, k := range again {
		if k.Kind == driver.KindElection { // its candidates go on with their work
			continue
		}
		k.Holders = slices.DeleteFunc(slices.Clone(k.Holders), func(h Claim) bool {
			return !before[role(h)] || !h.Renewed || h.Lapsed || k.Now.Sub(h.Since) < 4*time.Second || // it may change hands all the time
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
	keys  []*Key             // with what is left of their holders and queues
	waits map[string][]Claim // by session
	key   map[string]*Key    // of each claim that is not served
}

// reduce plays what happens if every session that waits for nothing releases what it holds, and so on with
// those that are served then. Those that are never served remain. The order does not matter: what can be
// released or granted can still be later. What is granted in the play is released in it too: a wait that exists
// now did not begin after that grant.
func (g *waitGraph) reduce() {
	for changed := true; changed; {
		changed = false
		for _, k := range g.keys {
			before := len(k.Holders)
			k.Holders = slices.DeleteFunc(k.Holders, func(h Claim) bool { return len(g.keepers(k, h)) == 0 })
			changed = changed || len(k.Holders) < before
			free := k.Limit // counted down: the sum of the weights can overflow
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

// keepers returns the waits that may keep the session from releasing h. A wait for the same key is that of another
// goroutine: with a semaphore, one often holds a part while others wait.
func (g *waitGraph) keepers(k *Key, h Claim) (some []Claim) {
	for _, w := range g.waits[h.Session] {
		later := cmp.Or(len(w.ID)-len(h.ID), strings.Compare(w.ID, h.ID)) > 0 // their ids end in numbers: see driver.Claim
		if at := g.key[w.ID]; at != nil && at != k && later {
			some = append(some, w)
		}
	}
	return some
}

// through returns the shortest cycle that w is in, or one without Keys. Its first member holds w's key.
func (g *waitGraph) through(w Claim) (c Cycle) {
	before := make(map[string]Claim) // the wait for what a session holds, by its own wait
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
