package program

import (
	"time"

	"github.com/leasehold-go/leasehold/internal/rules"
)

// semSize is the size that semaphores are made with.
const semSize = 3

// A page is the book of one key. It is guarded by the runner's mu.
type page struct {
	holds    []*hold
	waits    int       // calls that wait for it
	quiet    time.Time // since when nobody holds or waits, if nobody does
	held     time.Time // when somebody last held
	late     bool      // it may be held without a holder: by a lease's rest, by UnlockAfter, by lingering
	breaking int       // calls of Break and ForceLock that have not returned
	limit    int64     // the greatest that a semaphore may have
	rules    rules.Key

	// Of a Once:
	sealed []string // values of runs that certainly count
	maybe  []string // of runs that may count
	given  []string // values that callers were given who did not run
}

// breakBegins notes that Break or ForceLock is called. r.mu must be held.
func (r *runner) breakBegins(p *page) {
	p.breaking++
	p.rules.Breaks = append(p.rules.Breaks, r.now())
}

// breakEnds notes that it has returned. One that was given up stands in the store still.
// r.mu must be held.
func (r *runner) breakEnds(p *page) {
	p.breaking--
	p.rules.Breaks = append(p.rules.Breaks, r.now())
}
