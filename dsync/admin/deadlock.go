package admin

import (
	"context"

	"github.com/leasehold-go/leasehold/dsync/driver"
	"github.com/leasehold-go/leasehold/internal/deadlock"
	"github.com/leasehold-go/leasehold/internal/reading"
)

// A Deadlock is a cycle of sessions: Members[i] holds Keys[i] and waits for Keys[i+1], the last member for Keys[0]. If
// in each session the same goroutine holds the one key and waits for the other, none can continue until a wait's
// context ends, a process ends, or somebody calls [Inspector.Break] on one of the keys. Programs that always lock their
// keys in the same order never deadlock.
//
// Each session looks for the deadlocks that it is part of. If a session that holds a key begins to wait for another, it
// looks when the wait has lasted for half a TTL (at least 5 s and at most 15 s), with its next heartbeat. It looks
// again each time the wait's length has doubled. Each member of a cycle logs the cycle once, as a warning, and passes
// it to [dsync.Hooks].Deadlock.
//
// A call that waits for a key that its own context holds, such as locking a key inside a [dsync.Mutex.Do] on the same
// key, is a deadlock with one member. The process reports such a deadlock in the same way and after the same time, but
// only if the call has the hold's context. The store does not know of it, so [Inspector.Deadlocks] does not find it.
//
// The store knows sessions, not goroutines, so a cycle is only a possible deadlock: one goroutine of a process may hold
// its key and work while another goroutine waits. The cycle itself is certain: it existed at one moment. A cycle is not
// reported
//
//   - if a member can continue: a holder waits for nothing, a semaphore has room, or a hold has a fixed end;
//   - if a key in it was granted less than 4 s ago;
//   - where the store can't notify, if a hold in it is less than an hour old, and another process may keep the key
//     unused ([dsync.Options].Linger): only that process knows whether the key is in use;
//   - if a session began to wait for its key before it requested the key that it holds, like a process that runs some
//     singletons and waits for others;
//   - if its members wait as candidates of an election, because candidates continue their work;
//   - if it is only among goroutines of one process.
type Deadlock struct {
	Members []Participant // as waiters
	Keys    []string
}

// String describes what each member holds and waits for.
func (d Deadlock) String() string {
	var members []string
	for _, m := range d.Members {
		members = append(members, m.String())
	}
	return deadlock.Describe(members, d.Keys)
}

// Deadlocks returns the deadlocks among the first 20,000 keys that begin with prefix. It reads these keys as
// [Inspector.List] does, twice if it seems to find a deadlock. Errors are those of List.
func (i *Inspector) Deadlocks(ctx context.Context, prefix string) ([]Deadlock, error) {
	found, members, err := reading.Deadlocks(ctx, i.s, prefix, nil)
	return newDeadlocks(found, func(c deadlock.Claim) Participant {
		return newParticipant(c.ID, c.Session, c.Weight, members[c.Session])
	}), listError(prefix, err)
}

// FindDeadlocks compares two readings of the same keys and returns deadlocks that both show, at least one for each
// waiter in a deadlock. Each Status is from a different moment, so one reading may show a cycle that never existed. But
// if both readings show a cycle, the whole cycle existed at a moment between them. A cycle counts only if none of its
// members would be freed even if all sessions outside the cycle released their keys.
//
// FindDeadlocks is for tools that have already read the keys; [Inspector.Deadlocks] reads them
// itself.
func FindDeadlocks(first, again []Status) []Deadlock {
	waiters := make(map[string]Participant)
	keys := func(all []Status) (keys []deadlock.Key) {
		for _, st := range all {
			keys = append(keys, deadlock.Key{
				Name: st.Key, Kind: st.Kind, Limit: st.Limit, Now: st.Now, Holders: claims(st.Holders), Queue: claims(st.Queue),
			})
			for _, w := range st.Queue {
				waiters[w.Claim] = w
			}
		}
		return keys
	}
	return newDeadlocks(deadlock.Find(keys(first), keys(again), nil), func(c deadlock.Claim) Participant { return waiters[c.ID] })
}

func claims(all []Participant) (claims []deadlock.Claim) {
	for _, p := range all {
		claims = append(claims, deadlock.Claim{
			ID: p.Claim, Session: p.Session, Weight: p.Weight, Since: p.Since, Renewed: p.Renewed, Lapsed: p.Lapsed, Yields: p.Yields,
		})
	}
	return claims
}

func newDeadlocks(found []deadlock.Cycle, waiter func(deadlock.Claim) Participant) (all []Deadlock) {
	for _, c := range found {
		d := Deadlock{Keys: c.Keys}
		for _, m := range c.Members {
			d.Members = append(d.Members, waiter(m))
		}
		all = append(all, d)
	}
	return all
}

func newParticipant(claim, session string, weight int64, m driver.Member) Participant {
	return Participant{
		Claim: claim, Session: session, Weight: weight,
		Name: m.Name, Host: m.Host, PID: m.PID, App: m.App, Meta: m.Meta, Seen: m.LastHeartbeat, TTL: m.TTL,
	}
}
