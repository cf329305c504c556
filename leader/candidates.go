package leader

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/leasehold-go/leasehold/dsync/driver"
	"github.com/leasehold-go/leasehold/internal/process"
)

// A Candidate is a process that campaigns in an election, or leads it.
type Candidate struct {
	Session  string // the session's id, which changes after a loss
	Name     string // Name, Host, App and Meta are as in dsync.Options; these and PID are zero if hidden
	Host     string
	PID      int
	App      string
	Meta     map[string]string
	IsLeader bool
	Seen     time.Time // the session's last heartbeat, by the store's clock
}

// String describes the candidate for people, such as "candidate worker-a (process 11 on host-a)".
func (c Candidate) String() string {
	role := "candidate"
	if c.IsLeader {
		role = "leader"
	}
	return fmt.Sprintf("%s %s", role, process.Describe(c.Name, c.Host, c.PID, c.Session))
}

// Candidates returns the leader, followed by the processes that wait to be elected, in the order of
// the queue. A crashed candidate is left out once its session has expired, within one TTL.
//
// Candidates costs two reads, one more for each further 1,000 candidates, and one more if the queue
// is longer than 1,000. It writes nothing. The error is ctx's, dsync.ErrClosed or the store's.
func (e *Election) Candidates(ctx context.Context) ([]Candidate, error) {
	st, err := e.s.Load(ctx, e.name)
	if err != nil {
		return nil, fmt.Errorf("leader: candidates of %q: %w", e.name, err)
	}
	all, err := e.candidates(ctx, st)
	if err != nil {
		return nil, fmt.Errorf("leader: candidates of %q: %w", e.name, err)
	}
	return all, nil
}

// ObserveCandidates returns a channel that receives the list of candidates, in the order of
// [Election.Candidates]: first the current list, and then a new one each time a candidate joins,
// leaves, crashes or is elected. A heartbeat alone does not cause a new list. The receiver may
// modify the slice.
//
// The channel holds the latest list, and is closed when ctx or the session ends. If a candidate crashes, the new list
// comes with the next reading of the election, within dsync.Options.PollInterval after the candidate's session has
// expired. Each reading costs as much as Candidates.
func (e *Election) ObserveCandidates(ctx context.Context) <-chan []Candidate {
	var last []Candidate
	return observe(ctx, e, e.candidates, func(now []Candidate) (changed bool) {
		if changed = !slices.EqualFunc(now, last, sameCandidate); changed {
			last = slices.Clone(now)
		}
		return changed
	})
}

// sameCandidate reports whether a and b are the same session in the same role. Of the other fields, only Seen changes
// during a session, and it does not count.
func sameCandidate(a, b Candidate) bool { return a.Session == b.Session && a.IsLeader == b.IsLeader }

func (e *Election) candidates(ctx context.Context, st driver.State) (all []Candidate, err error) {
	queue, err := e.queue(ctx, st)
	if err != nil {
		return nil, err
	}
	var ids []string // in the order of the candidates
	leads := make(map[string]bool)
	add := func(session string, leader bool) {
		if _, known := leads[session]; !known {
			leads[session] = leader
			ids = append(ids, session)
		}
	}
	for _, h := range st.Holders {
		if h.Until.IsZero() {
			add(h.Session, true)
		}
	}
	for _, w := range queue {
		add(w.Session, false)
	}
	alive, err := e.alive(ctx, ids)
	if err != nil {
		return nil, err
	}
	for _, id := range ids {
		if m, ok := alive[id]; ok {
			all = append(all, Candidate{
				Session: m.ID, Name: m.Name, Host: m.Host, PID: m.PID, App: m.App, Meta: m.Meta,
				IsLeader: leads[id], Seen: m.LastHeartbeat,
			})
		}
	}
	return all, nil
}

// queue returns all claims in the queue of the election whose state is st.
func (e *Election) queue(ctx context.Context, st driver.State) ([]driver.Waiter, error) {
	if st.Waiting > len(st.WaitersAhead) {
		return e.s.Queue(ctx, e.name)
	}
	return st.WaitersAhead, nil
}

// alive returns, by id, the records of those sessions that are alive.
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
