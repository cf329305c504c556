package history

import (
	"bufio"
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/leasehold-go/leasehold/internal/rules"
)

// A History contains the events of all processes, in the order of their times.
type History struct {
	Events []Event
}

// Read reads the files that the recorders of a run have written to dir. It ignores an incomplete
// last line, which a killed process may have left.
func Read(dir string) (*History, error) {
	files, err := filepath.Glob(filepath.Join(dir, "*"+suffix))
	if err != nil {
		return nil, err
	}
	var h History
	for _, name := range files {
		text, err := os.ReadFile(name)
		if err != nil {
			return nil, err
		}
		for line := range strings.Lines(string(text)) {
			if !strings.HasSuffix(line, "\n") {
				break
			}
			var e Event
			if err := json.Unmarshal([]byte(line), &e); err != nil {
				return nil, fmt.Errorf("%s: %w in %q", name, err, line)
			}
			h.Events = append(h.Events, e)
		}
	}
	h.sort()
	return &h, nil
}

func (h *History) sort() {
	slices.SortStableFunc(h.Events, func(a, b Event) int { return cmp.Compare(a.At, b.At) })
}

// Write writes the history to one file, one event per line.
func (h *History) Write(w io.Writer) error {
	b := bufio.NewWriter(w)
	enc := json.NewEncoder(b)
	for _, e := range h.Events {
		if err := enc.Encode(e); err != nil {
			return err
		}
	}
	return b.Flush()
}

// A value of type who identifies the acquisition, write or fault that an event belongs to.
type who struct {
	process string
	id      int
}

// Holds returns, by key, all calls that requested a hold. They are sorted by the time of the grant, and then by the
// time of the request.
func (h *History) Holds() map[string][]*rules.Hold {
	all := make(map[who]*rules.Hold)
	byProcess := make(map[string][]*rules.Hold)
	byKey := make(map[string][]*rules.Hold)
	for _, e := range h.Events {
		o := all[who{e.Process, e.ID}]
		switch e.Type {
		case Request:
			o = &rules.Hold{
				Process: e.Process, ID: e.ID, Key: e.Key, What: e.What,
				Weight: e.Weight, Limit: e.Limit, Shared: e.Shared, Lease: e.Lease, Requested: e.At,
			}
			all[who{e.Process, e.ID}] = o
			byProcess[e.Process] = append(byProcess[e.Process], o)
			byKey[e.Key] = append(byKey[e.Key], o)
		case Refused:
			o.Ended = e.At
		case Granted:
			o.Ended, o.Granted, o.Live, o.Token, o.Term = e.At, e.At, e.At, e.Token, e.Term
		case Held:
			o.Live = e.Live
		case Done:
			o.Live, o.Done, o.Keep = e.Live, e.At, e.Keep
		case Released:
			o.Released, o.Err = e.At, e.Err
		case Killed:
			for _, o := range byProcess[e.Target] {
				if o.Released == 0 && (o.Ended == 0 || o.Granted > 0) {
					o.Killed = e.At
				}
			}
		}
	}
	for _, holds := range byKey {
		slices.SortStableFunc(holds, func(a, b *rules.Hold) int {
			return cmp.Or(cmp.Compare(a.Granted, b.Granted), cmp.Compare(a.Requested, b.Requested))
		})
	}
	return byKey
}

// Faults returns the faults, each with the times of its beginning and end. A fault that did not end
// lasts until the end of the history.
func (h *History) Faults() []Span {
	var spans []Span
	open := make(map[who]int)
	for _, e := range h.Events {
		switch e.Type {
		case Fault:
			open[who{e.Process, e.ID}] = len(spans)
			spans = append(spans, Span{What: e.What, Target: e.Target, From: e.At, To: h.end()})
		case Healed:
			spans[open[who{e.Process, e.ID}]].To = e.At
		}
	}
	return spans
}

func (h *History) end() time.Duration {
	if len(h.Events) == 0 {
		return 0
	}
	return h.Events[len(h.Events)-1].At
}

// A Span is the time from the beginning of a fault to its end.
type Span struct {
	What, Target string
	From, To     time.Duration
}

// Counts are the numbers of events in a history.
type Counts struct {
	Calls     int // calls that request a hold
	Grants    int
	Transfers int // successful transfers of a term
	HandOffs  int // grants of a key to a process other than the previous holder
	Lost      int // holds that ended before they were released, including those of killed processes
	Writes    int // writes with a fencing token
	Refused   int // refused writes
}

func (h *History) Counts() Counts {
	var c Counts
	all := h.Holds()
	for _, t := range h.transfers(all) {
		if t.returned > 0 && t.err == "" {
			c.Transfers++
		}
	}
	for _, holds := range all {
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
