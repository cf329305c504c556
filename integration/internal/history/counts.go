package history

// Counts are what a history has of each.
type Counts struct {
	Calls    int // that request a hold
	Grants   int
	HandOffs int // grants of a key to another process than the one before
	Lost     int // holds that ended before their release, those of killed processes included
	Writes   int // with a fencing token
	Refused  int // of them
}

// Counts counts.
func (h *History) Counts() Counts {
	var c Counts
	for _, holds := range h.Holds() {
		last := ""
		for _, o := range holds {
			c.Calls++
			if o.Granted == 0 {
				continue
			}
			c.Grants++
			if last != "" && last != o.Process {
				c.HandOffs++
			}
			last = o.Process
			if !o.Freed() {
				c.Lost++
			}
		}
	}
	for _, w := range h.writes() {
		c.Writes++
		if w.refused() {
			c.Refused++
		}
	}
	return c
}
