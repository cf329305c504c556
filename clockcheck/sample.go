package clockcheck

import "time"

// A sample is one answer of a server. Its times are distances: those of the host
// from the start of the check on the monotonic clock, which no step moves; the
// server's from the host's wall clock at that start.
type sample struct {
	sent, got time.Duration // before the request was sent, after the answer came
	server    time.Duration // the server's clock in between, truncated
}

// truncation is what a server leaves out of localTime, at most.
const truncation = time.Millisecond

// interval returns where the server's clock is, less the host's monotonic clock,
// when the sample has been got.
//
// The server read its clock at some moment between sent and got. It was at least
// s.server then, and less than s.server + truncation. The earlier that moment, the
// greater the difference, and the longer ago, so drift is due on that end only.
func (s sample) interval(rate float64) interval {
	return interval{
		lo: s.server - s.got,
		hi: s.server + truncation - s.sent + drift(rate, s.got-s.sent),
	}
}
