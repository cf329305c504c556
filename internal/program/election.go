package program

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/leasehold-go/leasehold/dsync"
	"github.com/leasehold-go/leasehold/internal/rules"
	"github.com/leasehold-go/leasehold/leader"
)

// newElection returns an Election for one term. If two terms shared an Election, campaigning for the second would
// end the first.
func newElection(l *life, key string, preference int) *leader.Election {
	e, err := leader.New(l.Session, key, &leader.Options{Preference: preference})
	if err != nil {
		panic(err) // cannot fail: the keys of programs are valid
	}
	return e
}

func (g *goroutine) campaign(o Op, key string) {
	c := g.begin(key)
	e := newElection(c.life, key, o.Arg%3)
	var term context.Context
	brief := false // the term may have ended together with the wait's context
	parent, end := context.WithCancelCause(context.Background())
	by := func(campaign func(context.Context) (context.Context, error)) func(context.Context) error {
		return func(ctx context.Context) (err error) {
			// ctx bounds the wait only. Campaign alone would not do, because it makes ctx the parent of the term as
			// well.
			stop := context.AfterFunc(ctx, func() { end(context.Cause(ctx)) })
			term, err = campaign(parent)
			brief = !stop()
			if err != nil && ctx.Err() != nil {
				err = fmt.Errorf("%w: %w", ctx.Err(), err)
			}
			return err
		}
	}
	if !g.requests(c, o, by(e.Campaign), by(e.TryCampaign)) {
		end(nil)
		return
	}
	t, _ := leader.TermFrom(term)
	g.elected(c, t)
	h := &hold{Hold: rules.Hold{Token: t.Token, Term: t.Number}, brief: brief, lost: term.Done(), open: func() bool { return term.Err() == nil }}
	resign := func(ctx context.Context) error {
		var lost error
		if term.Err() != nil {
			lost = fmt.Errorf("%w: %w", dsync.ErrLost, context.Cause(term))
		}
		return errors.Join(lost, e.Resign(ctx))
	}
	h.release = func(o Op) {
		defer end(nil)
		if o.Verb == Transfer {
			if to, ok := g.candidate(o, h, e); ok {
				g.transfer(o, h, e, to, resign)
				return
			}
		}
		g.unlock(h, o, resign)
	}
	g.took(c, h, o.Verb)
}

// elected records a term. It checks that the term has no other leader and that, after a transfer, the named
// candidate leads.
func (g *goroutine) elected(c *call, t leader.Term) {
	g.mu.Lock()
	defer g.mu.Unlock()
	p := g.page(c.key)
	if other, ok := p.leads[t.Number]; ok {
		g.fail("%s leads term %d of %s, which session %s led", c.who, t.Number, c.key, other)
	}
	p.leads[t.Number] = t.Session
	g.succeeds(p, c.key, t.Number)
}

// succeeds checks that the session to which the term was transferred leads. r.mu must be held.
func (r *runner) succeeds(p *page, key string, term int64) {
	got, led := p.leads[term]
	if want, named := p.named[term]; led && named && got != want {
		r.fail("term %d of %s was transferred to session %s, but session %s leads", term, key, want, got)
	}
}

// nobody is an id that no session has.
const nobody = "nobody"

// candidate chooses one of the candidates other than the leader. In variant 3 it may also choose the leader, or a
// session that does not exist. The result ok is false if there is no candidate, or if the store did not answer.
func (g *goroutine) candidate(o Op, h *hold, e *leader.Election) (to leader.Candidate, ok bool) {
	c := g.beginRelease(h)
	cancel := c.context(g.long, true)
	defer cancel()
	all, err := e.Candidates(c.ctx)
	c.returned(err, store)
	if err != nil {
		return to, false
	}
	if o.Variant == 3 {
		all = append(all, leader.Candidate{Session: nobody})
	} else {
		all = slices.DeleteFunc(all, func(c leader.Candidate) bool { return c.IsLeader })
	}
	if len(all) == 0 {
		return to, false
	}
	return all[o.Arg%len(all)], true
}

// transfer transfers h's term to a candidate, and checks the result.
func (g *goroutine) transfer(o Op, h *hold, e *leader.Election, to leader.Candidate, resign func(context.Context) error) {
	c := g.beginRelease(h)
	wasLost, excused := g.end(h)
	d := g.ttl
	if o.Variant == 2 {
		d = 0
	}
	cancel := c.context(d, true)
	defer cancel()
	err := e.Transfer(c.ctx, to)
	resigned := errors.Is(err, leader.ErrResigned)
	refused := errors.Is(err, leader.ErrNotLeader) ||
		!resigned && errors.Is(err, leader.ErrNotCandidate)
	if !refused && !resigned {
		c.returned(err, lost|store)
	}
	g.mu.Lock()
	excused = excused || g.excused(h)
	g.note(g.name, "… transfer to session %s: %v", to.Session, err)
	switch {
	case err == nil:
		p := g.page(h.Key)
		p.named[h.Term+1] = to.Session
		g.succeeds(p, h.Key, h.Term+1)
	case errors.Is(err, leader.ErrNotLeader) && !wasLost && !excused:
		g.fail("%s led term %d of %s, but Transfer says that it did not: %v", g.name, h.Term, h.Key, err)
	case errors.Is(err, leader.ErrLost) && !excused:
		g.fail("%s lost term %d of %s in Transfer, for no reason: %v", g.name, h.Term, h.Key, err)
	case refused && !h.open() && !excused:
		g.fail("%s led term %d of %s, and a refused Transfer ended it: %v", g.name, h.Term, h.Key, err)
	case refused && strings.Contains(err.Error(), "expired") && g.bubble && g.p.Calm && to.Session != nobody:
		g.fail("%s: Transfer of %s to a live session: %v", g.name, h.Key, err)
	}
	g.mu.Unlock()
	if err == nil || resigned || errors.Is(err, leader.ErrLost) {
		return
	}
	c = g.beginRelease(h)
	cancel = c.context(g.ttl, true)
	defer cancel()
	c.returned(resign(c.ctx), lost)
}
