package history

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"sync"
)

// suffix is that of the files that [Read] reads.
const suffix = ".history.jsonl"

// A Recorder writes the events of one process. Its methods may be called
// concurrently.
type Recorder struct {
	process string

	mu   sync.Mutex
	file *os.File
	ids  int
}

// NewRecorder returns a recorder that writes to a file in dir, for a process by a name
// that no other has.
func NewRecorder(dir, process string) (*Recorder, error) {
	f, err := os.OpenFile(filepath.Join(dir, process+suffix), os.O_CREATE|os.O_EXCL|os.O_WRONLY|os.O_APPEND, 0o644)
	if err != nil {
		return nil, err
	}
	return &Recorder{process: process, file: f}, nil
}

// Close ends the recording.
func (r *Recorder) Close() error { return r.file.Close() }

// Put writes an event. Process is filled in, and At if it is zero.
func (r *Recorder) Put(e Event) {
	if e.At == 0 {
		e.At = Now()
	}
	e.Process = r.process
	line, err := json.Marshal(e)
	if err != nil {
		panic(err) // an Event has nothing that can't be marshalled
	}
	// The kernel has it when Write returns: kill -9 takes nothing of it away.
	if _, err := r.file.Write(append(line, '\n')); err != nil {
		panic(fmt.Sprintf("history: %v", err))
	}
}

// begin writes the first event of several, under an id of its own.
func (r *Recorder) begin(e Event) int {
	r.mu.Lock()
	r.ids++
	e.ID = r.ids
	r.mu.Unlock()
	r.Put(e)
	return e.ID
}

// Request records that a call is about to request a hold: e has Key, What, Weight and
// Limit, and Shared.
func (r *Recorder) Request(e Event) *Attempt {
	e.Type = Request
	return &Attempt{r: r, id: r.begin(e), key: e.Key}
}

// Fault records that a fault is about to begin, of a process or, if target is empty,
// of the server. heal records that it is over.
func (r *Recorder) Fault(what, target string) (heal func()) {
	id := r.begin(Event{Type: Fault, What: what, Target: target})
	return func() { r.Put(Event{Type: Healed, ID: id, What: what, Target: target}) }
}

// Write records that a write with a token is about to begin. returned records its
// answer: "", Fenced, or an error.
func (r *Recorder) Write(key string, token int64) (returned func(err string)) {
	id := r.begin(Event{Type: Write, Key: key, Token: token})
	return func(err string) { r.Put(Event{Type: Wrote, ID: id, Key: key, Token: token, Err: err}) }
}
