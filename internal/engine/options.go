package engine

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"os"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/leasehold-go/leasehold/dsync/driver"
	"github.com/leasehold-go/leasehold/internal/logs"
)

const (
	minTTL           = time.Second
	defaultTTL       = 30 * time.Second
	defaultMargin    = 500 * time.Millisecond
	defaultTurn      = 50 * time.Millisecond
	defaultRetention = 7 * 24 * time.Hour
	maxMeta          = 4 << 10
)

// Options are the settings of a [Session]. dsync.Options explains them. The zero value of each
// field is its default.
type Options struct {
	TTL               time.Duration
	Margin            time.Duration
	Grace             time.Duration
	HeartbeatInterval time.Duration
	PollInterval      time.Duration
	HandOffTime       time.Duration
	MaxHandOffs       int
	Linger            time.Duration
	AsyncUnlock       bool
	AlwaysListen      bool
	Retention         time.Duration
	Name              string
	Host              string
	App               string
	Meta              map[string]string
	Anonymous         bool
	Logger            *slog.Logger
	Hooks             *Hooks
}

// withDefaults returns o with every zero field replaced by its default. An error says what is
// wrong and what would be right.
func (o *Options) withDefaults() (Options, error) {
	var r Options
	if o != nil {
		r = *o
	}
	for _, setting := range []struct {
		name string
		d    time.Duration
	}{
		{"TTL", r.TTL}, {"Margin", r.Margin}, {"Grace", r.Grace}, {"HeartbeatInterval", r.HeartbeatInterval},
		{"PollInterval", r.PollInterval}, {"HandOffTime", r.HandOffTime}, {"Linger", r.Linger}, {"Retention", r.Retention},
	} {
		if setting.d > driver.MaxDuration {
			return r, fmt.Errorf("dsync: %s is %v; it must be at most %v", setting.name, setting.d, driver.MaxDuration)
		}
	}
	if r.TTL == 0 {
		r.TTL = defaultTTL
	}
	if r.TTL < minTTL {
		return r, fmt.Errorf("dsync: TTL is %v; it must be at least %v (0 means %v)", r.TTL, minTTL, defaultTTL)
	}
	if r.TTL%time.Millisecond != 0 {
		return r, fmt.Errorf("dsync: TTL is %v; it must be whole milliseconds", r.TTL)
	}
	if r.Margin == 0 {
		r.Margin = min(defaultMargin, r.TTL/10)
	}
	if r.Grace == 0 {
		r.Grace = r.TTL / 10
	}
	if r.Margin < 0 || r.Grace < 0 {
		return r, fmt.Errorf("dsync: Margin is %v and Grace is %v; both must be positive (0 means the default)", r.Margin, r.Grace)
	}
	if r.HeartbeatInterval == 0 {
		r.HeartbeatInterval = r.TTL / 3
	}
	if r.HeartbeatInterval < 10*time.Millisecond {
		return r, fmt.Errorf("dsync: HeartbeatInterval is %v; it must be at least 10ms (0 means TTL/3)", r.HeartbeatInterval)
	}
	lease, need := holdTime(r.TTL, r.Margin, r.Grace), r.heartbeatTime()
	if need > lease {
		return r, fmt.Errorf("dsync: HeartbeatInterval %v leaves no time for a second heartbeat: 1.1·HeartbeatInterval + an attempt's time (TTL/6, at most 5s) = %v must be at most TTL·0.999 − Margin − Grace = %v; raise TTL (%v) or lower HeartbeatInterval, Margin (%v) or Grace (%v)",
			r.HeartbeatInterval, need, lease, r.TTL, r.Margin, r.Grace)
	}
	if r.PollInterval != 0 && r.PollInterval < 10*time.Millisecond {
		return r, fmt.Errorf("dsync: PollInterval is %v; it must be at least 10ms (0 means the default)", r.PollInterval)
	}
	if r.HandOffTime == 0 {
		r.HandOffTime = defaultTurn
	}
	if r.MaxHandOffs == 0 {
		r.MaxHandOffs = driver.TokenStep - 1
	}
	if r.MaxHandOffs >= driver.TokenStep {
		return r, fmt.Errorf("dsync: MaxHandOffs is %d; it must be at most %d (0 means %[2]d; negative: no hand-offs)", r.MaxHandOffs, driver.TokenStep-1)
	}
	if r.Linger < 0 {
		return r, fmt.Errorf("dsync: Linger is %v; it must not be negative (0: keys do not linger)", r.Linger)
	}
	if r.Retention == 0 {
		r.Retention = defaultRetention
	}
	if r.Retention > 0 && r.Retention < 2*r.TTL {
		return r, fmt.Errorf("dsync: Retention is %v; it must be at least two TTLs (%v), and should be days (negative: never sweep)", r.Retention, 2*r.TTL)
	}
	switch {
	case r.Anonymous && (r.Name != "" || r.Host != "" || r.App != "" || len(r.Meta) > 0):
		return r, errors.New("dsync: Anonymous is set together with Name, Host, App or Meta; set one or the other")
	case !r.Anonymous && r.Host == "":
		r.Host, _ = os.Hostname() // for display only, so New need not fail without it
	}
	if r.Name == "" {
		r.Name = r.Host
	}
	r.Meta = maps.Clone(r.Meta) // the caller may change its map, and each registration sends Meta
	size := len(r.Name) + len(r.Host) + len(r.App)
	for k, v := range r.Meta {
		size += len(k) + len(v)
	}
	if size > maxMeta {
		return r, fmt.Errorf("dsync: Name, Host, App and Meta have %d bytes together; they may have at most %d", size, maxMeta)
	}
	r.Logger = logs.OrDefault(r.Logger)
	if r.Hooks == nil {
		r.Hooks = &Hooks{}
	}
	return r, nil
}

// heartbeatTime returns the longest time from the send of one heartbeat to the answer of the next if
// nothing fails: the longest interval plus one attempt.
func (o *Options) heartbeatTime() time.Duration {
	return o.HeartbeatInterval + o.HeartbeatInterval/10 + o.attemptTime()
}

// holdTime returns how long, by the local clock, a grant of d lasts for its holder, counted from
// the send of the request: d·(1−ρ) − margin − grace. ρ = 1/1000 allows for clocks that run at
// slightly different rates.
func holdTime(d, margin, grace time.Duration) time.Duration {
	return d - d/1000 - margin - grace
}

// Hooks are functions that a [Session] calls when something happens. Any of them may be nil.
// dsync.Hooks explains them.
type Hooks struct {
	Granted        func(GrantedInfo)
	Released       func(ReleasedInfo)
	Lost           func(LostInfo)
	SessionStarted func(id string)
	SessionLost    func(id string, cause error)
	Heartbeat      func(took, left time.Duration, err error)
	StoreError     func(op string, err error)
	ClockJump      func(d time.Duration)
}

// AddHooks registers further hooks, which are called until stop is called or the session ends.
// It is for packages that build on this one.
func (s *Session) AddHooks(h *Hooks) (stop func()) {
	s.listening.Lock()
	defer s.listening.Unlock()
	s.listeners = append(s.listeners[:len(s.listeners):len(s.listeners)], h)
	return func() {
		s.listening.Lock()
		defer s.listening.Unlock()
		s.listeners = slices.DeleteFunc(slices.Clone(s.listeners), func(l *Hooks) bool { return l == h })
	}
}

// each calls f for all hooks.
func (s *Session) each(f func(*Hooks)) {
	s.listening.Lock()
	listeners := s.listeners
	s.listening.Unlock()
	for _, h := range listeners {
		f(h)
	}
}

// A GrantedInfo describes a hold that began.
type GrantedInfo struct {
	Context context.Context // of the call that the hold was granted to
	Key     string
	Kind    driver.Kind
	Token   int64
	Wait    time.Duration // from the call to the grant, including time in the local queue
	Local   bool          // it was handed off within this process, without a command to the store
}

// A ReleasedInfo describes a hold that its holder ended.
type ReleasedInfo struct {
	Key   string
	Kind  driver.Kind
	Token int64
	Held  time.Duration // since the grant; 0 if none of Granted, Released and Lost was set then
}

// A LostInfo describes a hold that ended before it was released.
type LostInfo struct {
	Key       string
	Kind      driver.Kind
	Token     int64
	Cause     error         // ErrLost, wrapped together with the reason
	Held      time.Duration // as in ReleasedInfo
	Voluntary bool          // the holder itself ended the hold with [Hold.WindDown], as when a leader resigns
}

// ofHolds reports whether any of the hooks is about holds.
func (h *Hooks) ofHolds() bool { return h.Granted != nil || h.Released != nil || h.Lost != nil }

// Package dsync exports these errors and explains them.
var (
	ErrLost        = errors.New("dsync: hold lost")
	ErrRevoked     = errors.New("dsync: asked to give the key up")
	ErrClosed      = errors.New("dsync: session closed")
	ErrNotRenewed  = errors.New("dsync: session not renewed")
	ErrOverstayed  = errors.New("dsync: lost hold still in use")
	ErrNotReleased = errors.New("dsync: release refused by the store")
	ErrKey         = errors.New("dsync: invalid key")
)

// maxKey is the greatest length of a key in bytes. It is far above the length of names that
// people use, and far below what any database's index refuses.
const maxKey = 512

// CheckKey returns nil if key can name a lock: if it has 1 to 512 bytes of UTF-8 and no NUL.
// Otherwise it returns an error that matches [ErrKey] and says what is wrong. It is for keys
// that come from outside the program.
func CheckKey(key string) error {
	switch {
	case key == "":
		return fmt.Errorf("%w: it is empty; it must have 1 to %d bytes", ErrKey, maxKey)
	case len(key) > maxKey:
		return fmt.Errorf("%w: it has %d bytes; it may have at most %d", ErrKey, len(key), maxKey)
	case !utf8.ValidString(key):
		return fmt.Errorf("%w: %q is not valid UTF-8", ErrKey, key)
	case strings.ContainsRune(key, 0):
		return fmt.Errorf("%w: %q contains NUL; any other character will do", ErrKey, key)
	}
	return nil
}
