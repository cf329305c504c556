package gocron

import (
	"context"
	"errors"

	"github.com/go-co-op/gocron/v2"

	"github.com/leasehold-go/leasehold/leader"
)

// ErrNotLeader is what [Elector.IsLeader] returns while another process leads, or none.
var ErrNotLeader = errors.New("gocron: this process does not lead")

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

// Run campaigns, and again after each loss, until ctx ends; then it resigns, so that
// another process leads at once. Jobs that run don't end with ctx: shut the scheduler
// down first, which waits for them. After a loss the leadership is kept from others for
// the session's grace.
//
// The error is ctx's, or one of leader.Election.Campaign that waiting can't fix. Run is made for
// errgroup.Group.Go.
func (e *Elector) Run(ctx context.Context) error {
	for {
		term, err := e.election.Campaign(ctx)
		if ctx.Err() == nil && err != nil {
			return err
		}
		if err == nil {
			<-term.Done()
		}
		if ctx.Err() != nil {
			_ = e.election.Resign(ctx) // does not wait, and goes on in the background
			return ctx.Err()
		}
	}
}

// IsLeader returns nil if this process leads, else [ErrNotLeader]. It compares the
// clock: it never says so past the end of the lease.
func (e *Elector) IsLeader(context.Context) error {
	if !e.election.IsLeader() {
		return ErrNotLeader
	}
	return nil
}
