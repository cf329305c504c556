package history

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"time"
)

// A checker collects violations.
type checker struct {
	grace time.Duration
	found []Violation
}

func (c *checker) fail(rule, key string, at time.Duration, format string, args ...any) {
	c.found = append(c.found, Violation{Rule: rule, Key: key, At: at, Text: fmt.Sprintf(format, args...)})
}

// Check returns what in h breaks a rule of the package's comment, in the order of
// time. grace is that of all sessions. The history must have come to its end.
func Check(h *History, grace time.Duration) []Violation {
	c := &checker{grace: grace}
	holds := h.Holds()
	breaks := make(map[string][]time.Duration)
	for _, e := range h.Events {
		if e.Type == Break {
			breaks[e.Key] = append(breaks[e.Key], e.At)
		}
	}
	for _, key := range slices.Sorted(maps.Keys(holds)) {
		c.ends(holds[key])
		granted := slices.DeleteFunc(slices.Clone(holds[key]), func(o *Hold) bool { return o.Token == 0 })
		c.exclusion(granted)
		c.kept(granted, breaks[key])
		c.tokens(granted)
		c.terms(granted)
	}
	c.fences(h, holds)
	c.store(h)
	c.linear(h, holds)
	slices.SortStableFunc(c.found, func(a, b Violation) int { return cmp.Compare(a.At, b.At) })
	return c.found
}

// ends: every call has returned.
func (c *checker) ends(holds []*Hold) {
	for _, o := range holds {
		switch {
		case o.Killed > 0:
		case o.Ended == 0:
			c.fail("ends", o.Key, o.Asked, "%v asked and was never answered", o)
		case o.Granted > 0 && o.Released == 0:
			c.fail("ends", o.Key, o.Granted, "the release of %v never returned", o)
		}
	}
}

// exclusion: at each grant, what others certainly hold (overlap), and what is in its
// grace (told), leaves room for it.
func (c *checker) exclusion(granted []*Hold) {
	var before []*Hold // that may still matter
	for _, o := range granted {
		before = slices.DeleteFunc(before, func(b *Hold) bool { return b.Free(c.grace) <= o.Granted })
		certain, all := o.Weight, o.Weight
		for _, b := range before {
			all += b.Weight
			if b.Certain() > o.Granted {
				certain += b.Weight
			}
		}
		switch {
		case certain > o.Limit:
			c.fail("overlap", o.Key, o.Granted, "%v was granted, and together %d of %d are held: %v", o, certain, o.Limit, before)
		case all > o.Limit:
			c.fail("told", o.Key, o.Granted, "%v was granted, and together %d of %d are held or in their grace of %v: %v", o, all, o.Limit, c.grace, before)
		}
		before = append(before, o)
	}
}

// kept: nobody is granted what was unlocked with Keep before that is over, but for a
// Break.
func (c *checker) kept(granted []*Hold, breaks []time.Duration) {
	for _, k := range granted {
		if k.Keep == 0 || !k.Freed() {
			continue
		}
		until := k.Done + k.Keep - 2*time.Millisecond // the store counts whole ones
		late := 30 * c.grace                          // a session may learn that late of a Break of its claim
		for _, b := range breaks {
			if b > k.Granted-late {
				until = min(until, b)
			}
		}
		for _, o := range granted {
			if o != k && o.Granted > k.Done && o.Granted < until {
				c.fail("kept", o.Key, o.Granted, "%v was granted, and %v has kept it until %s", o, k, at(until))
			}
		}
	}
}

// tokens: who asked after another was granted has the greater token, and none is
// given twice, but to readers.
func (c *checker) tokens(granted []*Hold) {
	first := make(map[int64]*Hold)
	for _, o := range granted {
		if b := first[o.Token]; b == nil {
			first[o.Token] = o
		} else if !(o.Shared && b.Shared && o.Process == b.Process) {
			c.fail("token", o.Key, o.Granted, "%v has the token of %v", o, b)
		}
	}
	asked := slices.Clone(granted)
	slices.SortStableFunc(asked, func(a, b *Hold) int { return cmp.Compare(a.Asked, b.Asked) })
	var last, lastTurn *Hold // with the greatest tokens of all, and of those that don't share
	next := 0
	for _, o := range asked {
		for ; next < len(granted) && granted[next].Granted < o.Asked; next++ {
			g := granted[next]
			if last == nil || g.Token > last.Token {
				last = g
			}
			if !g.Shared && (lastTurn == nil || g.Token > lastTurn.Token) {
				lastTurn = g
			}
		}
		b := last
		if o.Shared {
			b = lastTurn
		}
		if b != nil && o.Token < b.Token {
			c.fail("token", o.Key, o.Granted, "%v asked after %v was granted, and has a smaller token", o, b)
		}
	}
}

// terms: they grow with the tokens.
func (c *checker) terms(granted []*Hold) {
	terms := slices.DeleteFunc(slices.Clone(granted), func(o *Hold) bool { return o.Term == 0 })
	slices.SortFunc(terms, func(a, b *Hold) int { return cmp.Compare(a.Token, b.Token) })
	for i, o := range terms[min(1, len(terms)):] {
		if b := terms[i]; o.Term <= b.Term {
			c.fail("term", o.Key, o.Granted, "%v is term %d, and %v was term %d", o, o.Term, b, b.Term)
		}
	}
}
