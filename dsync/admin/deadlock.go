package admin

import (
	"context"

	"github.com/leasehold-go/leasehold/dsync/driver"
	"github.com/leasehold-go/leasehold/internal/deadlock"
)

// A Deadlock is a cycle of sessions: Members[i] holds Keys[i] and waits for Keys[i+1], the last one for Keys[0]. If
// the same work holds and waits in each of them, all wait forever, unless a wait's context ends, a process ends, or
// somebody calls [Inspector.Break] on one of the keys. Programs that lock their keys in one order are never in one.
//
// Each session looks for those that it is in itself, with a heartbeat when one of its waits has lasted for half a TTL (at
// least 5 s and at most 15 s), and each time that its age has doubled, if it holds a key that it locked before. Each
// member of a cycle logs it once, as a warning, and passes it to [dsync.Hooks].Deadlock.
//
// A call that waits for a key that its own context holds, such as a lock of a key inside of a [dsync.Mutex.Do] of it, is
// a deadlock with one member. Its process reports it in the same way and after the same time. If the call has another
// context, or none, it is not reported. The store does not know it, and [Inspector.Deadlocks] does not find it.
//
// The store knows sessions and not goroutines, so it is a possible deadlock: one goroutine of a process may hold the
// key and work, while another one waits. The cycle itself is certain: it was there at one moment. None is reported
//
//   - if somebody in the cycle can go on: there is a holder that waits for nothing, a semaphore with room, or a hold
//     with a fixed end;
//   - of a key that was granted less than 4 s ago;
//   - by sessions where the store can't notify, in the first hour, of a key that another process may keep unused
//     ([dsync.Options].Linger): whether it is in use, only that process knows;
//   - if a session requested the key that it waits for before the one that it holds, as a process does that runs some
//     singletons and waits for others;
//   - of candidates of an election, who go on with their work, and of goroutines that wait for others of their process.
type Deadlock struct {
	Members []Participant // as waiters
	Keys    []string
}

// String says what each member holds and waits for.
func (d Deadlock) String() string {
	var members []string
	for _, m := range d.Members {
		members = append(members, m.String())
	}
	return deadlock.Describe(members, d.Keys)
}

// Deadlocks returns the deadlocks among the keys that begin with prefix, up to 20,000 of them. It reads
// these keys as [Inspector.List] does, twice if it seems to find one. Errors are those of List.
func (i *Inspector) Deadlocks(ctx context.Context, prefix string) ([]Deadlock, error) {
	found, members, err := i.s.Deadlocks(ctx, prefix)
	return newDeadlocks(found, func(c deadlock.Claim) Participant {
		return newParticipant(c.ID, c.Session, c.Weight, members[c.Session])
	}), listError(prefix, err)
}

// FindDeadlocks returns the deadlocks in two readings of some keys, such that each waiter in one is in at least one of
// them. Statuses are each of another moment, so together they may show a cycle that never was. What is in both readings
// was there from the one to the other, all at the same time. A cycle is found only if no holder outside of it, and no
// order in which holders release, lets anybody in it go on.
//
// It is for tools that have read the keys already; [Inspector.Deadlocks] reads them.
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
