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

// The names of the files that [Read] reads end with suffix.
const suffix = ".history.jsonl"

// A Recorder writes the events of one process. Its methods may be called concurrently.
type Recorder struct {
	process string

	mu   sync.Mutex
	file *os.File
	ids  int
}

// NewRecorder returns a recorder that writes to a file in dir. The name of the process must be
// unique.
func NewRecorder(dir, process string) (*Recorder, error) {
	f, err := os.OpenFile(filepath.Join(dir, process+suffix), os.O_CREATE|os.O_EXCL|os.O_WRONLY|os.O_APPEND, 0o644)
	if err != nil {
		return nil, err
	}
	return &Recorder{process: process, file: f}, nil
}

// Close ends the recording.
func (r *Recorder) Close() error { return r.file.Close() }

// Put writes an event. It fills in Process, and At if that is zero.
func (r *Recorder) Put(e Event) {
	if e.At == 0 {
		e.At = Now()
	}
	e.Process = r.process
	line, err := json.Marshal(e)
	if err != nil {
		panic(err) // can't happen: every Event can be marshalled
	}
	// When Write returns, the kernel has the data, so kill -9 loses nothing.
	if _, err := r.file.Write(append(line, '\n')); err != nil {
		panic(fmt.Sprintf("history: %v", err))
	}
}

// begin gives e a new ID, which later events share, and writes e.
func (r *Recorder) begin(e Event) int {
	r.mu.Lock()
	r.ids++
	e.ID = r.ids
	r.mu.Unlock()
	r.Put(e)
	return e.ID
}

// Request records that a call is about to request a hold. e contains Key and the fields of Request.
func (r *Recorder) Request(e Event) *Attempt {
	e.Type = Request
	return &Attempt{r: r, id: r.begin(e), key: e.Key}
}

// Fault records that a fault of target is about to begin. target is a process, or "" for
// the server. heal records the fault's end.
func (r *Recorder) Fault(what, target string) (heal func()) {
	id := r.begin(Event{Type: Fault, What: what, Target: target})
	return func() { r.Put(Event{Type: Healed, ID: id, What: what, Target: target}) }
}

// Write records that a write with a token is about to begin. returned records the answer: "",
// Fenced, or an error.
func (r *Recorder) Write(key string, token int64) (returned func(err string)) {
	id := r.begin(Event{Type: Write, Key: key, Token: token})
	return func(err string) { r.Put(Event{Type: Wrote, ID: id, Key: key, Token: token, Err: err}) }
}

// An Attempt records one call that requests a hold, and the hold that it may get. Only one
// goroutine may use it.
type Attempt struct {
	r       *Recorder
	id      int
	key     string
	live    time.Duration
	written time.Duration // the last value of live that was written
}

// Refused records that the call has returned without a hold.
func (a *Attempt) Refused(err string) {
	a.r.Put(Event{Type: Refused, ID: a.id, Key: a.key, Err: err})
}

// Granted records that the call has returned with a hold. It calls token for the fencing token, which it returns. If
// term is not nil, it calls term for the term's number.
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

// The constant often is the shortest time between two events that Live writes. If the process is killed, the
// last of these events is the last evidence that it had the hold.
const often = 250 * time.Millisecond

// Live reports whether the hold still exists, that is, whether open returns true. From time to time it records that the
// hold exists.
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

// Done records that the hold's release is about to begin. If keep is positive, the release keeps the key locked for
// that long.
func (a *Attempt) Done(keep time.Duration) {
	a.r.Put(Event{Type: Done, ID: a.id, Key: a.key, Live: a.live, Keep: keep})
}

// Transfer records that the term is about to be transferred to a session of the given process.
// returned records the answer: "", or an error.
func (a *Attempt) Transfer(process, session string) (returned func(err string)) {
	a.r.Put(Event{Type: Transfer, ID: a.id, Key: a.key, Target: process, Session: session})
	return func(err string) { a.r.Put(Event{Type: Transferred, ID: a.id, Key: a.key, Err: err}) }
}

// Released records that the call for the hold's release has returned.
func (a *Attempt) Released(err string) {
	a.r.Put(Event{Type: Released, ID: a.id, Key: a.key, Err: err})
}

// Now returns the time of CLOCK_MONOTONIC.
func Now() time.Duration {
	var ts unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_MONOTONIC, &ts); err != nil {
		panic(err) // can't happen: every kernel has this clock
	}
	return time.Duration(ts.Nano())
}
