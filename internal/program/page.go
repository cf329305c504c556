package program

import "time"

// semSize is the size that semaphores are made with.
const semSize = 3

// A page is the book of one key. It is guarded by the runner's mu.
type page struct {
	holds    []*hold
	waits    int       // calls that wait for it
	quiet    time.Time // since when nobody holds or waits, if nobody does
	held     time.Time // when somebody last held
	late     bool      // it may be held without a holder: by a lease's rest, by UnlockAfter, by lingering
	breaks   int       // calls of Break and ForceLock that have begun
	breaking int       // those of them that have not returned
	broke    time.Time // when the last of them returned
	lastTurn int64     // greatest token of an exclusive hold
	lastRead int64     // greatest token of a reader
	readers  map[int64]*life
	weighed  map[int64]bool // tokens of semaphores
	limit    int64          // the greatest that a semaphore may have
	kept     []kept

	// Of a Once:
	sealed []string // values of runs that certainly count
	maybe  []string // of runs that may count
	given  []string // values that callers were given who did not run
}

// kept is a key that UnlockAfter keeps held.
type kept struct {
	who    string
	until  time.Time // it surely is until then
	breaks int       // but for a Break
}

// breakBegins notes that Break or ForceLock is called. The runner's mu must be held.
func (p *page) breakBegins() {
	p.breaks++
	p.breaking++
}

// breakEnds notes that it has returned. The runner's mu must be held.
func (p *page) breakEnds() {
	p.breaking--
	p.broke = time.Now()
}

// breakPends reports whether a holder may still be told of a Break: one that was
// given up within d, which stands in the store. The session hears of it with its next
// heartbeat, within its TTL where none is lost. The runner's mu must be held.
func (p *page) breakPends(d time.Duration) bool {
	return p.breaking > 0 || time.Since(p.broke) < d
}
