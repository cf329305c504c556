package history

import (
	"strings"
	"time"

	"github.com/leasehold-go/leasehold/internal/rules"
)

// A transfer is one call of Election.Transfer.
type transfer struct {
	of          *rules.Hold // the term that the transfer ends
	to, session string      // the process and the session that the transfer names
	returned    time.Duration
	err         string
}

// String describes the transfer by its term and the process that it names.
func (t transfer) String() string { return t.of.String() + " was transferred to " + t.to }

// elected reports whether the claim belongs to the session that t names.
func (t transfer) elected(claim string) bool { return strings.HasPrefix(claim, t.session+".") }

// A termOf identifies a term of an election.
type termOf struct {
	key  string
	term int64
}

// transfers returns the last attempted transfer of each term.
func (h *History) transfers(holds map[string][]*rules.Hold) map[termOf]transfer {
	all := make(map[who]*rules.Hold)
	for _, some := range holds {
		for _, o := range some {
			all[who{o.Process, o.ID}] = o
		}
	}
	found := make(map[termOf]transfer)
	for _, e := range h.Events {
		o := all[who{e.Process, e.ID}]
		switch e.Type {
		case Transfer:
			found[termOf{e.Key, o.Term}] = transfer{of: o, to: e.Target, session: e.Session}
		case Transferred:
			t := found[termOf{e.Key, o.Term}]
			t.returned, t.err = e.At, e.Err
			found[termOf{e.Key, o.Term}] = t
		}
	}
	return found
}

// transferred checks that after a successful Transfer only the named candidate had the next term.
// It checks both the snapshots of the store's record and the processes' events.
func (c *checker) transferred(h *History, holds map[string][]*rules.Hold) {
	before := func(key string, term int64) (transfer, bool) {
		t, ok := c.transfers[termOf{key, term - 1}]
		return t, ok && t.returned > 0 && t.err == ""
	}
	for key, all := range holds {
		for _, o := range all {
			if t, ok := before(key, o.Term); ok && o.Process != t.to {
				c.fail("transfer", key, o.Granted, "%v, but %v had the next term", t, o)
			}
		}
	}
	for _, e := range h.Events {
		if e.Type != Record || len(e.Holders) == 0 {
			continue
		}
		if t, ok := before(e.Key, e.Term); ok && !t.elected(e.Holders[0].ID) {
			c.fail("transfer", e.Key, e.At, "%v, but the store gave the next term to %s", t, e.Holders[0].ID)
		}
	}
}
