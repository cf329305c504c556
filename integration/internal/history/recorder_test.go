package history_test

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/leasehold-go/leasehold/integration/internal/history"
	"github.com/leasehold-go/leasehold/internal/rules"
)

// Recorded events can be read back, except an incomplete line that a killed process left.
func TestRecorder(t *testing.T) {
	dir := t.TempDir()
	r, err := history.NewRecorder(dir, "a")
	if err != nil {
		t.Fatal(err)
	}
	number := func(n int64) func() int64 { return func() int64 { return n } }
	before := history.Now()
	heal := r.Fault("client stopped", "b")
	one := r.Request(history.Event{Key: "k", What: "mutex", Weight: 1, Limit: 1})
	one.Granted(number(7), number(2))
	if !one.Live(func() bool { return true }) || one.Live(func() bool { return false }) {
		t.Error("Live does not return the result of its argument")
	}
	r.Write("k", 7)(history.Fenced)
	one.Done(slot)
	one.Released(history.Lost)
	r.Request(history.Event{Key: "k", What: "mutex", Weight: 1, Limit: 1}).Refused("time-out")
	heal()
	if err := r.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := history.NewRecorder(dir, "a"); err == nil {
		t.Error("a second recorder with the same name was created, want an error")
	}
	name := filepath.Join(dir, "b.history.jsonl")
	if err := os.WriteFile(name, []byte(`{"type":"request","at":1,"process":"b","id":1,"key":"k"}`+"\n"+`{"type":"gra`), 0o600); err != nil {
		t.Fatal(err)
	}

	h, err := history.Read(dir)
	if err != nil {
		t.Fatal(err)
	}
	holds := h.Holds()["k"]
	if len(holds) != 3 || holds[0].Process != "b" || holds[0].Ended != 0 {
		t.Fatalf("holds %v, want b's call without an end, a's without a grant, and a's hold", holds)
	}
	if o := holds[1]; o.Granted != 0 || o.Ended == 0 {
		t.Errorf("the call that was refused: %+v", o)
	}
	o := holds[2]
	if o.Token != 7 || o.Term != 2 || o.Keep != slot || o.Err != history.Lost || o.Freed() {
		t.Errorf("the hold: %+v", o)
	}
	if times := []time.Duration{before, o.Requested, o.Granted, o.Live, o.Done, o.Released}; !slices.IsSorted(times) || o.Live == o.Granted {
		t.Errorf("times are not in order: %+v", o)
	}
	if f := h.Faults(); len(f) != 1 || f[0].What != "client stopped" || f[0].Target != "b" || f[0].To <= o.Released {
		t.Errorf("faults %+v, want one that ended last", f)
	}
	if c := (history.Counts{Calls: 3, Grants: 1, Lost: 1, Writes: 1, Refused: 1}); h.Counts() != c {
		t.Errorf("counts %+v, want %+v", h.Counts(), c)
	}
	var text strings.Builder
	if err := h.Write(&text); err != nil || strings.Count(text.String(), "\n") != len(h.Events) {
		t.Errorf("Write: %v, %d lines of %d events", err, strings.Count(text.String(), "\n"), len(h.Events))
	}
}

// The page shows every key, client, fault and violation.
func TestPage(t *testing.T) {
	s := good()
	s.put(2*slot, "nemesis", 100, history.Fault, history.Event{What: "server <paused>"})
	s.put(4*slot, "nemesis", 100, history.Healed, history.Event{})
	s.put(40*slot, "nemesis", 101, history.Fault, history.Event{What: "client killed", Target: "c"})
	var text strings.Builder
	found := []rules.Violation{{Rule: "grace", Key: "rw", At: 20 * slot, Text: "planted"}}
	if err := s.history(t).Page(&text, grace, found); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{`server \u003cpaused\u003e`, "client killed", `"Tag":"c"`, "b: mutex of rw", "of leader", "token 8000", ": lost", "planted", `"Tag":"violations"`} {
		if !strings.Contains(text.String(), want) {
			t.Errorf("the page does not contain %q", want)
		}
	}
}
