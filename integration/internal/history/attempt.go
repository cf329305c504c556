package history

import "time"

// An Attempt is one call that requests a hold, and that hold. It is for one goroutine.
type Attempt struct {
	r       *Recorder
	id      int
	key     string
	live    time.Duration
	written time.Duration // what of live was written
}

// Refused records that the call has returned without a hold.
func (a *Attempt) Refused(err string) {
	a.r.Put(Event{Type: Refused, ID: a.id, Key: a.key, Err: err})
}

// Granted records that the call has returned with a hold. token is called for its
// fencing token, which is returned, and term, if it is not nil, for its number.
func (a *Attempt) Granted(token, term func() int64) int64 {
	e := Event{Type: Granted, ID: a.id, Key: a.key, At: Now()}
	e.Token = token()
	if term != nil {
		e.Term = term()
	}
	a.live, a.written = e.At, e.At
	a.r.Put(e)
	return e.Token
}

// often is the interval at which Live writes an event, in case the process is killed.
const often = 250 * time.Millisecond

// Live checks whether the hold goes on, and records and returns the result.
func (a *Attempt) Live(open func() bool) bool {
	at := Now()
	if !open() {
		return false
	}
	a.live = at
	if at-a.written > often {
		a.r.Put(Event{Type: Held, ID: a.id, Key: a.key, Live: a.live})
		a.written = at
	}
	return true
}

// Done records that the call that releases is about to begin, and that it is to keep
// the key for a while if keep is positive.
func (a *Attempt) Done(keep time.Duration) {
	a.r.Put(Event{Type: Done, ID: a.id, Key: a.key, Live: a.live, Keep: keep})
}

// Released records that the call that releases has returned.
func (a *Attempt) Released(err string) {
	a.r.Put(Event{Type: Released, ID: a.id, Key: a.key, Err: err})
}
