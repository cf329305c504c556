package leader

import (
	"context"

	"github.com/leasehold-go/leasehold/dsync"
)

// seen is what the hooks were told last.
type seen struct {
	leader  Leader
	members map[string]Member // by session; nil before the first look
}

// look has the session look at the election for the hooks that want it, from the
// first call until the session ends, or they are to hear no more.
func (e *Election) look() {
	h := e.opt.Hooks
	if h.NewLeader == nil && h.Cycle == nil && h.Joined == nil && h.Left == nil {
		return
	}
	e.mu.Lock()
	before := e.looks
	e.looks = true
	e.mu.Unlock()
	if !before {
		e.s.Observe(e.heard, e.name, e.looked, func() {})
	}
}

// looked takes in one look. Only the session's goroutine for it calls it.
func (e *Election) looked(st dsync.State, err error) {
	h, ctx := e.opt.Hooks, context.Background()
	var l Leader
	if err == nil {
		l, err = e.leader(ctx, st)
	}
	if err == nil {
		if before := e.seen.leader; before.Token != l.Token {
			if f := h.NewLeader; f != nil {
				e.hooks.Add(func() { f(before, l) })
			}
		}
		e.seen.leader = l
		if h.Joined != nil || h.Left != nil {
			err = e.census(ctx, st)
		}
	}
	if f := h.Cycle; f != nil {
		s := Status{Leader: e.seen.leader, IsLeader: e.IsLeader(), Err: err}
		e.hooks.AddLatest(func() { f(s) })
	}
}

// census tells who has come and who has gone since the last look.
func (e *Election) census(ctx context.Context, st dsync.State) error {
	all, err := e.members(ctx, st)
	if err != nil {
		return err
	}
	now := make(map[string]Member, len(all))
	for _, m := range all {
		now[m.Session] = m
		if _, known := e.seen.members[m.Session]; !known && e.opt.Hooks.Joined != nil {
			e.hooks.Add(func() { e.opt.Hooks.Joined(m) })
		}
	}
	for id, m := range e.seen.members {
		if _, still := now[id]; !still && e.opt.Hooks.Left != nil {
			e.hooks.Add(func() { e.opt.Hooks.Left(m) })
		}
	}
	e.seen.members = now
	return nil
}
