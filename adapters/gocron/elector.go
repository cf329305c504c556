package gocron

import (
	"context"
	"errors"

	"github.com/go-co-op/gocron/v2"

	"github.com/leasehold-go/leasehold/leader"
)

// An Elector is a gocron.Elector: it runs jobs on the process that leads an election.
// Pass it to gocron.WithDistributedElector, and call [Elector.Run]. Make one with
// [NewElector]; all methods may be called concurrently.
type Elector struct {
	election *leader.Election
}

var _ gocron.Elector = (*Elector)(nil)

// NewElector returns an Elector on election. Nothing else in this process may campaign in that
// election. NewElector refuses a nil election.
func NewElector(election *leader.Election) (*Elector, error) {
	if election == nil {
		return nil, errors.New("gocron: the election is nil; make one with leader.New")
	}
	return &Elector{election}, nil
}

// Run campaigns, and does so again after each loss of the leadership, until ctx ends. Then it resigns, so that another
// process leads at once. Jobs don't end with ctx, so shut the scheduler down first: that waits for the jobs.
//
// After a loss of the leadership, gocron does not report when the running jobs have ended. So Run waits for the
// session's grace, during which nobody else leads, and then assumes that the jobs have ended. If a job still runs then,
// dsync.Session.Healthy does not report that.
//
// Run returns ctx's error, or an error of leader.Election.Campaign that waiting can't fix. It is
// meant to be passed to errgroup.Group.Go.
func (e *Elector) Run(ctx context.Context) error {
	return e.election.Run(ctx, func(term context.Context) error {
		<-term.Done()
		if !errors.Is(context.Cause(term), leader.ErrResigned) { // by resigning, a caller has already declared that the jobs have ended
			_ = e.election.Resign(ctx) // waits for the end of the grace
		}
		return nil
	})
}

// IsLeader returns nil if this process leads, otherwise [leader.ErrNotLeader]. It checks the clock,
// so it never returns nil after the end of the lease.
func (e *Elector) IsLeader(context.Context) error {
	if !e.election.IsLeader() {
		return leader.ErrNotLeader
	}
	return nil
}
