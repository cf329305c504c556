// Package trace records the events that a [core.Core] handles, and replays them. A fresh Core must return the same
// effects for the same events. So a run on a real server can be repeated step by step, and a trace in a bug report
// shows what the session decided, and why.
//
// The first line of a trace has the settings, as JSON. Each further line has an event: the time, the event, and a
// hash of the effects. Values that callers publish, and results of a Once, are left out.
package trace

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"hash/fnv"
	"io"
	"math/rand/v2"
	"reflect"
	"strings"

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
	Effects string          // hash of the effects
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
	w   *json.Encoder
	err error
}

// New returns a Recorder for a Core with the given config. The config's Rand must be made from seed.
func New(w io.Writer, config *core.Config, seed Seed) *Recorder {
	r := &Recorder{w: json.NewEncoder(w)}
	r.err = r.w.Encode(header{config, seed})
	return r
}

// Step records an event and its effects.
func (r *Recorder) Step(at core.Instant, e core.Event, effects []core.Effect) {
	if r.err != nil {
		return
	}
	l := line{At: at, Type: reflect.Indirect(reflect.ValueOf(e)).Type().Name(), Effects: hash(effects)}
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
	case core.Extended:
		l.Err = failureOf(e.Err)
	case *core.Reply:
		l.Err = failureOf(e.Err)
	}
	if l.Event, r.err = json.Marshal(e); r.err == nil {
		r.err = r.w.Encode(l)
	}
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
	case "Extended":
		e := core.Extended{Err: l.Err.error()}
		err := decode(&e)
		return e, err
	case "Extending":
		return decoded[core.Extending](l)
	case "Reply":
		e := &core.Reply{Err: l.Err.error()}
		return e, decode(e)
	case "Ask":
		return new(core.Ask), nil
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
	case "NoticesDue":
		return decoded[core.NoticesDue](l)
	case "Died":
		return decoded[core.Died](l)
	case "Seen":
		return decoded[*core.Seen](l)
	case "NotHeld":
		return decoded[core.NotHeld](l)
	case "Met":
		return decoded[core.Met](l)
	case "Need":
		return core.Need{}, nil
	case "Tick":
		return core.Tick{}, nil
	case "Close":
		return core.Close{}, nil
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

// hash returns a hash of the effects.
func hash(effects []core.Effect) string {
	h := fnv.New64a()
	for _, f := range effects {
		io.WriteString(h, describe(f))
	}
	return fmt.Sprintf("%d %x", len(effects), h.Sum64())
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
	case *core.Deliver:
		return fmt.Sprintln("Deliver", call(f.To), call(f.Hold), f.Claim, f.Token, f.Term, f.Until.UnixNano(), f.Granted, f.Local, f.Err)
	case *core.End:
		return fmt.Sprintln("End", call(f.Hold), f.Asked, f.Cause)
	case *core.Freed:
		return fmt.Sprintln("Freed", call(f.Hold), f.Err, f.Passed)
	case core.Registered:
		return fmt.Sprintln("Registered", f.Session, f.Err)
	case core.SessionLost:
		return fmt.Sprintln("SessionLost", f.Session, f.Holds, f.Cause)
	case core.Beat:
		return fmt.Sprintln("Beat", f.Took, f.Left, f.Err)
	case core.Closed:
		return fmt.Sprintln("Closed", f.Err)
	}
	b, err := json.Marshal(f)
	return fmt.Sprintf("%T %s %v\n", f, b, err)
}

// Replay passes the events of a trace to a fresh Core. It returns how many events had the recorded effects. The error
// names the first event whose effects differ.
func Replay(r io.Reader) (steps int, err error) {
	d := json.NewDecoder(bufio.NewReader(r))
	var h header
	if err := d.Decode(&h); err != nil {
		return 0, fmt.Errorf("trace: header: %w", err)
	}
	h.Config.Rand = h.Seed.Rand()
	c := core.New(h.Config)
	calls := make(map[uint64]*core.Call)
	for ; ; steps++ {
		var l line
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
		effects := c.Step(l.At, e)
		if hash(effects) != l.Effects {
			var got strings.Builder
			for _, f := range effects {
				got.WriteString("\n\t" + strings.TrimSpace(describe(f)))
			}
			return steps, fmt.Errorf("trace: line %d, %s at %v: effects differ from the recorded ones (%s):%s", steps+2, l.Type, l.At, l.Effects, got.String())
		}
	}
}
