// Package statusjson defines the JSON form of the status of keys and sessions, for the command leasehold and the
// page of dsync/dsynchttp. Names are in snake_case, and names of durations end in _ms, their unit.
package statusjson

import (
	"fmt"
	"strconv"
	"time"
	"unicode/utf8"

	"github.com/leasehold-go/leasehold/dsync/admin"
	"github.com/leasehold-go/leasehold/dsync/driver"
	"github.com/leasehold-go/leasehold/internal/rfc3339"
)

// A Status is the JSON form of an [admin.Status]. P is [Participant], or a type that embeds it.
type Status[P any] struct {
	Key    string      `json:"key"`
	Now    Time        `json:"now"`
	Kind   driver.Kind `json:"kind"`
	Held   bool        `json:"held"`
	Sealed bool        `json:"sealed"`
	Tick   *Time       `json:"last_tick,omitempty"`
	Limit  int64       `json:"limit"`
	Token  int64       `json:"token"`
	Term   int64       `json:"term"`
	Value
	Holders []P `json:"holders"`
	Waiting int `json:"waiting"`
	Queue   []P `json:"queue"`
}

// NewStatus converts st. It calls participant for each holder, with queued false, and for each waiter in the
// queue, with queued true.
func NewStatus[P any](st admin.Status, participant func(p admin.Participant, queued bool) P) Status[P] {
	s := Status[P]{
		Key: st.Key, Now: Time{st.Now}, Kind: st.Kind, Held: st.Held(), Sealed: st.Sealed,
		Limit: st.Limit, Token: st.Token, Term: st.Term, Value: NewValue(st.Value), Waiting: st.Waiting,
		Holders: []P{}, Queue: []P{},
	}
	if !st.LastTick.IsZero() {
		s.Tick = &Time{st.LastTick}
	}
	for _, h := range st.Holders {
		s.Holders = append(s.Holders, participant(h, false))
	}
	for _, w := range st.Queue {
		s.Queue = append(s.Queue, participant(w, true))
	}
	return s
}

// A Value is a published value: Text if it is UTF-8, otherwise Base64. Both are nil if there is no value.
type Value struct {
	Text   *string `json:"value,omitempty"`
	Base64 []byte  `json:"value_base64,omitempty"`
}

// NewValue returns the JSON form of a published value.
func NewValue(value []byte) (v Value) {
	switch {
	case value == nil:
	case utf8.Valid(value):
		text := string(value)
		v.Text = &text
	default:
		v.Base64 = value
	}
	return v
}

// A Process is the JSON form of what a process has published about itself.
type Process struct {
	Session string            `json:"session"`
	Name    string            `json:"name"`
	Host    string            `json:"host"`
	PID     int               `json:"pid"`
	App     string            `json:"app"`
	Meta    map[string]string `json:"meta,omitempty"`
}

// A Participant is a holder of a key, or a waiter in its queue.
type Participant struct {
	Claim string `json:"claim"`
	Process
	Weight int64        `json:"weight"`
	Seen   Time         `json:"seen,omitzero"`
	TTL    Milliseconds `json:"ttl_ms,omitzero"`
	*Hold               // nil for a waiter
}

// A Hold has the fields that a holder has and a waiter lacks.
type Hold struct {
	Token   int64        `json:"token"`
	Since   Time         `json:"since"`
	For     Milliseconds `json:"for_ms"`
	Until   Time         `json:"until,omitzero"`
	Left    Milliseconds `json:"left_ms"`
	Renewed bool         `json:"renewed"`
	Lapsed  bool         `json:"lapsed"`
	Yields  bool         `json:"yields"`
}

// NewParticipant returns the JSON form of p at the time now of the store's clock.
func NewParticipant(p admin.Participant, queued bool, now time.Time) Participant {
	r := Participant{
		Claim: p.Claim, Process: Process{p.Session, p.Name, p.Host, p.PID, p.App, p.Meta},
		Weight: p.Weight, Seen: Time{p.Seen}, TTL: Milliseconds(p.TTL),
	}
	if !queued {
		r.Hold = &Hold{
			Token: p.Token, Since: Time{p.Since}, For: Milliseconds(now.Sub(p.Since)),
			Until: Time{p.Until}, Renewed: p.Renewed, Lapsed: p.Lapsed, Yields: p.Yields,
		}
		if !p.Until.IsZero() {
			r.Left = Milliseconds(max(0, p.Until.Sub(now)))
		}
	}
	return r
}

// A Member is a session. Its role is set only if the session is listed as a participant of an election.
type Member struct {
	Process
	Role string       `json:"role,omitempty"` // its role in the election
	Seen Time         `json:"seen"`           // its last heartbeat
	TTL  Milliseconds `json:"ttl_ms,omitzero"`
	Settings
}

// NewProcess returns the JSON form of a session's process.
func NewProcess(m driver.Member) Process {
	return Process{Session: m.ID, Name: m.Name, Host: m.Host, PID: m.PID, App: m.App, Meta: m.Meta}
}

// NewMember returns the JSON form of a session.
func NewMember(m driver.Member) Member {
	s := m.Settings
	return Member{
		Process: NewProcess(m), Seen: Time{m.LastHeartbeat}, TTL: Milliseconds(m.TTL),
		Settings: Settings{s.Version, Milliseconds(s.Heartbeat), Milliseconds(s.Poll), Milliseconds(s.Margin), Milliseconds(s.Grace)},
	}
}

// Settings is the JSON form of a [driver.Settings].
type Settings struct {
	Version   string       `json:"version,omitempty"`
	Heartbeat Milliseconds `json:"heartbeat_ms,omitzero"`
	Poll      Milliseconds `json:"poll_ms,omitzero"`
	Margin    Milliseconds `json:"margin_ms,omitzero"`
	Grace     Milliseconds `json:"grace_ms,omitzero"`
}

// Options returns the durations as text for people, or "" if there are none.
func (s Settings) Options() string {
	if s.Heartbeat == 0 {
		return ""
	}
	poll := "by default"
	if s.Poll > 0 {
		poll = s.Poll.String()
	}
	return fmt.Sprintf("heartbeat %v, poll %s, margin %v, grace %v", s.Heartbeat, poll, s.Margin, s.Grace)
}

// A Time is a time in UTC. Its JSON form is RFC 3339 with milliseconds.
type Time struct{ time.Time }

// String returns the time as in JSON, or "" for the zero time.
func (t Time) String() string {
	if t.IsZero() {
		return ""
	}
	return rfc3339.Millis(t.Time)
}

// MarshalJSON implements [encoding/json.Marshaler].
func (t Time) MarshalJSON() ([]byte, error) { return strconv.AppendQuote(nil, t.String()), nil }

// Milliseconds is a duration. Its JSON form is a number of milliseconds, with microsecond resolution.
type Milliseconds time.Duration

// MarshalJSON implements [encoding/json.Marshaler].
func (d Milliseconds) MarshalJSON() ([]byte, error) {
	us := time.Duration(d).Round(time.Microsecond).Microseconds()
	return strconv.AppendFloat(nil, float64(us)/1000, 'f', -1, 64), nil
}

// String returns the duration as text for people, in one unit.
func (d Milliseconds) String() string {
	switch t := time.Duration(d); {
	case t < 0:
		return "0 s"
	case t < 10*time.Second && t%time.Second != 0:
		return fmt.Sprintf("%.1f s", t.Seconds())
	case t < 2*time.Minute:
		return fmt.Sprintf("%d s", t/time.Second)
	case t < 2*time.Hour:
		return fmt.Sprintf("%d min", t/time.Minute)
	case t < 48*time.Hour:
		return fmt.Sprintf("%d h", t/time.Hour)
	default:
		return fmt.Sprintf("%d d", t/(24*time.Hour))
	}
}
