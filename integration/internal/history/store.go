package history

import "slices"

// store checks the snapshots of the store's records. It also checks fifo, since only the
// snapshots show in which order claims joined the queue.
func (c *checker) store(h *History) {
	last := make(map[string]Event)
	for _, e := range h.Events {
		if e.Type == Record {
			var sum, token int64
			for _, o := range e.Holders {
				sum += o.Weight
				if o.Token <= token {
					c.fail("store", e.Key, e.At, "holders %v: their tokens are not in order", e.Holders)
				}
				token = o.Token
			}
			if sum > e.Limit {
				c.fail("store", e.Key, e.At, "%d of %d are held: %v", sum, e.Limit, e.Holders)
			}
			before := last[e.Key]
			if e.Token < before.Token {
				c.fail("store", e.Key, e.At, "token %d after %d", e.Token, before.Token)
			}
			c.order(before, e)
			last[e.Key] = e
		}
	}
}

// order compares the queue before with the queue and the holders now.
func (c *checker) order(before, now Event) {
	waits, holds := make(map[string]int), make(map[string]int64)
	for i, id := range now.Waiting {
		waits[id] = i
	}
	for _, o := range now.Holders {
		holds[o.ID] = o.Token
	}
	for i, ahead := range before.Waiting {
		position, aheadWaits := waits[ahead]
		for _, behind := range before.Waiting[i+1:] {
			token, behindHolds := holds[behind]
			switch {
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
