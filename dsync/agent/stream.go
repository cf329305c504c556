package agent

import (
	"encoding/json"
	"net/http"
	"time"

	"github.com/leasehold-go/leasehold/internal/statusjson"
)

// The lines of a response: see the package comment.
type (
	heldLine struct {
		Held    string          `json:"held,omitempty"`
		Elected string          `json:"elected,omitempty"`
		ID      string          `json:"id"`
		Tick    statusjson.Time `json:"tick,omitzero"`
		Term    int64           `json:"term,omitempty"`
		Token   int64           `json:"token"`
		left
		Grace statusjson.Milliseconds `json:"grace_ms"`
	}
	left struct { // alone, a sign of life
		Left statusjson.Milliseconds `json:"left_ms"`
		Unix int64                   `json:"unix_ms,omitzero"`
	}
	lostLine struct {
		Lost  string                  `json:"lost"`
		Grace statusjson.Milliseconds `json:"grace_ms"`
	}
	doneLine struct {
		Done string          `json:"done"`
		Tick statusjson.Time `json:"tick,omitzero"`
		statusjson.Value
	}
	leaderLine struct {
		Leader *leaderView `json:"leader"`
	}
	errorLine struct {
		Error  string                  `json:"error"`
		Holder *statusjson.Participant `json:"holder,omitempty"`
	}
)

// leftOf returns how long the client may rely on c, and the time from which that counts. The time is read first: a freeze
// between the two then makes the client give up too early, and not too late.
func leftOf(c *held) left {
	now := time.Now().UnixMilli()
	return left{statusjson.Milliseconds(min(c.Left(), maxLeft)), now}
}

// A stream writes the lines of one response.
type stream struct {
	w       http.ResponseWriter
	control *http.ResponseController
	timeout time.Duration // of a write
	begun   bool          // a line was sent, and with it the status 200
}

func newStream(w http.ResponseWriter, timeout time.Duration) *stream {
	w.Header().Set("Content-Type", "application/x-ndjson")
	w.Header().Set("X-Accel-Buffering", "no") // for proxies that would buffer the stream
	return &stream{w: w, control: http.NewResponseController(w), timeout: timeout}
}

// send sends one line. Each has a deadline, so that a client that does not read can't block the response.
func (s *stream) send(line any) error {
	b, err := json.Marshal(line)
	if err != nil {
		return err
	}
	s.begun = true
	_ = s.control.SetWriteDeadline(time.Now().Add(s.timeout))
	if _, err := s.w.Write(append(b, '\n')); err != nil {
		return err
	}
	return s.control.Flush()
}
