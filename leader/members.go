package leader

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/leasehold-go/leasehold/dsync/driver"
	"github.com/leasehold-go/leasehold/internal/process"
)

// A Role is what a member does in an election.
type Role string

const (
	RoleLeader    Role = "leader"
	RoleCandidate Role = "candidate" // waits to be elected
	RoleObserver  Role = "observer"  // observes the election but does not campaign
)

// A Member is a process that takes part in an election or observes it, by [Election.Observe] or
// because it has [Hooks] that are called on every process. A process that observes so many elections
// that their names have more than 256 KiB together is no observer of the last ones, in byte order.
type Member struct {
	Session  string // the session's id, which changes after a loss
	Name     string // this and the next four are as in dsync.Options; zero if not shown
	Host     string
	PID      int
	App      string
	Meta     map[string]string
	Role     Role
	LastSeen time.Time // the last heartbeat, by the store's clock
}

// String describes the member for people, such as "candidate worker-a (process 11 on host-a)".
func (m Member) String() string {
	return fmt.Sprintf("%s %s", m.Role, process.Describe(m.Name, m.Host, m.PID, m.Session))
}

// Members returns all members of the election that are alive: the leader first, then the
// candidates in the order in which they will be elected, then the observers. A member that died
// disappears within one TTL.
//
// Members costs three reads and no write: the election's key with its queue, the sessions of
// leader and candidates, and the observers, which takes a scan of the store's sessions. Each
// further 1,000 sessions cost one more read, as does a queue of more than 1,000. Errors are
// those of ctx, dsync.ErrClosed and the store's.
func (e *Election) Members(ctx context.Context) ([]Member, error) {
	st, err := e.s.Load(ctx, e.name)
	if err != nil {
		return nil, fmt.Errorf("leader: members of %q: %w", e.name, err)
	}
	members, err := e.members(ctx, st)
	if err != nil {
		return nil, fmt.Errorf("leader: members of %q: %w", e.name, err)
	}
	return members, nil
}

// ObserveMembers returns a channel that receives the members of the election, in the order of
// [Election.Members]: the present ones first, and then all of them each time somebody joins,
// leaves, dies, or takes another role or place in the queue. A new heartbeat alone is no change, so
// LastSeen is as old as the last change. Each slice is the receiver's own.
//
// Like that of [Election.Observe], the channel has room for one value, and a newer value replaces
// one that was not received in time. It is closed when ctx or the session ends. Until then this
// process is a member itself. The hooks Joined and Left report the same changes one by one.
//
// A change of the leader or the queue is noticed when it happens. A death, and a change among
// processes that only observe, is noticed when the election is next read, within
// dsync.Options.PollInterval. Each reading costs as much as Members.
func (e *Election) ObserveMembers(ctx context.Context) <-chan []Member {
	var last []Member
	return observe(ctx, e, e.members, func(now []Member) (changed bool) {
		if changed = !slices.EqualFunc(now, last, sameMember); changed {
			last = slices.Clone(now)
		}
		return changed
	})
}

// sameMember reports whether a and b are the same session in the same role. All else that others
// see of a session, except its heartbeats, never changes.
func sameMember(a, b Member) bool { return a.Session == b.Session && a.Role == b.Role }

func (e *Election) members(ctx context.Context, st driver.State) (members []Member, err error) {
	queue, err := e.queue(ctx, st)
	if err != nil {
		return nil, err
	}
	roles := make(map[string]Role) // by session
	var ids []string               // in the order of the members
	add := func(session string, role Role) {
		if roles[session] == "" {
			roles[session] = role
			ids = append(ids, session)
		}
	}
	for _, h := range st.Holders {
		if h.Until.IsZero() {
			add(h.Session, RoleLeader)
		}
	}
	for _, w := range queue {
		add(w.Session, RoleCandidate)
	}
	alive, err := e.alive(ctx, ids)
	if err != nil {
		return nil, err
	}
	for _, id := range ids {
		if m, ok := alive[id]; ok {
			members = append(members, newMember(m, roles[id]))
		}
	}
	observers, err := e.s.Observers(ctx, e.name)
	if err != nil {
		return nil, err
	}
	for _, m := range observers {
		if roles[m.ID] == "" {
			members = append(members, newMember(m, RoleObserver))
		}
	}
	return members, nil
}

// queue returns all claims in the queue. st is the election's state.
func (e *Election) queue(ctx context.Context, st driver.State) ([]driver.Waiter, error) {
	if st.Waiting > len(st.WaitersAhead) {
		return e.s.Queue(ctx, e.name)
	}
	return st.WaitersAhead, nil
}

// alive returns the records of those sessions that are alive, by id.
func (e *Election) alive(ctx context.Context, ids []string) (map[string]driver.Member, error) {
	alive := make(map[string]driver.Member)
	if len(ids) == 0 { // without ids Members returns all sessions
		return alive, nil
	}
	found, now, err := e.s.Members(ctx, ids...)
	if err != nil {
		return nil, err
	}
	for _, m := range found {
		if !m.Expired && now.Before(m.LastHeartbeat.Add(m.TTL)) {
			alive[m.ID] = m
		}
	}
	return alive, nil
}

func newMember(m driver.Member, role Role) Member {
	return Member{
		Session: m.ID, Name: m.Name, Host: m.Host, PID: m.PID, App: m.App, Meta: m.Meta,
		Role: role, LastSeen: m.LastHeartbeat,
	}
}
