package history_test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/leasehold-go/leasehold/integration/internal/history"
)

// holder returns an exclusive holder, as the store records it.
func holder(id string, token int64) []history.Claim {
	return []history.Claim{{ID: id, Token: token, Weight: 1}}
}

// good returns a history that violates no rule. It contains events for every rule.
func good() *story {
	s := new(story)
	s.lock(1*slot, "a", 1000)
	s.lock(2*slot, "b", 2000)
	s.write(2*slot+50*ms, "b", 2000, "")
	s.write(2*slot+100*ms, "a", 1000, history.Fenced)
	s.lock(3*slot, "a", 3000).lose()
	s.lock(4*slot, "b", 4000)             // after the grace of the lost hold
	p := s.lock(5*slot, "c", 5000)        // the process is killed while it holds the key,
	s.events = s.events[:len(s.events)-2] // so the hold's last two events are missing
	s.put(5*slot+400*ms, "nemesis", 0, history.Killed, history.Event{Target: p.process})
	kept := s.lock(7*slot, "a", 6000)
	kept.Done().Keep = slot
	s.lock(8*slot+600*ms, "b", 7000)
	frozen := s.lock(10*slot, "a", 8000).lose() // checked again only after another process has held the key
	frozen.Done().At, frozen.Released().At = 13*slot, 13*slot+5*ms
	frozen.Done().Live = 10*slot + 300*ms
	s.lock(11*slot, "b", 9000)
	s.write(11*slot+100*ms, "b", 9000, "")
	s.write(12*slot, "a", 8000, history.Fenced)
	s.write(12*slot+10*ms, "a", 8000, "time-out")

	// Readers overlap, and readers of one process share a token. A semaphore's holds overlap if they
	// fit together.
	s.hold(20*slot, "a", "rw", 100, 1, 9, true)
	s.hold(20*slot+100*ms, "a", "rw", 100, 1, 9, true)
	s.hold(20*slot+100*ms, "b", "rw", 200, 1, 9, true)
	s.hold(20*slot+200*ms, "a", "rw", 100, 1, 9, true)
	s.hold(21*slot, "b", "rw", 300, 9, 9, false)
	s.hold(20*slot, "a", "sem", 100, 2, 3, false)
	s.hold(20*slot+100*ms, "b", "sem", 200, 1, 3, false)

	// An election's terms, and a queue.
	for i := range int64(3) {
		s.hold(30*slot+time.Duration(i)*slot, "a", "leader", 1000+i, 1, 1, false).Granted().Term = 1 + i
	}
	s.transfer(s.hold(35*slot, "a", "leader", 2000, 1, 1, false), 4, "b", "b1", "")
	s.hold(36*slot, "b", "leader", 2500, 1, 1, false).Granted().Term = 5
	s.transfer(s.hold(37*slot, "b", "leader", 3000, 1, 1, false), 6, "a", "a1", "it has left")
	s.hold(38*slot, "c", "leader", 3500, 1, 1, false).Granted().Term = 7
	s.leads(35*slot+ms, 4, "a1.1", "c1.1", "b1.1")
	s.leads(36*slot, 5, "b1.1", "c1.1") // the leader has named the candidate
	s.record(40*slot, 9000, holder("x.1", 9000), "y.1", "z.1")
	s.record(41*slot, 9500, holder("y.1", 9500), "z.1", "x.2")
	s.record(42*slot, 9900, holder("z.1", 9900), "x.2")
	s.put(50*slot, "nemesis", 0, history.Log, history.Event{Key: "k", Tokens: []int64{2000, 2000, 9000}})
	return s
}

// broken returns the names of the rules that a history breaks.
func broken(t *testing.T, s *story) []string {
	t.Helper()
	var all []string
	for _, v := range history.Check(s.history(t), grace, 0) {
		t.Log(v)
		if !slices.Contains(all, v.Rule) {
			all = append(all, v.Rule)
		}
	}
	slices.Sort(all)
	return all
}

func TestGoodHistory(t *testing.T) {
	if got := broken(t, good()); len(got) > 0 {
		t.Errorf("rules %q are broken, want none", got)
	}
}

// Each case plants one violation, which may break more than one rule.
func TestPlantedViolations(t *testing.T) {
	const at = 100 * slot // after the end of the good history
	for _, c := range []struct {
		name  string
		plant func(s *story)
		want  []string
	}{
		{"two processes hold the key at the same time", func(s *story) {
			s.lock(at, "a", 10_000)
			s.lock(at+200*ms, "b", 11_000)
		}, []string{"linear", "overlap"}},
		{"the first check after a freeze says that the key is held", func(s *story) {
			p := s.lock(at, "a", 10_000)
			p.Done().At, p.Done().Live, p.Released().At = at+2*slot, at+2*slot-ms, at+2*slot+ms
			p.lose()
			s.lock(at+slot, "b", 11_000)
		}, []string{"linear", "overlap"}},
		{"granted in the grace of a lost hold", func(s *story) {
			p := s.lock(at, "a", 10_000).lose()
			p.Done().At, p.Released().At = at+2*slot, at+2*slot+ms
			s.lock(at+600*ms, "b", 11_000) // notified between 490 and 500 ms
		}, []string{"grace", "linear"}},
		{"granted in the grace of a killed process", func(s *story) {
			p := s.lock(at, "c", 10_000)
			s.events = s.events[:p.done]
			s.put(at+310*ms, "nemesis", 0, history.Killed, history.Event{Target: "c"})
			s.lock(at+400*ms, "b", 11_000)
		}, []string{"grace", "linear"}},
		{"readers and a writer", func(s *story) {
			s.hold(at, "a", "rw", 1000, 1, 9, true)
			s.hold(at+200*ms, "b", "rw", 1100, 9, 9, false)
		}, []string{"linear", "overlap"}},
		{"more of a semaphore than there is", func(s *story) {
			s.hold(at, "a", "sem", 1000, 2, 3, false)
			s.hold(at+200*ms, "b", "sem", 1100, 2, 3, false)
		}, []string{"linear", "overlap"}},
		{"a smaller token", func(s *story) { s.lock(at, "a", 8500) }, []string{"linear", "token"}},
		{"a token twice", func(s *story) { s.lock(at, "a", 9000) }, []string{"linear", "token"}},
		{"readers of two processes share a token", func(s *story) {
			s.hold(at, "a", "rw", 1000, 1, 9, true)
			s.hold(at+100*ms, "b", "rw", 1000, 1, 9, true)
		}, []string{"token"}},
		{"a reader with a token from before a writer", func(s *story) {
			s.hold(at, "a", "rw", 250, 1, 9, true)
		}, []string{"linear", "token"}},
		{"a term twice", func(s *story) {
			s.hold(at, "a", "leader", 4000, 1, 1, false).Granted().Term = 7
		}, []string{"term"}},
		{"somebody else leads after a transfer", func(s *story) {
			s.transfer(s.hold(at, "a", "leader", 4000, 1, 1, false), 8, "b", "b1", "")
			s.hold(at+slot, "c", "leader", 5000, 1, 1, false).Granted().Term = 9
		}, []string{"transfer"}},
		{"the store elects a candidate other than the named one", func(s *story) {
			s.transfer(s.hold(at, "a", "leader", 4000, 1, 1, false), 8, "b", "b1", "")
			s.leads(at, 8, "a1.1", "c1.1", "b1.1")
			s.leads(at+slot, 9, "c1.1", "b1.1")
		}, []string{"transfer"}},
		{"a waiter further back leads, though another candidate was named", func(s *story) {
			s.transfer(s.hold(at, "a", "leader", 4000, 1, 1, false), 8, "d", "d1", "time-out")
			s.leads(at, 8, "a1.1", "c1.1", "b1.1", "d1.1")
			s.leads(at+slot, 9, "b1.1", "c1.1", "d1.1")
		}, []string{"fifo"}},
		{"a waiter further back leads, though only an earlier leader had named it", func(s *story) {
			s.transfer(s.hold(at, "a", "leader", 4000, 1, 1, false), 8, "b", "b1", "time-out")
			s.leads(at, 9, "d1.1", "c1.1", "b1.1")
			s.leads(at+slot, 10, "b1.1", "c1.1")
		}, []string{"fifo"}},
		{"a write after a newer one", func(s *story) { s.write(at, "a", 8000, "") }, []string{"linear"}},
		{"a write is refused for no reason", func(s *story) {
			s.write(at, "a", 9000, history.Fenced)
		}, []string{"linear"}},
		{"a holder's write is refused", func(s *story) {
			s.lock(at, "a", 10_000)
			s.write(at+50*ms, "a", 10_000, history.Fenced)
		}, []string{"fence", "linear"}},
		{"the document applied an old write", func(s *story) {
			s.put(at, "nemesis", 0, history.Log, history.Event{Key: "k", Tokens: []int64{2000, 9000, 8000}})
		}, []string{"fence"}},
		{"granted while it was kept", func(s *story) {
			p := s.lock(at, "a", 10_000)
			p.Done().Keep = slot
			s.lock(at+slot, "b", 11_000)
		}, []string{"kept"}},
		{"granted out of order, the waiter ahead still waits", func(s *story) {
			s.record(at, 10_000, holder("x.3", 10_000), "y.3", "z.3")
			s.record(at+slot, 11_000, holder("z.3", 11_000), "y.3")
		}, []string{"fifo"}},
		{"granted out of order, both hold", func(s *story) {
			s.record(at, 10_000, nil, "y.3", "z.3")
			s.record(at+slot, 12_000, []history.Claim{{ID: "z.3", Token: 11_000}, {ID: "y.3", Token: 12_000, Weight: 1}})
		}, []string{"fifo"}},
		{"overtaken in the queue", func(s *story) {
			s.record(at, 10_000, holder("x.3", 10_000), "y.3", "z.3")
			s.record(at+slot, 10_000, holder("x.3", 10_000), "z.3", "y.3")
		}, []string{"fifo"}},
		{"the store has two holders", func(s *story) {
			s.record(at, 11_000, append(holder("x.3", 10_000), holder("y.3", 11_000)...))
		}, []string{"store"}},
		{"the store's token goes back", func(s *story) { s.record(at, 9_800, nil) }, []string{"store"}},
		{"a call that never returns", func(s *story) {
			p := s.lock(at, "a", 10_000)
			s.events = s.events[:p.granted]
		}, []string{"ends"}},
		{"a release that never returns", func(s *story) {
			p := s.lock(at, "a", 10_000)
			s.events = s.events[:p.freed]
		}, []string{"ends"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := good()
			c.plant(s)
			if got := broken(t, s); !slices.Equal(got, c.want) {
				t.Errorf("rules %q are broken, want %q", got, c.want)
			}
		})
	}
}

// If it is uncertain whether a rule was broken, no violation is reported.
func TestUncertainIsNoViolation(t *testing.T) {
	const at = 100 * slot
	for _, c := range []struct {
		name  string
		plant func(s *story)
	}{
		{"a hold that was over when it was granted", func(s *story) {
			s.lock(at, "a", 10_000)
			p := s.lock(at+100*ms, "b", 0)
			p.lose()
		}},
		{"granted after the holder began its release, within its grace", func(s *story) {
			s.lock(at, "a", 10_000).lose()
			s.lock(at+505*ms, "b", 11_000)
		}},
		{"an acquiring call that returns late", func(s *story) {
			p := s.lock(at, "a", 10_000)
			p.Granted().At = at + 480*ms
			s.hold(at, "b", "other", 1, 1, 1, false)
		}},
		{"granted while it was kept, after a Break", func(s *story) {
			p := s.lock(at, "a", 10_000)
			p.Done().Keep = slot
			s.put(at+600*ms, "b", 0, history.Break, history.Event{Key: "k"})
			s.lock(at+slot, "b", 11_000)
		}},
		{"a write without an answer", func(s *story) {
			s.write(at, "a", 50_000, "time-out")
			s.write(at+slot, "b", 20_000, "")
			s.write(at+2*slot, "b", 20_000, history.Fenced) // this answer shows that the first write has arrived
		}},
		{"a call and a release of a process that was killed", func(s *story) {
			p := s.lock(at, "c", 10_000)
			s.events = s.events[:p.done]
			p = s.lock(at, "c", 11_000)
			s.events = s.events[:p.granted]
			s.put(at+slot, "nemesis", 0, history.Killed, history.Event{Target: "c"})
		}},
		{"the waiter ahead has left the queue", func(s *story) {
			s.record(at, 10_000, holder("x.3", 10_000), "y.3", "z.3")
			s.record(at+slot, 11_000, holder("z.3", 11_000))
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := good()
			c.plant(s)
			if got := broken(t, s); len(got) > 0 {
				t.Errorf("rules %q are broken, want none", got)
			}
		})
	}
}

// The search finds a valid order even if almost all orders are wrong. In each of these cases an
// exhaustive search would take hours.
func TestOrderIsFound(t *testing.T) {
	const at, many = 100 * slot, 16
	readers := func(s *story, at, requested time.Duration, token int64, each func(part)) {
		for i := range int64(many) {
			p := s.hold(at+time.Duration(i)*ms, fmt.Sprintf("r%d", i), "rw", token+i, 1, 100, true)
			p.Request().At = requested + time.Duration(i)*ms
			each(p)
		}
	}
	// A writer waits for a reader, and more readers wait for the writer. Judging by the earlier events alone, these
	// readers could also overlap with the first reader.
	wait := func(s *story) {
		s.hold(at-slot, "r", "rw", 9000, 1, 100, true)
		s.hold(at, "w", "rw", 10_000, 100, 100, false).Request().At = at - 900*ms
		readers(s, at+slot, at-800*ms, 11_000, func(part) {})
		s.hold(at+2*slot, "w", "rw", 12_000, 100, 100, false)
	}
	for _, c := range []struct {
		name  string
		plant func(s *story)
	}{
		{"readers that wait for a writer", wait},
		{"readers that were lost before", func(s *story) {
			readers(s, at-2*slot, at-2*slot, 8000, func(p part) { p.lose() })
			wait(s)
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			var s story
			c.plant(&s)
			if got := broken(t, &s); len(got) > 0 {
				t.Errorf("rules %q are broken, want none", got)
			}
		})
	}
}
