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

// NewElector returns an Elector on an election, in which nothing else in this process may
// campaign. It refuses a nil election.
func NewElector(election *leader.Election) (*Elector, error) {
	if election == nil {
		return nil, errors.New("gocron: the election is nil; make one with leader.New")
	}
	return &Elector{election}, nil
}

// Run campaigns, and again after each loss, until ctx ends. Then it resigns, so that another
// process leads at once. Jobs don't end with ctx, so shut the scheduler down first: that waits for
// them.
//
// gocron does not say when the jobs that ran at a loss of the leadership have ended. So Run gives them the session's
// grace, in which nobody else leads, and after that assumes that they have ended: dsync.Session.Healthy reports no
// error for a job that still runs.
//
// The error is ctx's, or one of leader.Election.Campaign that waiting can't fix. Run is made for
// errgroup.Group.Go.
func (e *Elector) Run(ctx context.Context) error {
	return e.election.Run(ctx, func(term context.Context) error {
		<-term.Done()
		if !errors.Is(context.Cause(term), leader.ErrResigned) { // resigning means that the jobs have ended
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
