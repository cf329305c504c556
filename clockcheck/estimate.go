package clockcheck

import "time"

// An estimate is what the samples of one server have in common: where its clock
// is, less the host's monotonic clock, at one moment.
type estimate struct {
	in  interval
	at  time.Duration // the moment, on the monotonic clock
	rtt time.Duration // of the fastest sample
	n   int
}

// add takes a sample into account, which must be later than those before. If they
// have nothing in common it changes nothing and returns how far, at least, one of
// the clocks has moved.
func (e *estimate) add(s sample, rate float64) (moved time.Duration) {
	next, rtt := s.interval(rate), s.got-s.sent
	if e.n > 0 {
		before := e.later(s.got, rate)
		if moved := before.to(next); moved != 0 {
			return moved
		}
		next, rtt = next.and(before), min(rtt, e.rtt)
	}
	e.in, e.at, e.rtt, e.n = next, s.got, rtt, e.n+1
	return 0
}

// later returns where the difference is at a later moment.
func (e *estimate) later(at time.Duration, rate float64) interval {
	return e.in.widen(drift(rate, at-e.at))
}
