package explore

import (
	"crypto/md5"
	"encoding/binary"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/leasehold-go/leasehold/internal/core"
	"github.com/leasehold-go/leasehold/internal/testkit"
)

// A fingerprint is a hash of a form of the world in which worlds that behave alike are equal.
type fingerprint [16]byte

func (w *world) fingerprint() fingerprint { return md5.Sum(w.form()) }

// form is that form.
func (w *world) form() []byte {
	name := &namer{make(map[string]uint64)}
	var b []byte
	put := func(n ...int) {
		for _, n := range n {
			b = binary.AppendVarint(b, int64(n))
		}
	}
	flags := func(flags ...bool) {
		for _, f := range flags {
			if f {
				b = append(b, 1)
			} else {
				b = append(b, 0)
			}
		}
	}
	put(w.faults, w.giveUps, w.freezes, w.cuts, w.closes, w.breaks, w.steps)
	for i := range w.nodes {
		n := &w.nodes[i]
		flags(n.frozen, n.cut, n.closed)
		b = n.core.State(b, w.now, name)
		for _, o := range n.callers {
			put(o.rounds, int(name.Number('w', o.call)), int(name.Number('h', o.hold)))
			if o.ended != 0 {
				put(int(min(w.now.Sub(o.ended), 2*config.Grace)))
			}
		}
	}
	for i := range w.mail {
		l := &w.mail[i]
		put(-1, l.node)
		flags(l.answered, l.executed, l.late, l.copies)
		if l.command == nil {
			b = append(b, byte(l.notice.Type))
			put(int(name.claim(l.notice.Claim)))
			continue
		}
		c := &l.command.Command
		put(int(c.Op), int(name.Number('c', l.command.ID)), int(name.Session(c.Session)), int(name.claim(claimOf(c.Edit).ID)))
		if !l.answered {
			put(int(w.now.Sub(l.sent)))
		}
		if !l.executed {
			put(len(c.Claims))
			if j := c.Edit.Join; j != nil {
				put(int(max(j.NotAfter.Sub(w.store.now(w.now)), -2*config.Margin)))
				for _, id := range j.Expired {
					put(int(name.Session(id)))
				}
			}
		}
		if r := l.reply; r != nil {
			flags(r.Err != nil, r.Found)
			put(int(r.Left), int(r.Now.Sub(w.store.now(w.now))))
			for _, m := range r.Members {
				put(int(r.Now.Sub(m.LastHeartbeat)))
			}
			for _, h := range r.State.Holders {
				put(int(name.claim(h.Claim)))
			}
			for _, q := range r.State.WaitersAhead {
				put(-2, int(name.claim(q.Claim)))
			}
			for _, n := range r.Notices {
				put(-3, int(name.claim(n.Claim)))
			}
		}
	}
	return w.store.state(b, w.now, name)
}

// A visited state is how it was reached first.
type visited struct {
	from int32
	what string
}

// An explorer goes through all states of a world, in the order of their distance from the beginning.
type explorer struct {
	seen        map[fingerprint]int32
	path        []visited
	good        map[fingerprint]bool // states from which all goes well if nothing else goes wrong
	transitions int
}

// explore visits all states that can be reached from w, at most so many, and checks each. It returns
// the steps that lead to what is wrong, or nil.
func explore(w *world, most int, without ...string) (e *explorer, wrong []string) {
	e = &explorer{seen: make(map[fingerprint]int32), good: make(map[fingerprint]bool)}
	type open struct {
		w *world
		n int32
	}
	visit := func(w *world, from int32, what string) (int32, bool) {
		s := w.fingerprint()
		if _, ok := e.seen[s]; ok {
			return 0, false
		}
		n := int32(len(e.path))
		e.seen[s] = n
		e.path = append(e.path, visited{from, what})
		return n, true
	}
	visit(w, -1, "")
	for queue := []open{{w, 0}}; len(queue) > 0 && len(e.path) < most; {
		at := queue[0]
		queue = queue[1:]
		if err := e.ends(at.w); err != nil {
			return e, append(e.steps(at.n), "and then, without faults:", err.Error())
		}
		for _, a := range at.w.actions(false) {
			if slices.ContainsFunc(without, func(s string) bool { return strings.Contains(a.what, s) }) {
				continue
			}
			e.transitions++
			next := at.w.clone()
			if err := a.do(next); err != nil {
				return e, append(e.steps(at.n), a.what, err.Error())
			}
			if n, fresh := visit(next, at.n, a.what); fresh {
				queue = append(queue, open{next, n})
			}
		}
	}
	return e, nil
}

// steps returns how a state was reached.
func (e *explorer) steps(n int32) (steps []string) {
	for ; n > 0; n = e.path[n].from {
		steps = append(steps, e.path[n].what)
	}
	slices.Reverse(steps)
	return steps
}

// ends checks that everybody is served in the end if nothing goes wrong any more, and that nothing is
// left of living sessions then.
func (e *explorer) ends(w *world) error {
	var passed []fingerprint
	began := w.now
	last := ""
	for w := w.clone(); ; {
		s := w.fingerprint()
		if e.good[s] {
			break
		}
		passed = append(passed, s)
		if w.done() && len(w.mail) == 0 {
			break
		}
		next := w.actions(true)
		if len(next) == 0 {
			return fmt.Errorf("nothing can happen any more, after %q; %s", last, w)
		}
		if w.now.Sub(began) > 10*config.TTL || len(passed) > 10_000 {
			return fmt.Errorf("not served, or not clean, after %v without faults; %s", w.now.Sub(began), w)
		}
		last = next[0].what
		if err := next[0].do(w); err != nil {
			return fmt.Errorf("without faults, after %q: %w", last, err)
		}
	}
	for _, s := range passed {
		e.good[s] = true
	}
	return nil
}

// String says what is there.
func (w *world) String() string {
	var b strings.Builder
	for i := range w.nodes {
		fmt.Fprintf(&b, "%s: session %q, callers %+v; ", name(i), w.nodes[i].core.Session(), w.nodes[i].callers)
	}
	for _, key := range slices.Sorted(maps.Keys(w.store.keys)) {
		fmt.Fprintf(&b, "%s: held by %v, queue %v", key, w.store.keys[key].holders, w.store.keys[key].queue)
	}
	return b.String()
}

// newWorld returns a world with the faults of w, of so many processes with so many callers each, which lock
// one key some times.
func newWorld(w world, processes, callers, rounds int) *world {
	w.now, w.tokens = 1, make(map[string]int64)
	w.store = store{sessions: make(map[string]registration), keys: make(map[string]record)}
	for range processes {
		n := node{core: core.New(config)}
		for range callers {
			n.callers = append(n.callers, caller{key: "k", rounds: rounds})
		}
		w.nodes = append(w.nodes, n)
	}
	return &w
}

// Small worlds are explored completely: every order of events, and from every state a check that all goes
// well if nothing else goes wrong. What is found is a list of steps.
func TestSmallWorlds(t *testing.T) {
	testkit.Large(t)
	worlds := []struct {
		name    string
		w       world // how many faults of each kind may come
		of      [3]int
		long    bool
		without []string // actions that are left out, to go deeper with the others
	}{
		{"two processes", world{}, [3]int{2, 1, 1}, false, nil},
		{"two callers give up", world{giveUps: 2}, [3]int{1, 2, 1}, false, nil},
		{"two callers, a fault", world{faults: 1}, [3]int{1, 2, 1}, false, nil},
		{"one caller gives up, two faults", world{faults: 2, giveUps: 1}, [3]int{1, 1, 1}, false, nil},
		{"one caller, a fault, the clock steps", world{faults: 1, giveUps: 1, steps: 2}, [3]int{1, 1, 1}, false, nil},
		{"two callers, a break", world{breaks: 1, giveUps: 1}, [3]int{1, 2, 1}, false, nil},
		{"two callers, cut off", world{cuts: 1}, [3]int{1, 2, 1}, false, nil},
		{"a late reply, and its process is cut off", world{faults: 1, cuts: 1}, [3]int{2, 1, 1}, false, []string{
			"is lost", "twice", "'s Register  is late", "'s Heartbeat  is late", "'s Join s1.1 is late", "'s Join s2.1 is late", "unlocks", "no longer", "B is cut off", "B's Register  is delayed", "B's Heartbeat  is delayed", "B's Read  is delayed", "B's Expire  is delayed", "B's Join s1.1 is delayed", "B's Join s2.1 is delayed",
		}},
		{"two processes, one gives up", world{giveUps: 1}, [3]int{2, 1, 1}, true, nil},
		{"two processes, one closes", world{closes: 1}, [3]int{2, 1, 1}, true, nil},
		{"one caller twice, two faults", world{faults: 2}, [3]int{1, 1, 2}, true, nil},
	}
	states, transitions, began := 0, 0, time.Now()
	for _, tc := range worlds {
		t.Run(tc.name, func(t *testing.T) {
			if tc.long && testing.Short() {
				t.Skip("hundreds of thousands of states; it is run without -short")
			}
			const most = 1_000_000 // more than any of them has
			e, wrong := explore(newWorld(tc.w, tc.of[0], tc.of[1], tc.of[2]), most, tc.without...)
			if wrong != nil {
				t.Fatalf("after %d steps:\n%s", len(wrong)-1, strings.Join(wrong, "\n"))
			}
			if len(e.path) >= most {
				t.Fatalf("more than %d states", most)
			}
			t.Logf("%d states, %d transitions", len(e.path), e.transitions)
			states, transitions = states+len(e.path), transitions+e.transitions
		})
	}
	t.Logf("%d states, %d transitions, %v", states, transitions, time.Since(began).Round(time.Second/10))
}

// Large worlds are explored at random. The seed is that of the day, so that each day tries others, and
// is printed: LEASEHOLD_SEED repeats a run.
func TestLargeWorlds(t *testing.T) {
	testkit.Large(t)
	seed := uint64(time.Now().Unix() / 86400)
	if s := os.Getenv("LEASEHOLD_SEED"); s != "" {
		var err error
		if seed, err = strconv.ParseUint(s, 10, 64); err != nil {
			t.Fatal(err)
		}
	}
	walks := testkit.Rounds(30_000, 100_000)
	if testing.Short() {
		walks = 10_000
	}
	steps := 0
	for n := range walks {
		passed, err := walk(rand.New(rand.NewPCG(seed, uint64(n))))
		if steps += len(passed); err != nil {
			t.Fatalf("LEASEHOLD_SEED=%d, walk %d, after %d steps: %v\n%s", seed, n, len(passed), err, strings.Join(passed, "\n"))
		}
	}
	t.Logf("seed %d: %d walks, %d steps", seed, walks, steps)
}

// walk takes random steps through a large world, and then goes on without faults to its end.
func walk(r *rand.Rand) (passed []string, err error) {
	most := world{faults: r.IntN(6), giveUps: r.IntN(3), freezes: r.IntN(2), cuts: r.IntN(4), closes: r.IntN(2), breaks: r.IntN(3), steps: r.IntN(3)}
	w := newWorld(most, 2+r.IntN(2), 1+r.IntN(2), 1+r.IntN(3))
	for range 200 {
		all := w.actions(false)
		if len(all) == 0 {
			break
		}
		a := all[r.IntN(len(all))]
		for r.IntN(10) > 0 && a.rare() {
			a = all[r.IntN(len(all))]
		}
		passed = append(passed, a.what)
		if err := a.do(w); err != nil {
			return passed, err
		}
	}
	e := &explorer{good: make(map[fingerprint]bool)}
	return passed, e.ends(w)
}

// rare reports whether the action should be chosen less often at random. Holders that unlock at once and
// cuts that heal at once would never see a session expire.
func (a action) rare() bool {
	for _, what := range []string{"unlocks", "gives up", "closes", "freezes", "goes on", "cut off", "lost", "late", "delayed", "twice", "steps", "asked"} {
		if strings.Contains(a.what, what) {
			return true
		}
	}
	return false
}

// The same seed takes the same steps: no effect depends on the order of a map, on a clock or on chance.
func TestWalksRepeat(t *testing.T) {
	for n := range uint64(50) {
		first, err := walk(rand.New(rand.NewPCG(1, n)))
		again, err2 := walk(rand.New(rand.NewPCG(1, n)))
		if fmt.Sprint(err) != fmt.Sprint(err2) || !slices.Equal(first, again) {
			t.Fatalf("walk %d took other steps:\n%s\n\n%s", n, strings.Join(first, "\n"), strings.Join(again, "\n"))
		}
	}
}
