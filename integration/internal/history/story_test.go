package history_test

import (
	"encoding/json"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/leasehold-go/leasehold/integration/internal/history"
)

const (
	ms    = time.Millisecond
	grace = 300 * ms
	slot  = time.Second // time for one hold of a story
)

// A story is a history written by hand.
type story struct {
	events []history.Event
	ids    int
}

func (s *story) put(at time.Duration, process string, id int, t history.Type, e history.Event) *history.Event {
	e.Type, e.At, e.Process, e.ID = t, at, process, id
	s.events = append(s.events, e)
	return &s.events[len(s.events)-1]
}

// A part refers to the events of one hold, so that a test can change them.
type part struct {
	s                             *story
	process                       string
	id                            int
	request, granted, done, freed int // indexes of the events
}

func (p part) Request() *history.Event  { return &p.s.events[p.request] }
func (p part) Granted() *history.Event  { return &p.s.events[p.granted] }
func (p part) Done() *history.Event     { return &p.s.events[p.done] }
func (p part) Released() *history.Event { return &p.s.events[p.freed] }

// hold adds a hold with the given weight, on a key with the given limit. The hold is requested at the time at, granted
// 10 ms later, and unlocked 500 ms after the request.
func (s *story) hold(at time.Duration, process, key string, token, weight, limit int64, shared bool) part {
	s.ids++
	p := part{s: s, process: process, id: s.ids}
	add := func(at time.Duration, t history.Type, e history.Event) int {
		e.Key = key
		s.put(at, process, p.id, t, e)
		return len(s.events) - 1
	}
	p.request = add(at, history.Request, history.Event{What: "mutex", Weight: weight, Limit: limit, Shared: shared})
	p.granted = add(at+10*ms, history.Granted, history.Event{Token: token})
	add(at+300*ms, history.Held, history.Event{Live: at + 300*ms})
	p.done = add(at+500*ms, history.Done, history.Event{Live: at + 490*ms})
	p.freed = add(at+510*ms, history.Released, history.Event{})
	return p
}

// lock adds an exclusive hold of "k".
func (s *story) lock(at time.Duration, process string, token int64) part {
	return s.hold(at, process, "k", token, 1, 1, false)
}

// lose changes the hold into one that was lost after its last check.
func (p part) lose() part {
	p.Released().Err = history.Lost
	return p
}

func (s *story) write(at time.Duration, process string, token int64, err string) {
	s.ids++
	s.put(at, process, s.ids, history.Write, history.Event{Key: "k", Token: token})
	s.put(at+5*ms, process, s.ids, history.Wrote, history.Event{Key: "k", Token: token, Err: err})
}

// record adds a snapshot of the store's record of "k".
func (s *story) record(at time.Duration, token int64, holders []history.Claim, waiting ...string) {
	s.put(at, "nemesis", 0, history.Record, history.Event{Key: "k", Token: token, Limit: 1, Holders: holders, Waiting: waiting})
}

// transfer makes the hold a term that is transferred to a session of the given process.
func (s *story) transfer(p part, term int64, process, session, err string) {
	p.Granted().Term = term
	s.put(p.Done().At+ms, p.process, p.id, history.Transfer, history.Event{Key: "leader", Target: process, Session: session})
	s.put(p.Done().At+5*ms, p.process, p.id, history.Transferred, history.Event{Key: "leader", Err: err})
}

// leads adds a snapshot of the store's record of "leader".
func (s *story) leads(at time.Duration, term int64, claim string, waiting ...string) {
	s.put(at, "nemesis", 0, history.Record, history.Event{Key: "leader", Term: term, Token: 1000 * term, Limit: 1, Holders: holder(claim, 1000*term), Waiting: waiting})
}

// history writes the story as recorders do, with a file for each process, and reads it back.
func (s *story) history(t *testing.T) *history.History {
	t.Helper()
	dir := t.TempDir()
	files := make(map[string][]byte)
	for _, e := range s.events {
		line, err := json.Marshal(e)
		if err != nil {
			t.Fatal(err)
		}
		files[e.Process] = append(files[e.Process], append(line, '\n')...)
	}
	for name, text := range files {
		if err := os.WriteFile(filepath.Join(dir, name+".history.jsonl"), text, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	h, err := history.Read(dir)
	if err != nil {
		t.Fatal(err)
	}
	return h
}
