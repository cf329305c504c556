package core_test

import (
	"bytes"
	"encoding/json"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/leasehold-go/leasehold/dsync/driver"
	"github.com/leasehold-go/leasehold/internal/core"
	"github.com/leasehold-go/leasehold/internal/trace"
)

const recordAnew = `record the traces anew, and review their diff: go test ./internal/explore -run TestRecord -update && go test ./internal/core -run TestRecordedTraces -update`

// recorded has a trace and the rows of the table that the trace uses, as indexes of core.Rows(false).
type recorded struct {
	text []byte
	rows map[int]bool
}

// replay replays the trace, and notes the rows that it uses.
func (r *recorded) replay() error {
	r.rows = make(map[int]bool)
	_, err := trace.ReplayOn(bytes.NewReader(r.text), func(cfg *core.Config) *core.Core {
		c := core.New(cfg)
		c.Watch(func(int) {}, func(n int) { r.rows[n] = true })
		return c
	})
	return err
}

// A Core decides now as it did when the traces on file were recorded. Together they make every transition of the claim's
// table, with claims of every kind. Package explore records the walks, and this test the cases.
func TestRecordedTraces(t *testing.T) {
	const dir = "../trace/testdata"
	missing := make(map[int]bool)
	for n := range core.Rows(false) {
		missing[n] = true
	}
	var all []byte
	use := func(r *recorded) {
		all = append(all, r.text...)
		for n := range r.rows {
			delete(missing, n)
		}
	}
	files, err := filepath.Glob(dir + "/*.trace")
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range files {
		if *update && strings.HasPrefix(filepath.Base(file), "case-") {
			if err := os.Remove(file); err != nil {
				t.Fatal(err)
			}
			continue
		}
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		r := recorded{text: text}
		if err := r.replay(); err != nil {
			t.Errorf("%s: %v\nIf the decision has changed on purpose, %s", file, err, recordAnew)
		}
		use(&r)
	}
	var cases map[string]*recorded
	if *update {
		cases = recordedCases()
	}
	for name, r := mostOf(cases, missing); r != nil; name, r = mostOf(cases, missing) {
		if err := os.WriteFile(filepath.Join(dir, name), r.text, 0o666); err != nil {
			t.Fatal(err)
		}
		use(r)
	}
	for n, row := range core.Rows(false) {
		if missing[n] {
			t.Errorf("%+v: no trace on file makes this transition; when it has a case, %s", row, recordAnew)
		}
	}
	kinds := kindsIn(t, all)
	for _, kind := range []driver.Kind{driver.KindMutex, driver.KindRWMutex, driver.KindSemaphore, driver.KindOnce, driver.KindPeriodic, driver.KindElection, "lease", "first", "auto", "try", "shared"} {
		if !kinds[kind] {
			t.Errorf("no trace on file has a claim of the kind %s", kind)
		}
	}
}

// kindsIn returns the kinds of the claims that are requested in the traces.
func kindsIn(t *testing.T, traces []byte) map[driver.Kind]bool {
	kinds := make(map[driver.Kind]bool)
	for l := range bytes.Lines(traces) {
		var call struct {
			Type  string
			Event core.Want
		}
		if !bytes.Contains(l, []byte(`"Type":"Call"`)) {
			continue
		}
		if err := json.Unmarshal(l, &call); err != nil {
			t.Fatal(err)
		}
		w := call.Event
		kinds[w.Kind] = true
		for kind, has := range map[driver.Kind]bool{"lease": w.Lease > 0, "first": w.First, "auto": w.Auto, "try": w.Try, "shared": w.Shares} {
			kinds[kind] = kinds[kind] || has
		}
	}
	return kinds
}

// recordedCases returns the traces of all cases, by the names of their files.
func recordedCases() map[string]*recorded {
	words := regexp.MustCompile(`\w+`)
	cases := make(map[string]*recorded)
	for i := range tableCases {
		k := &tableCases[i]
		if r := k.recorded(); r.replay() == nil { // otherwise the case changes its settings on the way, which a trace cannot record
			cases["case-"+strings.Join(words.FindAllString(k.name(), -1), "-")+".trace"] = &r
		}
	}
	return cases
}

// mostOf returns the case that makes more of the missing transitions than any other, or nil if no case makes any.
func mostOf(cases map[string]*recorded, missing map[int]bool) (file string, best *recorded) {
	most := 0
	for _, name := range slices.Sorted(maps.Keys(cases)) {
		makes := 0
		for n := range cases[name].rows {
			if missing[n] {
				makes++
			}
		}
		if makes > most || makes == most && makes > 0 && len(cases[name].text) < len(best.text) {
			most, file, best = makes, name, cases[name]
		}
	}
	return file, best
}

// recorded returns the case's trace. The case may fail, because its pauses are random, unlike those of TestTable.
func (k *tableCase) recorded() (rec recorded) {
	var b bytes.Buffer
	var recorder *trace.Recorder
	seed := trace.Seed{1, 1}
	r := newRig(new(catcher))
	r.cfg.Rand, r.cfg.Backoff = seed.Rand(), 4*r.cfg.Retry // longer after each failure
	r.record = func(e core.Event, effects []core.Effect) {
		if recorder == nil { // not earlier, because beginnings change the settings
			recorder = trace.New(&b, &r.cfg, seed)
		}
		recorder.Step(r.now, e, effects, r.c.Next())
	}
	defer func() {
		_ = recover() // a catcher's Fatalf panics
		rec.text = b.Bytes()
	}()
	k.run(r)
	return rec
}
