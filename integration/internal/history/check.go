package history

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/leasehold-go/leasehold/internal/rules"
)

// A checker collects violations.
type checker struct {
	grace     time.Duration
	transfers map[termOf]transfer
	found     []rules.Violation
}

func (c *checker) fail(rule, key string, at time.Duration, format string, args ...any) {
	c.found = append(c.found, rules.Violation{Rule: rule, Key: key, At: at, Text: fmt.Sprintf(format, args...)})
}

// Check returns h's violations of the rules in the package documentation, sorted by time. h must be a complete history,
// and grace must be the grace of every session. The store's clocks decide when holds end; skew is how far these clocks
// can differ.
func Check(h *History, grace, skew time.Duration) []rules.Violation {
	c := &checker{grace: grace}
	holds := h.Holds()
	c.transfers = h.transfers(holds)
	breaks := make(map[string][]time.Duration)
	for _, e := range h.Events {
		if e.Type == Break {
			breaks[e.Key] = append(breaks[e.Key], e.At)
		}
	}
	for _, key := range slices.Sorted(maps.Keys(holds)) {
		c.ends(holds[key])
		granted := slices.DeleteFunc(slices.Clone(holds[key]), func(o *rules.Hold) bool { return o.Token == 0 })
		c.found = append(c.found, rules.Check(granted, rules.Key{Grace: grace, Breaks: breaks[key], Skew: skew})...)
		c.terms(granted)
	}
	c.fences(h, holds)
	c.store(h)
	c.transferred(h, holds)
	c.linear(h, holds)
	slices.SortStableFunc(c.found, func(a, b rules.Violation) int { return cmp.Compare(a.At, b.At) })
	return c.found
}

// ends checks that every call has returned, except those of killed processes.
func (c *checker) ends(holds []*rules.Hold) {
	for _, o := range holds {
		switch {
		case o.Killed > 0:
		case o.Ended == 0:
			c.fail("ends", o.Key, o.Requested, "the request of %v never returned", o)
		case o.Granted > 0 && o.Released == 0:
			c.fail("ends", o.Key, o.Granted, "the release of %v never returned", o)
		}
	}
}

// terms checks that term numbers grow with the tokens.
func (c *checker) terms(granted []*rules.Hold) {
	terms := slices.DeleteFunc(slices.Clone(granted), func(o *rules.Hold) bool { return o.Term == 0 })
	slices.SortFunc(terms, func(a, b *rules.Hold) int { return cmp.Compare(a.Token, b.Token) })
	for i, o := range terms[min(1, len(terms)):] {
		if b := terms[i]; o.Term <= b.Term {
			c.fail("term", o.Key, o.Granted, "%v is term %d, and %v was term %d", o, o.Term, b, b.Term)
		}
	}
}

// store checks the snapshots of the store's records. It also checks fifo, because only the
// snapshots show in which order claims joined the queue.
func (c *checker) store(h *History) {
	last := make(map[string]Event)
	for _, e := range h.Events {
		if e.Type == Record {
			var sum, token int64
			for _, o := range e.Holders {
				sum += o.Weight
				if o.Token <= token {
					c.fail("store", e.Key, e.At, "the tokens of the holders %v are not in order", e.Holders)
				}
				token = o.Token
			}
			if sum > e.Limit {
				c.fail("store", e.Key, e.At, "holders have %d units of %d: %v", sum, e.Limit, e.Holders)
			}
			before := last[e.Key]
			if e.Token < before.Token {
				c.fail("store", e.Key, e.At, "token %d came after %d", e.Token, before.Token)
			}
			c.order(before, e)
			last[e.Key] = e
		}
	}
}

// order checks fifo between two snapshots: it compares the earlier queue with the later queue and
// holders.
func (c *checker) order(before, now Event) {
	waits, holds := make(map[string]int), make(map[string]int64)
	for i, id := range now.Waiting {
		waits[id] = i
	}
	for _, o := range now.Holders {
		holds[o.ID] = o.Token
	}
	transfer, named := c.transfers[termOf{now.Key, now.Term - 1}]
	for i, ahead := range before.Waiting {
		position, aheadWaits := waits[ahead]
		for _, behind := range before.Waiting[i+1:] {
			token, behindHolds := holds[behind]
			switch {
			case behindHolds && named && transfer.elected(behind):
				// allowed: a Transfer named this candidate
			case aheadWaits && behindHolds:
				c.fail("fifo", now.Key, now.At, "%s was granted before %s, which was ahead of it and still waits", behind, ahead)
			case aheadWaits && slices.Contains(now.Waiting, behind) && waits[behind] < position:
				c.fail("fifo", now.Key, now.At, "%s has overtaken %s in the queue", behind, ahead)
			case behindHolds && holds[ahead] > token:
				c.fail("fifo", now.Key, now.At, "%s was granted before %s, which was ahead of it", behind, ahead)
			}
		}
	}
}
