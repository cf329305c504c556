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
	"github.com/leasehold-go/leasehold/internal/core"
	"github.com/leasehold-go/leasehold/internal/deadlock"
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
	Linger            time.Duration
	AlwaysListen      bool
	Retention         time.Duration
	Name              string
	Host              string
	App               string
	Meta              map[string]string
	HostDir           string
	Anonymous         bool
	Logger            *slog.Logger
	Hooks             *Hooks

	leastMargin, leastGrace time.Duration // Margin and Grace, as set by the caller
}

// withDefaults returns a copy of o with the default in every zero field. The error says what is wrong and what would
// be right.
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
	r.leastMargin, r.leastGrace = r.Margin, r.Grace
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
	lease, need := r.config().Hold(r.TTL), r.heartbeatTime()
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
		r.Host, _ = os.Hostname() // New need not fail without Host, which is only for display
	}
	if r.Name == "" {
		r.Name = r.Host
	}
	r.Meta = maps.Clone(r.Meta) // each registration sends Meta, but the caller may change its map
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

// Options returns the options of s. Fields that were zero have the defaults in force.
func (s *Session) Options() Options {
	o := s.opt
	o.Meta = maps.Clone(o.Meta)
	s.mu.Lock()
	defer s.mu.Unlock()
	o.PollInterval = s.core.PollTime(1)
	return o
}

// heartbeatTime returns the longest time that can pass, if nothing fails, from sending one heartbeat to receiving the
// reply to the next: the longest interval plus the time of an attempt.
func (o *Options) heartbeatTime() time.Duration {
	return o.HeartbeatInterval + o.HeartbeatInterval/10 + o.attemptTime()
}

// Hooks are functions that a [Session] calls when something happens. Any of them may be nil.
// dsync.Hooks explains them.
type Hooks struct {
	Granted        func(HoldInfo)
	Released       func(HoldInfo)
	Lost           func(HoldInfo)
	SessionStarted func(id string)
	SessionLost    func(id string, cause error)
	Heartbeat      func(took, left time.Duration, err error)
	StoreError     func(op string, err error)
	ClockJump      func(d time.Duration)
	Deadlock       func(DeadlockInfo)
}

// AddHooks registers further hooks, which are called until stop is called or the session ends. It is for packages that
// are built on this package.
func (s *Session) AddHooks(h *Hooks) (stop func()) {
	if h == nil {
		return func() {}
	}
	s.changeHooks(func(all []*Hooks) []*Hooks { return append(all, h) })
	return func() {
		s.changeHooks(func(all []*Hooks) []*Hooks { return slices.DeleteFunc(all, func(l *Hooks) bool { return l == h }) })
	}
}

func (s *Session) changeHooks(f func([]*Hooks) []*Hooks) {
	for {
		before := s.all.Load()
		after := f(slices.Clone(*before))
		if s.all.CompareAndSwap(before, &after) {
			return
		}
	}
}

// each calls f for every set of hooks.
func (s *Session) each(f func(*Hooks)) {
	for _, h := range *s.all.Load() {
		f(h)
	}
}

// A HoldInfo describes a hold to a hook.
type HoldInfo struct {
	Key   string
	Kind  driver.Kind
	Token int64

	// For Granted:
	Context context.Context // context of the call that acquired the hold
	Wait    time.Duration   // time from the call to the grant, including time in the local queue
	Local   bool            // the key was handed off within this process, without a command to the store

	// For Released and Lost:
	Held time.Duration // since the grant

	// For Lost:
	Cause    error // ErrLost, wrapped together with the reason
	ByHolder bool  // the holder called [Hold.WindDown], as a leader does to resign, or the lease ran out
}

// A DeadlockInfo describes a deadlock: Members[i] holds Keys[i] and waits for Keys[i+1]. The last member waits for
// Keys[0].
type DeadlockInfo struct {
	Members []string
	Keys    []string
}

// String describes what each member holds and waits for.
func (d DeadlockInfo) String() string { return deadlock.Describe(d.Members, d.Keys) }

// Package dsync exports these errors and documents them.
var (
	ErrLost      = core.ErrLost
	ErrRevoked   = core.ErrRevoked
	ErrStalled   = core.ErrStalled
	ErrLeaseOver = core.ErrLeaseOver

	ErrRecordDeleted = core.ErrRecordDeleted

	ErrClosed      = core.ErrClosed
	ErrNotRenewed  = core.ErrNotRenewed
	ErrStillInUse  = errors.New("dsync: lost hold still in use")
	ErrNotReleased = core.ErrNotReleased

	ErrNotUnregistered = core.ErrNotUnregistered
	ErrInvalidKey      = errors.New("dsync: invalid key")
)

// A NotReleasedError is returned by Close.
type NotReleasedError = core.NotReleasedError

// maxKey is the greatest length of a key in bytes. It is far more than the names that people use need, and far less
// than any database allows in an index.
const maxKey = 512

// CheckKey returns nil if key can name a lock, which it can if it has 1 to 512 bytes of UTF-8 without NUL. Otherwise
// it returns an error that matches [ErrInvalidKey] and says what is wrong. Use it for keys that come from outside the
// program.
func CheckKey(key string) error {
	switch {
	case key == "":
		return fmt.Errorf("%w: it is empty; it must have 1 to %d bytes", ErrInvalidKey, maxKey)
	case len(key) > maxKey:
		return fmt.Errorf("%w: it has %d bytes; it may have at most %d", ErrInvalidKey, len(key), maxKey)
	case !utf8.ValidString(key):
		return fmt.Errorf("%w: %q is not valid UTF-8", ErrInvalidKey, key)
	case strings.ContainsRune(key, 0):
		return fmt.Errorf("%w: %q contains NUL; any other character will do", ErrInvalidKey, key)
	}
	return nil
}
