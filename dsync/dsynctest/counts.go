package dsynctest

import "maps"

// Counts is how much work a [Memory] was given.
type Counts struct {
	// Commands is the number of calls of each method. Those whose ctx had ended
	// before the call are not among them.
	Commands map[Method]int

	// Writes is the number of records that were written or deleted. A command
	// that changes nothing writes nothing.
	Writes int
}

// Total returns the number of commands of all methods.
func (c Counts) Total() int {
	n := 0
	for _, k := range c.Commands {
		n += k
	}
	return n
}

// Since returns what was counted after the earlier counts before. Methods that
// were not called since are not in its map.
func (c Counts) Since(before Counts) Counts {
	d := Counts{Commands: maps.Clone(c.Commands), Writes: c.Writes - before.Writes}
	for m := range d.Commands {
		if d.Commands[m] -= before.Commands[m]; d.Commands[m] == 0 {
			delete(d.Commands, m)
		}
	}
	return d
}
