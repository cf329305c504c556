package leader

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/leasehold-go/leasehold/dsync"
)

// A Role is what a member is in an election.
type Role string

const (
	RoleLeader    Role = "leader"
	RoleCandidate Role = "candidate" // stands in line
	RoleObserver  Role = "observer"  // has a session on the same store, and does not campaign
)

// A Member is a process that has a session on the store.
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

// Members returns all processes that are alive, the leader first, then the
// candidates in the order in which they will lead, then the others that have a
// session on the same store. The dead disappear within one TTL. It costs two
// reads, and nobody a write: it is the list of the store's sessions, at most 1,000,
// joined with the line. Errors are ctx's, dsync.ErrClosed, or the store's.
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

func (e *Election) members(ctx context.Context, st dsync.State) ([]Member, error) {
	all, _, err := e.s.Members(ctx)
	if err != nil {
		return nil, err
	}
	// Their places: 0 leads, then the line, then the rest.
	place := make(map[string]int)
	for i, w := range slices.Backward(st.Ahead) {
		place[w.Session] = 1 + i
	}
	for _, h := range st.Holders {
		if h.Until.IsZero() {
			place[h.Session] = 0
		}
	}
	var members []Member
	for _, m := range all {
		role := RoleObserver
		if p, ok := place[m.ID]; !ok {
			place[m.ID] = 1 + len(st.Ahead)
		} else if role = RoleCandidate; p == 0 {
			role = RoleLeader
		}
		members = append(members, Member{
			Session: m.ID, Name: m.Name, Host: m.Host, PID: m.PID, App: m.App, Meta: m.Meta,
			Role: role, LastSeen: m.At,
		})
	}
	slices.SortStableFunc(members, func(a, b Member) int { return place[a.Session] - place[b.Session] })
	return members, nil
}
