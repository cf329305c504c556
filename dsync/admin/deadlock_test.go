package admin_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/leasehold-go/leasehold/dsync/admin"
	"github.com/leasehold-go/leasehold/internal/testkit"
)

// keys parses lines such as "k/3: a.1=2 b.1 < c.1=3": a key with its limit, its holders and, after "<", its waiters,
// each with its weight. A limit or weight of 1 is omitted.
func keys(lines ...string) (all []admin.Status) {
	participants := func(text string) (some []admin.Participant) {
		for _, f := range strings.Fields(text) {
			p := admin.Participant{Weight: 1, Renewed: true}
			if id, weight, ok := strings.Cut(f, "="); ok {
				f = id
				fmt.Sscan(weight, &p.Weight)
			}
			p.Claim = f
			p.Session, _, _ = strings.Cut(f, ".")
			some = append(some, p)
		}
		return some
	}
	for _, line := range lines {
		k := admin.Status{Limit: 1, Now: time.Now()}
		name, rest, _ := strings.Cut(line, ": ")
		k.Key = name
		if n, limit, ok := strings.Cut(name, "/"); ok {
			k.Key = n
			fmt.Sscan(limit, &k.Limit)
		}
		holders, queue, _ := strings.Cut(rest, "<")
		k.Holders, k.Queue = participants(holders), participants(queue)
		all = append(all, k)
	}
	return all
}

func text(all []admin.Deadlock) string {
	var lines []string
	for _, d := range all {
		var parts []string
		for i, m := range d.Members {
			parts = append(parts, fmt.Sprintf("%s has %s wants %s", m.Session, d.Keys[i], d.Keys[(i+1)%len(d.Keys)]))
		}
		i := slices.Index(parts, slices.Min(parts)) // the cycle can begin with any of its keys
		lines = append(lines, strings.Join(append(slices.Clone(parts[i:]), parts[:i]...), ", "))
	}
	slices.Sort(lines)
	return strings.Join(lines, "; ")
}

func TestFindDeadlocks(t *testing.T) {
	for _, c := range []struct {
		name string
		keys []admin.Status
		want string
	}{
		{"two", keys("x: a.1 < b.2", "y: b.1 < a.2"), "a has x wants y, b has y wants x"},
		{"three", keys("x: a.1 < c.2", "y: b.1 < a.2", "z: c.1 < b.2"), "a has x wants y, b has y wants z, c has z wants x"},
		{"two cycles", keys("x: a.1 < b.2", "y: b.1 < a.2", "v: c.1 < d.2", "w: d.1 < c.2"), "a has x wants y, b has y wants x; c has v wants w, d has w wants v"},
		{"others wait behind", keys("x: a.1 < b.2 d.1", "y: b.1 < a.2", "z: d.9 < e.1", "w: d.0 < f.1"), "a has x wants y, b has y wants x"},
		{"a chain", keys("x: a.1 < b.2", "y: b.1 < c.2", "z: c.1 < d.2"), ""},
		{"a free key", keys("x: < b.2", "y: b.1 < a.2"), ""},
		{"no numbers", keys("x: a < b", "y: b < a"), ""},

		{"a semaphore with room", keys("s/2: a.1 < b.2", "y: b.1 < a.2"), ""},
		{"a semaphore, another holder", keys("s/2: a.1 c.1 < b.2", "y: b.1 < a.2"), ""},
		{"a semaphore, another holder that waits", keys("s/2: a.1 c.1 < b.2", "y: b.1 < a.2 c.2"), "a has s wants y, b has y wants s; b has y wants s, c has s wants y"},
		{"a semaphore, another holder that waits elsewhere", keys("s/2: a.1 c.1 < b.2", "y: b.1 < a.2", "z: d.1 < c.2"), ""},
		{"a semaphore, the other holder has too little", keys("s/5: a.1=3 c.1=2 < b.2=3", "y: b.1 < a.2"), "a has s wants y, b has y wants s"},
		{"a semaphore made smaller", keys("s/1: a.1=3 < b.2", "y: b.1 < a.2"), "a has s wants y, b has y wants s"},
		{"a session waits for its own semaphore", keys("s/1: a.1 < a.2 b.2", "y: b.1 < c.1"), ""},
		{"a semaphore, its holder waits for more of it", keys("s/2: a.1 b.1 < a.2 b.2"), ""},
		{"a semaphore, a waiter of another goroutine", keys("s/2: a.1 b.1 < b.2", "y: b.3 < a.4"), ""},

		{"readers", keys("r/9: a.1 b.1 < c.2=9", "y: c.1 < d.1"), ""},
		{"a reader and a writer", keys("r/9: a.1 d.1 < b.2=9", "y: b.1 < a.2"), "a has r wants y, b has y wants r"},
		{"a reader behind a writer", keys("r/9: a.1 < w.1=9 b.2", "y: b.1 < a.2"), "a has r wants y, b has y wants r"},
		{"a reader ahead of a writer", keys("r/9: a.1 < b.2 w.1=9", "y: b.1 < a.2"), ""},

		{"requested in the reverse order", keys("x: a.2 < b.2", "y: b.1 < a.1"), ""},
		{"requested in the reverse order, with long numbers", keys("x: a.10 < b.2", "y: b.1 < a.9"), ""},
		{"long numbers", keys("x: a.9 < b.10", "y: b.8 < a.10"), "a has x wants y, b has y wants x"},
		{"the shortest of each wait", keys("x: a.1 < b.2", "y: b.1 < a.2 c.2", "z: c.1 < a.3"),
			"a has x wants y, b has y wants x; a has x wants z, c has z wants y, b has y wants x"},
	} {
		draws := testkit.Draw(t)
		for range 10 { // with the keys in any order
			draws.Shuffle(len(c.keys), func(i, j int) { c.keys[i], c.keys[j] = c.keys[j], c.keys[i] })
			if got := text(admin.FindDeadlocks(c.keys, c.keys)); got != c.want {
				t.Errorf("%s: %q, want %q", c.name, got, c.want)
				break
			}
		}
	}
}

// In random worlds, a cycle is found if and only if somebody waits forever, regardless of the order in which keys are
// released and granted.
func TestFindDeadlocksInRandomWorlds(t *testing.T) {
	found := 0
	for seed := range uint64(3000) {
		r := rand.New(rand.NewPCG(seed, 1))
		w := newWorld(r)
		keys := w.keys()
		all := admin.FindDeadlocks(keys, keys)
		stuck := w.play(r)
		if (len(all) > 0) != (len(stuck) > 0) {
			t.Fatalf("seed %d: %d deadlocks, stuck %v, in %+v", seed, len(all), stuck, keys)
		}
		for _, d := range all {
			found++
			for i, m := range d.Members {
				n := (i + 1) % len(d.Members)
				if m.Session == d.Members[n].Session || !w.holds(m.Session, d.Keys[i]) || w.waits[m.Session] != d.Keys[n] || !slices.Contains(stuck, d.Keys[i]) {
					t.Fatalf("seed %d: %v is not a cycle in %+v", seed, d, keys)
				}
			}
		}
	}
	if found < 300 {
		t.Errorf("only %d cycles were found, too few for this test to show much", found)
	}
}

// A world has sessions with one goroutine each. A session holds keys and waits for at most one.
type world struct {
	limit map[string]int64
	held  map[string]map[string]int64 // by key and session: the weight
	queue map[string][]string
	want  map[string]int64  // the weight that each session waits for
	waits map[string]string // the key that each session waits for
}

func (w *world) holds(session, key string) bool { return w.held[key][session] > 0 }

func (w *world) used(key string) (n int64) {
	for _, weight := range w.held[key] {
		n += weight
	}
	return n
}

// newWorld returns a world whose sessions have locked keys at random; keys are granted as the store
// would grant them.
func newWorld(r *rand.Rand) *world {
	w := &world{map[string]int64{}, map[string]map[string]int64{}, map[string][]string{}, map[string]int64{}, map[string]string{}}
	names := []string{"v", "w", "x", "y"}[:2+r.IntN(3)]
	for _, k := range names {
		w.limit[k], w.held[k] = 1+r.Int64N(3), map[string]int64{}
	}
	for range 4 + r.IntN(12) {
		s, k := fmt.Sprint("s", r.IntN(4)), names[r.IntN(len(names))]
		if w.waits[s] != "" || w.holds(s, k) {
			continue
		}
		weight := 1 + r.Int64N(w.limit[k])
		if len(w.queue[k]) == 0 && w.used(k)+weight <= w.limit[k] {
			w.held[k][s] = weight
			continue
		}
		w.queue[k] = append(w.queue[k], s)
		w.want[s], w.waits[s] = weight, k
	}
	return w
}

func (w *world) keys() (all []admin.Status) {
	for k, limit := range w.limit {
		key := admin.Status{Key: k, Limit: limit, Now: time.Now()}
		for s, weight := range w.held[k] {
			key.Holders = append(key.Holders, admin.Participant{Claim: s + ".1", Session: s, Weight: weight, Renewed: true})
		}
		for _, s := range w.queue[k] {
			key.Queue = append(key.Queue, admin.Participant{Claim: s + ".2", Session: s, Weight: w.want[s]})
		}
		all = append(all, key)
	}
	return all
}

// play lets the sessions that wait for nothing release all their keys, one session after the other in random order. It
// returns the keys that sessions still wait for at the end.
func (w *world) play(r *rand.Rand) (stuck []string) {
	p := &world{w.limit, map[string]map[string]int64{}, map[string][]string{}, w.want, map[string]string{}}
	for k := range w.limit {
		p.held[k], p.queue[k] = map[string]int64{}, slices.Clone(w.queue[k])
		for s, n := range w.held[k] {
			p.held[k][s] = n
		}
	}
	for s, k := range w.waits {
		p.waits[s] = k
	}
	for range 400 {
		s := fmt.Sprint("s", r.IntN(4))
		if p.waits[s] != "" {
			continue
		}
		for k := range p.limit {
			delete(p.held[k], s)
			for len(p.queue[k]) > 0 {
				head := p.queue[k][0]
				if p.used(k)+p.want[head] > p.limit[k] {
					break
				}
				p.queue[k] = p.queue[k][1:]
				p.held[k][head] = p.want[head]
				delete(p.waits, head)
			}
		}
	}
	for k := range p.limit {
		if len(p.queue[k]) > 0 {
			stuck = append(stuck, k)
		}
	}
	slices.Sort(stuck)
	return stuck
}
