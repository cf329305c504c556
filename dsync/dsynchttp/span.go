package dsynchttp

import (
	"fmt"
	"time"

	"github.com/leasehold-go/leasehold/dsync"
)

// A span is a hold of a key as it was seen from here. Its times are this host's.
type span struct {
	who     string // its holder's process, for people
	session string // "" if it is this process's, as its hooks tell
	claim   string // the same
	token   int64
	start   time.Time
	seen    time.Time // when it was last known to be held
	end     time.Time // when it was known to be over; zero: it goes on
	lost    string    // why it ended before its release; "" if it did not, or that is not known

	lapses time.Time // its end when it was seen last, unless its session sent another heartbeat
	silent bool      // its session had sent none for long
}

// own reports whether the span is of this process, as told by its hooks.
func (s *span) own() bool { return s.claim == "" }

// until returns the end of the span at now.
func (s *span) until(now time.Time) time.Time {
	if s.end.IsZero() {
		return now
	}
	return s.end
}

// sees takes in that h holds at now; lapses is its end on this host's clock.
func (s *span) sees(h dsync.Owner, now, lapses time.Time) {
	s.seen, s.end, s.lost = now, time.Time{}, ""
	s.lapses, s.silent = lapses, h.Renewed && lapses.Sub(now) < h.TTL/2
	if h.Lapsed {
		s.lapse()
		if !h.Renewed {
			s.lost = "its lease is over"
		}
	}
}

// ends takes in that it does not hold any more, since at or before. A session that
// has been silent for half of its TTL, and whose key went to others when it had
// lapsed, has died: a release would have let them in before.
func (s *span) ends(at time.Time) {
	if s.end = at; s.silent && !at.Before(s.lapses) {
		s.lapse()
	}
}

// lapse ends the span by the death of its session.
func (s *span) lapse() { s.seen, s.end, s.lost = s.lapses, s.lapses, "its session lapsed" }

// String describes the span for people.
func (s *span) String() string {
	const clock = "15:04:05"
	text := fmt.Sprintf("%s, token %d, from %s", s.who, s.token, s.start.Format(clock))
	switch {
	case s.lost != "":
		return fmt.Sprintf("%s, lost at %s: %s", text, s.end.Format(clock), s.lost)
	case s.end.IsZero():
		return text + " on"
	}
	return fmt.Sprintf("%s to %s", text, s.end.Format(clock))
}
