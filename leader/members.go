package leader

import (
	"context"
	"fmt"
	"time"

	"github.com/leasehold-go/leasehold/dsync"
)

// A Role is what a member is in an election.
type Role string

const (
	RoleLeader    Role = "leader"
	RoleCandidate Role = "candidate" // stands in line
	RoleObserver  Role = "observer"  // observes the election, and does not campaign
)

// A Member is a process that takes part in an election, or observes it: by
// [Election.Observe], or for those of its [Hooks] that are called on every process.
type Member struct {
	Session  string // its id; a new one after a loss
	Name     string // the identity that it shows, and so on: "" if it shows none
	Host     string
	PID      int
	App      string
	Meta     map[string]string
	Role     Role
	LastSeen time.Time // its last heartbeat, by the store's clock
}

// Members returns all members of the election that are alive, the leader first, then the
// candidates in the order in which they will lead, then the observers. The dead disappear
// within one TTL. It costs three reads, and nobody a write: the line, who its sessions
// are, and who observes, which passes over the list of all the store's sessions; one more
// for each further 1,000 sessions, and one where more than 1,000 are in line. Errors are
// ctx's, dsync.ErrClosed, or the store's.
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

func (e *Election) members(ctx context.Context, st dsync.State) (members []Member, err error) {
	line := st.Ahead
	if st.Waiting > len(line) {
		if line, err = e.s.Line(ctx, e.name); err != nil {
			return nil, err
		}
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
	for _, w := range line {
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

// alive reads which of the sessions live, and who they are.
func (e *Election) alive(ctx context.Context, ids []string) (map[string]dsync.Member, error) {
	alive := make(map[string]dsync.Member)
	if len(ids) == 0 { // without ids it would be all of the store
		return alive, nil
	}
	found, now, err := e.s.Members(ctx, ids...)
	if err != nil {
		return nil, err
	}
	for _, m := range found {
		if !m.Dead && now.Before(m.At.Add(m.TTL)) {
			alive[m.ID] = m
		}
	}
	return alive, nil
}

func newMember(m dsync.Member, role Role) Member {
	return Member{
		Session: m.ID, Name: m.Name, Host: m.Host, PID: m.PID, App: m.App, Meta: m.Meta,
		Role: role, LastSeen: m.At,
	}
}
