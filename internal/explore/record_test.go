package explore

import (
	"bytes"
	"flag"
	"math/rand/v2"
	"os"
	"testing"
	"time"

	"github.com/leasehold-go/leasehold/dsync/driver"
	"github.com/leasehold-go/leasehold/internal/core"
	"github.com/leasehold-go/leasehold/internal/trace"
)

var update = flag.Bool("update", false, "record the traces in internal/trace/testdata anew")

// recordings are the walks whose traces are in internal/trace/testdata, one for each kind of claim. The seeds make many
// different transitions in a short trace.
var recordings = []struct {
	name    string
	seed    uint64
	callers []caller // of process A, which is recorded
	other   caller   // of process B
	change  func(c *core.Config)
}{
	{"mutex", 457, []caller{mutex(3), mutex(2).tries(), mutex(2).passing()}, mutex(3), lingers},
	{"rwmutex", 116, []caller{reader(3), reader(2), writer(2)}, writer(2), nil},
	{"semaphore", 188, []caller{mutex(3).as(driver.KindSemaphore, 1, 3), mutex(2).as(driver.KindSemaphore, 2, 3).insisting()}, mutex(3).as(driver.KindSemaphore, 3, 3), nil},
	{"once", 182, []caller{once(), once()}, once(), nil},
	{"periodic", 168, []caller{ticking(1), ticking(2), ticking(3)}, ticking(2), nil},
	{"election", 73, []caller{candidate().passing(), candidate().leaves(driver.Release{Keep: 3 * time.Second})}, candidate(), nil},
	{"lease", 115, []caller{mutex(3).lease(6 * time.Second), mutex(2).lease(time.Minute)}, mutex(3), nil},
	{"first", 466, []caller{mutex(3).forces(), mutex(2).within(3 * time.Second)}, mutex(3).staying(), nil},
}

func lingers(c *core.Config) { c.Linger = 3 * time.Second }
func candidate() caller      { return mutex(2).as(driver.KindElection, 1, 1).auto() }
func once() caller {
	o := ticking(1)
	o.want.Kind = driver.KindOnce
	return o
}

// record returns the trace of process A on a random walk. The trace depends only on the seed.
func record(t *testing.T, n int, seed uint64) []byte {
	r := recordings[n]
	w := newWorld(setting{
		budget:    budget{faults: 3, refusals: 1, giveUps: 1, cuts: 1, closes: 1, breaks: 1, windDown: 1, progress: 1, extends: 1, slow: 1, freezes: 1},
		processes: [][]caller{r.callers, {r.other}},
		change:    r.change,
	})
	var b bytes.Buffer
	config, random := *w.cfg, trace.Seed{uint64(n), seed}
	config.Rand, config.Backoff = random.Rand(), 4*config.Retry // longer after each failure
	w.nodes[0].cfg, w.nodes[0].core, w.nodes[0].recorder = &config, core.New(&config), trace.New(&b, &config, random)
	if passed, err := w.walk(rand.New(rand.NewPCG(uint64(n), seed)), 40); err != nil {
		t.Fatalf("%s: after %q: %v", r.name, passed, err)
	}
	return b.Bytes()
}

// A walk has the same trace whenever it is recorded. With -update, the traces are written to the files that package core
// replays.
func TestRecord(t *testing.T) {
	for n, r := range recordings {
		text := record(t, n, r.seed)
		if !bytes.Equal(text, record(t, n, r.seed)) {
			t.Errorf("%s: two recordings differ", r.name)
		}
		if !*update {
			continue
		}
		if err := os.WriteFile("../trace/testdata/"+r.name+".trace", text, 0o666); err != nil {
			t.Fatal(err)
		}
	}
}
