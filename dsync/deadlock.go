package dsync

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"time"
)

// A Deadlock is a cycle of sessions: Members[i] holds Keys[i] and waits for Keys[i+1], the last one for Keys[0]. If
// the same work holds and waits in each of them, all wait forever, unless a LockContext gives up, a process ends, or
// somebody calls [Session.Break] on one of the keys. Programs that lock their keys in one order, as [Mutexes] does,
// are never in one.
//
// A session looks with a heartbeat when one of its waits has lasted for half a TTL (at least 5 s and at most 15 s), and
// each time that its age has doubled, if it holds a key that it locked before. Each member of a cycle logs it once, as
// a warning, and passes it to [Hooks].Deadlock.
//
// A call that waits for a key that its own context holds, such as a LockContext in a [Mutex.Do] of the same key, is a
// Deadlock with one member. It is reported in the same way and after the same time. If the call has another context, or
// none, it is not reported.
//
// The store knows sessions and not goroutines, so it is a possible deadlock: one goroutine of a process may hold the
// key and work, while another one waits. The cycle itself is certain: it was there at one moment. None is reported
//
//   - if somebody in the cycle can go on: there is a holder that waits for nothing, a semaphore with room, or a hold
//     with a fixed end, such as a [Lease];
//   - of a key that was granted less than 4 s ago;
//   - where the store can't notify, in the first hour, of a key that another process may keep unused
//     ([Options].Linger): whether it is in use, only that process knows;
//   - if a session requested the key that it waits for before the one that it holds, as a process does that runs some
//     singletons and waits for others;
//   - of candidates of an election, who go on with their work, and of goroutines that wait for others of their process.
type Deadlock struct {
	Members []Participant // as waiters
	Keys    []string
}

// nested returns the deadlock of a call of m that waits for a key that its own context holds.
func nested(m Member, key string) fmt.Stringer {
	return Deadlock{
		Members: []Participant{{Session: m.ID, Name: m.Name, Host: m.Host, PID: m.PID, App: m.App, Meta: m.Meta}},
		Keys:    []string{key},
	}
}

// String says what each member holds and waits for.
func (d Deadlock) String() string {
	var all []string
	for i, m := range d.Members {
		all = append(all, fmt.Sprintf("%s holds %q and waits for %q", m, d.Keys[i], d.next(i)))
	}
	return strings.Join(all, "; ")
}

func (d Deadlock) next(i int) string { return d.Keys[(i+1)%len(d.Keys)] }

// Deadlocks returns the deadlocks among the keys that begin with prefix, up to 20,000 of them. It reads
// these keys as [Session.List] does, twice if it seems to find one. Errors are those of List.
func (s *Session) Deadlocks(ctx context.Context, prefix string) ([]Deadlock, error) {
	return s.deadlocks(ctx, prefix, nil)
}

func (s *Session) deadlocks(ctx context.Context, prefix string, ends func(h Participant, now time.Time) bool) ([]Deadlock, error) {
	first, err := s.contended(ctx, prefix)
	if err != nil || len(findDeadlocks(first, first, ends)) == 0 {
		return nil, err
	}
	again, err := s.contended(ctx, prefix)
	return findDeadlocks(first, again, ends), err
}

// contended returns the keys for which somebody waits, with all their waiters.
func (s *Session) contended(ctx context.Context, prefix string) (some []Status, err error) {
	n := 0
	for st, err := range s.List(ctx, prefix) {
		if err == nil && st.Waiting > len(st.Queue) {
			st, err = s.Status(ctx, st.Key)
		}
		if n++; err != nil || n > 20_000 {
			return some, err
		}
		if st.Waiting > 0 {
			some = append(some, st)
		}
	}
	return some, nil
}

const maxLinger = time.Hour

// look returns the deadlocks that the session with that id is in, by names that no others have. It reads all keys
// only if somebody waits for one that the session holds: otherwise it is in none, however long it waits.
//
// With polls, the store can't notify. Then a key that another process may keep unused is not known to be in use, and
// free when that one's Linger is over, which is hardly ever longer than maxLinger.
func (s *Session) look(id string, held []string, polls bool, nested func(held, waits string) bool) (map[string]fmt.Stringer, error) {
	ctx, found := context.Background(), make(map[string]fmt.Stringer)
	var failed error
	if !slices.ContainsFunc(held, func(key string) bool {
		st, err := s.engine.Load(ctx, key)
		failed = err
		return err != nil || st.Waiting > 0
	}) || failed != nil {
		return nil, failed
	}
	all, err := s.deadlocks(ctx, "", func(h Participant, now time.Time) bool {
		return polls && h.Yields && h.Session != id && now.Sub(h.Since) < maxLinger
	})
	for _, d := range all {
		name, own := "", false
		for i, m := range d.Members {
			name += m.Claim + " "
			own = own || m.Session == id && nested(d.Keys[i], d.next(i))
		}
		if own {
			found[name] = d
		}
	}
	return found, err
}

// FindDeadlocks returns the deadlocks in two readings of some keys, such that each waiter in one is in at least one of
// them. Statuses are each of another moment, so together they may show a cycle that never was. What is in both readings
// was there from the one to the other, all at the same time. A cycle is found only if no holder outside of it, and no
// order in which holders release, lets anybody in it go on.
func FindDeadlocks(first, again []Status) (all []Deadlock) { return findDeadlocks(first, again, nil) }

// findDeadlocks is FindDeadlocks, where ends reports of a hold of all of a key that it may end by itself; nil: of none.
func findDeadlocks(first, again []Status, ends func(h Participant, now time.Time) bool) (all []Deadlock) {
	g := &waitGraph{waits: make(map[string][]Participant), key: make(map[string]*Status)}
	role := func(p Participant) string { return p.Claim + p.Since.String() } // a waiter has no Since
	before := make(map[string]bool)
	for _, k := range first {
		for _, p := range slices.Concat(k.Holders, k.Queue) {
			before[role(p)] = true
		}
	}
	for _, k := range again {
		if k.Kind == KindElection { // its candidates go on with their work
			continue
		}
		k.Holders = slices.DeleteFunc(slices.Clone(k.Holders), func(h Participant) bool {
			return !before[role(h)] || !h.Renewed || h.Lapsed || k.Now.Sub(h.Since) < 4*time.Second || // it may change hands all the time
				ends != nil && h.Weight == k.Limit && ends(h, k.Now)
		})
		k.Queue = slices.DeleteFunc(slices.Clone(k.Queue), func(w Participant) bool { return !before[role(w)] })
		g.keys = append(g.keys, &k)
		for _, w := range k.Queue {
			g.waits[w.Session], g.key[w.Claim] = append(g.waits[w.Session], w), &k
		}
	}
	g.reduce()
	for _, k := range g.keys {
		for _, w := range k.Queue {
			has := func(d Deadlock) bool {
				return slices.ContainsFunc(d.Members, func(m Participant) bool { return m.Claim == w.Claim })
			}
			if d := g.through(w); d.Keys != nil && !slices.ContainsFunc(all, has) {
				all = append(all, d)
			}
		}
	}
	return all
}

// A waitGraph is a wait-for graph of claims.
type waitGraph struct {
	keys  []*Status                // with what is left of their holders and queues
	waits map[string][]Participant // by session
	key   map[string]*Status       // of each claim that is not served
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
			k.Holders = slices.DeleteFunc(k.Holders, func(h Participant) bool { return len(g.keepers(k, h)) == 0 })
			changed = changed || len(k.Holders) < before
			free := k.Limit // counted down: the sum of the weights can overflow
			for _, h := range k.Holders {
				free -= h.Weight
			}
			for len(k.Queue) > 0 && (len(k.Holders) == 0 || k.Queue[0].Weight <= free) {
				delete(g.key, k.Queue[0].Claim)
				k.Queue = k.Queue[1:]
				changed = true
			}
		}
	}
}

// keepers returns the waits that may keep the session from releasing h. A wait for the same key is that of another
// goroutine: with a semaphore, one often holds a part while others wait.
func (g *waitGraph) keepers(k *Status, h Participant) (some []Participant) {
	for _, w := range g.waits[h.Session] {
		later := cmp.Or(len(w.Claim)-len(h.Claim), strings.Compare(w.Claim, h.Claim)) > 0 // their ids end in numbers: see driver.Claim
		if at := g.key[w.Claim]; at != nil && at != k && later {
			some = append(some, w)
		}
	}
	return some
}

// through returns the shortest cycle that w is in, or one without Keys. Its first member holds w's key.
func (g *waitGraph) through(w Participant) (d Deadlock) {
	before := make(map[string]Participant) // the wait for what a session holds, by its own wait
	for line := []Participant{w}; len(line) > 0; line = line[1:] {
		at := line[0]
		for _, h := range g.key[at.Claim].Holders {
			for _, next := range g.keepers(g.key[at.Claim], h) {
				if _, seen := before[next.Claim]; !seen && h.Session != at.Session {
					before[next.Claim] = at
					line = append(line, next)
				}
			}
		}
	}
	_, cycle := before[w.Claim]
	for at := w; cycle && (d.Keys == nil || at.Claim != w.Claim); at = before[at.Claim] {
		d.Members = slices.Insert(d.Members, 0, at)
		d.Keys = slices.Insert(d.Keys, 0, g.key[before[at.Claim].Claim].Key)
	}
	return d
}
