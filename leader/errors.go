package leader

import (
	"errors"

	"github.com/leasehold-go/leasehold/dsync"
)

var (
	// ErrLost is the cause of a term's end when the leadership was lost: the store
	// could not be reached in time, the process was frozen, the session was closed,
	// which is dsync.ErrClosed too, or somebody broke the election's key with
	// dsync.Session.Break, which is dsync.ErrRevoked too.
	ErrLost = dsync.ErrLost

	// ErrResigned is the cause of a term's end by Resign or Pause.
	ErrResigned = errors.New("leader: resigned")

	// ErrPaused is what TryCampaign returns on an election that is paused here.
	ErrPaused = errors.New("leader: paused")

	// ErrNoLeader is what [Election.Leader] returns while nobody leads.
	ErrNoLeader = errors.New("leader: nobody leads")
)
