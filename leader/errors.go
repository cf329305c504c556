package leader

import (
	"errors"

	"github.com/leasehold-go/leasehold/dsync"
)

var (
	// ErrLost is the cause of a term's end if the leadership was lost. The cause also matches one of
	//   - dsync.ErrNotRenewed: the store could not be reached in time, or the process was frozen;
	//   - dsync.ErrSessionExpired: the session has expired in the store;
	//   - dsync.ErrClosed: the session was closed;
	//   - dsync.ErrRevoked: somebody called admin.Inspector.Break with the election's name;
	//   - dsync.ErrRecordDeleted: somebody deleted or changed the election's record in the store;
	//   - dsync.ErrStalled: the work made no progress within the limit that it set with dsync.Hold.Progress.
	ErrLost = dsync.ErrLost

	// ErrResigned is the cause of a term's end by Resign, ResignAfter, Pause or Transfer, or by the return of
	// Run's function. With [Options].YieldAfter, the cause matches it.
	ErrResigned = errors.New("leader: resigned")

	// ErrPaused is returned by TryCampaign if the election is paused in this process.
	ErrPaused = errors.New("leader: paused")

	// ErrNotLeader is returned by [Election.Transfer] and [Election.ResignAfter] if this process does not lead.
	ErrNotLeader = errors.New("leader: this process does not lead")

	// ErrNotCandidate is returned by [Election.Transfer] if the named process does not campaign, or its
	// session has expired.
	ErrNotCandidate = errors.New("leader: the process does not campaign")

	// ErrNoLeader is returned by [Election.Leader] while nobody leads.
	ErrNoLeader = errors.New("leader: nobody leads")
)
