// Package trace records the events that a [core.Core] handles, and replays them. During a replay, a fresh Core must
// return the same effects for the same events. So a run on a real server can be repeated step by step, and a trace in a
// bug report shows what the session decided, and why.
//
// The first line of a trace has the settings, as JSON. Each further line has an event: the time, the event, its effects
// in words, and when the next Tick is due. Values that callers publish, and results of a Once, are left out.
//
// The traces in testdata are replayed by the tests of package core, so that no decision of a Core changes unnoticed.
package trace

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"reflect"
	"slices"
	"strings"
	"time"

	"github.com/leasehold-go/leasehold/dsync/driver"
	"github.com/leasehold-go/leasehold/internal/core"
)

// A Seed seeds the random numbers of a Core.
type Seed [2]uint64

// NewSeed returns a random Seed.
func NewSeed() Seed { return Seed{rand.Uint64(), rand.Uint64()} }

// Rand returns a source for a [core.Config].
func (s Seed) Rand() func(n int64) int64 { return rand.New(rand.NewPCG(s[0], s[1])).Int64N }

// A header is the first line of a trace.
type header struct {
	Config *core.Config
	Seed   Seed
}

// A line records one event.
type line struct {
	At      core.Instant
	Type    string
	Call    uint64          `json:",omitempty"` // the Call that the event is about
	Event   json.RawMessage `json:",omitempty"`
	Err     *failure        `json:",omitempty"`
	Effects []string        `json:",omitempty"`
	Next    core.Instant    `json:",omitempty"` // when the next Tick is due; 0: never
}

// A failure records an error in an event.
type failure struct {
	Text string
	Is   []int `json:",omitempty"` // the indexes of the sentinels that the error matches
}

var sentinels = [...]error{
	driver.ErrSessionExpired, driver.ErrSessionExists, driver.ErrMismatch, driver.ErrNotHeld, driver.ErrNotWaiting, driver.ErrRefused,
	core.ErrClosed, core.ErrLost, core.ErrRevoked, core.ErrStalled, core.ErrRecordDeleted,
}

func failureOf(err error) *failure {
	if err == nil {
		return nil
	}
	f := &failure{Text: err.Error()}
	for i, s := range sentinels {
		if errors.Is(err, s) {
			f.Is = append(f.Is, i)
		}
	}
	return f
}

func (f *failure) Error() string { return f.Text }

func (f *failure) Unwrap() (all []error) {
	for _, i := range f.Is {
		all = append(all, sentinels[i])
	}
	return all
}

func (f *failure) error() error {
	if f == nil {
		return nil
	}
	return f
}

// A Recorder writes a trace. It is not safe for concurrent use.
type Recorder struct {
	w   io.Writer
	err error
}

// New returns a Recorder for a Core with the given config. The config's Rand must be made from seed.
func New(w io.Writer, config *core.Config, seed Seed) *Recorder {
	r := &Recorder{w: w}
	r.put(header{config, seed})
	return r
}

// Step records an event, its effects, and when the next Tick is due.
func (r *Recorder) Step(at core.Instant, e core.Event, effects []core.Effect, next core.Instant) {
	if r.err != nil {
		return
	}
	l := line{At: at, Type: reflect.Indirect(reflect.ValueOf(e)).Type().Name(), Effects: describeAll(effects), Next: orNever(next)}
	switch e := e.(type) {
	case *core.Call:
		l.Call = e.Call
	case core.GiveUp:
		l.Call = e.Call.Call
	case *core.Done:
		l.Call = e.Hold.Call
	case core.WindDown:
		l.Call, l.Err = e.Hold.Call, failureOf(e.Cause)
	case core.Progress:
		l.Call = e.Hold.Call
	case *core.Reply:
		l.Err = failureOf(e.Err)
	}
	if l.Event, r.err = brief(e); r.err == nil {
		r.put(l)
	}
}

// put writes a line.
func (r *Recorder) put(v any) {
	b, err := brief(v)
	if r.err = err; err == nil {
		_, r.err = r.w.Write(append(b, '\n'))
	}
}

// brief returns v as JSON, without the fields that have the zero value.
func brief(v any) (json.RawMessage, error) {
	var buffer bytes.Buffer
	encoder := json.NewEncoder(&buffer)
	encoder.SetEscapeHTML(false)
	if err := encoder.Encode(v); err != nil {
		return nil, err
	}
	s := shortener{in: bytes.TrimSpace(buffer.Bytes())}
	s.value()
	return s.out, nil
}

// A shortener copies JSON without spaces from in to out, and leaves out fields that have the zero value.
type shortener struct{ in, out []byte }

// value copies one value.
func (s *shortener) value() {
	switch opening := s.in[0]; opening {
	case '{', '[':
		s.copy(1)
		for s.in[0] != '}' && s.in[0] != ']' {
			begin := len(s.out)
			if opening == '{' {
				s.copy(stringLength(s.in) + 1) // the name and the colon
			}
			s.value()
			if opening == '{' && isZero(s.out[begin:]) {
				s.out = s.out[:begin]
			} else {
				s.out = append(s.out, ',')
			}
			s.in = bytes.TrimPrefix(s.in, []byte(","))
		}
		s.out = bytes.TrimSuffix(s.out, []byte(","))
		s.copy(1)
	case '"':
		s.copy(stringLength(s.in))
	default: // a number, true, false or null
		if end := bytes.IndexAny(s.in, ",}]"); end >= 0 {
			s.copy(end)
		} else {
			s.copy(len(s.in))
		}
	}
}

// copy copies n bytes.
func (s *shortener) copy(n int) {
	s.out = append(s.out, s.in[:n]...)
	s.in = s.in[n:]
}

// stringLength returns the length of the JSON string that b begins with, quotes included.
func stringLength(b []byte) int {
	for i := 1; ; i++ {
		switch b[i] {
		case '\\':
			i++
		case '"':
			return i + 1
		}
	}
}

// isZero reports whether a field, as "Name":value, has the zero value. Release is a pointer: without a field of its own
// it is not nil.
func isZero(field []byte) bool {
	name := stringLength(field)
	switch string(field[name+1:]) {
	case "null", "0", "false", `""`, `"0001-01-01T00:00:00Z"`:
		return true
	case "{}":
		return string(field[:name]) != `"Release"`
	}
	return false
}

// event returns the event that a line records.
func (l *line) event(calls map[uint64]*core.Call) (core.Event, error) {
	decode := func(v any) error { return json.Unmarshal(l.Event, v) }
	switch l.Type {
	case "Call":
		a := new(core.Call)
		calls[l.Call] = a
		return a, decode(a)
	case "GiveUp":
		return core.GiveUp{Call: calls[l.Call]}, nil
	case "Done":
		e := &core.Done{Hold: calls[l.Call]}
		return e, decode(e)
	case "WindDown":
		e := core.WindDown{Hold: calls[l.Call], Cause: l.Err.error()}
		err := decode(&e)
		return e, err
	case "Progress":
		e := core.Progress{Hold: calls[l.Call]}
		err := decode(&e)
		return e, err
	case "Reply":
		e := &core.Reply{Err: l.Err.error()}
		return e, decode(e)
	case "Ask":
		return decoded[*core.Ask](l)
	case "Noticed":
		return decoded[core.Noticed](l)
	case "ListenerBroken":
		return decoded[core.ListenerBroken](l)
	case "ReleaseBy":
		return decoded[core.ReleaseBy](l)
	case "Revoked":
		return decoded[core.Revoked](l)
	case "Observe":
		return decoded[core.Observe](l)
	case "Died":
		return decoded[core.Died](l)
	case "PublishLater":
		return decoded[core.PublishLater](l)
	case "Need":
		return core.Need{}, nil
	case "Tick":
		return core.Tick{}, nil
	case "Close":
		return decoded[core.Close](l)
	case "Hurry":
		return core.Hurry{}, nil
	}
	return nil, fmt.Errorf("trace: no event has the type %q", l.Type)
}

func decoded[E core.Event](l *line) (core.Event, error) {
	var e E
	err := json.Unmarshal(l.Event, &e)
	return e, err
}

// orNever returns the time of the next Tick as a line records it: 0 means never.
func orNever(next core.Instant) core.Instant {
	if next == core.Never {
		return 0
	}
	return next
}

func describeAll(effects []core.Effect) (words []string) {
	for _, f := range effects {
		words = append(words, describe(f))
	}
	return words
}

// describe returns the effect as text.
func describe(f core.Effect) string {
	call := func(a *core.Call) uint64 {
		if a == nil {
			return 0
		}
		return a.Call
	}
	switch f := f.(type) {
	case *core.Send:
		return fmt.Sprintf("Send %d: %v %s", f.ID, f.Op, inWords(f.Command))
	case *core.Deliver:
		if f.Err != nil {
			return fmt.Sprintf("Deliver to %d: error %v", call(f.To), f.Err)
		}
		return fmt.Sprintf("Deliver to %d: hold %d of claim %d, token %d, term %d, until %v, granted at %v, local %v",
			call(f.To), call(f.Hold), f.Claim, f.Token, f.Term, f.Until.UTC(), time.Duration(f.Granted), f.Local)
	case *core.End:
		return fmt.Sprintf("End %d: asked %v, cause %v", call(f.Hold), f.Asked, f.Cause)
	case *core.Freed:
		return fmt.Sprintf("Freed %d: error %v, passed %v", call(f.Hold), f.Err, f.Passed)
	case core.Registered:
		return fmt.Sprintf("Registered %s: error %v", f.Session, f.Err)
	case core.SessionLost:
		return fmt.Sprintf("SessionLost %s: %d holds, cause %v", f.Session, f.Holds, f.Cause)
	case core.Beat:
		return fmt.Sprintf("Beat: took %v, %v left, error %v", f.Took, f.Left, f.Err)
	case core.Answer:
		return fmt.Sprintf("Answer: %v, error %v", f.To.Op, f.Reply.Err)
	case core.Closed:
		return fmt.Sprintf("Closed: error %v", f.Err)
	}
	return reflect.Indirect(reflect.ValueOf(f)).Type().Name() + " " + inWords(f)
}

// inWords returns v as JSON without quotation marks.
func inWords(v any) string {
	b, err := brief(v)
	if err != nil {
		return err.Error()
	}
	return strings.ReplaceAll(string(b), `"`, "")
}

// Replay passes the events of a trace to a fresh Core. It returns how many events had the recorded effects. The error
// names the first event whose effects differ.
func Replay(r io.Reader) (steps int, err error) { return ReplayOn(r, core.New) }

// ReplayOn is like Replay, but fresh makes the Core.
func ReplayOn(r io.Reader, fresh func(*core.Config) *core.Core) (steps int, err error) {
	d := json.NewDecoder(bufio.NewReader(r))
	var h header
	if err := d.Decode(&h); err != nil {
		return 0, fmt.Errorf("trace: header: %w", err)
	}
	h.Config.Rand = h.Seed.Rand()
	c := fresh(h.Config)
	calls := make(map[uint64]*core.Call)
	for ; ; steps++ {
		l := line{Event: json.RawMessage("{}")}
		switch err := d.Decode(&l); {
		case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF): // a killed process may leave half a line
			return steps, nil
		case err != nil:
			return steps, fmt.Errorf("trace: line %d: %w", steps+2, err)
		}
		e, err := l.event(calls)
		if err != nil {
			return steps, fmt.Errorf("trace: line %d: %w", steps+2, err)
		}
		got := line{Effects: describeAll(c.Step(l.At, e)), Next: orNever(c.Next())}
		if !slices.Equal(got.Effects, l.Effects) || got.Next != l.Next {
			return steps, fmt.Errorf("trace: line %d, %s at %v: the effects differ from the recorded ones\nevent: %s\nrecorded:%s\nnow:%s",
				steps+2, l.Type, time.Duration(l.At), l.Event, l.words(), got.words())
		}
	}
}

// words returns the effects, and when the next Tick is due, as indented lines.
func (l *line) words() (s string) {
	for _, f := range l.Effects {
		s += "\n\t" + f
	}
	if l.Next == 0 {
		return s + "\n\tno Tick is due"
	}
	return s + "\n\tthe next Tick is due at " + time.Duration(l.Next).String()
}
