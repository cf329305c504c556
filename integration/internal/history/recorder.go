package history

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"time"

	"golang.org/x/sys/unix"
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

// An Attempt is one call that requests a hold, and that hold. It is for one goroutine.
type Attempt struct {
	r       *Recorder
	id      int
	key     string
	live    time.Duration
	written time.Duration // what of live was written
}

// Refused records that the call has returned without a hold.
func (a *Attempt) Refused(err string) {
	a.r.Put(Event{Type: Refused, ID: a.id, Key: a.key, Err: err})
}

// Granted records that the call has returned with a hold. token is called for its
// fencing token, which is returned, and term, if it is not nil, for its number.
func (a *Attempt) Granted(token, term func() int64) int64 {
	e := Event{Type: Granted, ID: a.id, Key: a.key, At: Now()}
	e.Token = token()
	if term != nil {
		e.Term = term()
	}
	a.live, a.written = e.At, e.At
	a.r.Put(e)
	return e.Token
}

// often is the interval at which Live writes an event, in case the process is killed.
const often = 250 * time.Millisecond

// Live checks whether the hold goes on, and records and returns the result.
func (a *Attempt) Live(open func() bool) bool {
	at := Now()
	if !open() {
		return false
	}
	a.live = at
	if at-a.written > often {
		a.r.Put(Event{Type: Held, ID: a.id, Key: a.key, Live: a.live})
		a.written = at
	}
	return true
}

// Done records that the call that releases is about to begin, and that it is to keep
// the key for a while if keep is positive.
func (a *Attempt) Done(keep time.Duration) {
	a.r.Put(Event{Type: Done, ID: a.id, Key: a.key, Live: a.live, Keep: keep})
}

// Transfer records that the term is about to be handed over to a session of a process. returned
// records the answer: "", or an error.
func (a *Attempt) Transfer(process, session string) (returned func(err string)) {
	a.r.Put(Event{Type: Transfer, ID: a.id, Key: a.key, Target: process, Session: session})
	return func(err string) { a.r.Put(Event{Type: Transferred, ID: a.id, Key: a.key, Err: err}) }
}

// Released records that the call that releases has returned.
func (a *Attempt) Released(err string) {
	a.r.Put(Event{Type: Released, ID: a.id, Key: a.key, Err: err})
}

// Now is the time of CLOCK_MONOTONIC.
func Now() time.Duration {
	var ts unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_MONOTONIC, &ts); err != nil {
		panic(err) // every kernel has the clock
	}
	return time.Duration(ts.Nano())
}
