package dsync

import (
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"os"
	"runtime/debug"
	"sync"
	"time"

	"github.com/leasehold-go/leasehold/dsync/driver"
	"github.com/leasehold-go/leasehold/internal/core"
	"github.com/leasehold-go/leasehold/internal/engine"
	"github.com/leasehold-go/leasehold/internal/logs"
)

const (
	minTTL             = time.Second
	defaultTTL         = 30 * time.Second
	defaultMargin      = 500 * time.Millisecond
	defaultHandOffTime = 50 * time.Millisecond
	defaultRetention   = 7 * 24 * time.Hour
	maxMeta            = 4 << 10
	firstBackoff       = 20 * time.Millisecond
	maxBackoff         = 2500 * time.Millisecond
)

// Options are the settings of a [Session]. The zero value of each field is its default; a nil *Options means the
// defaults. No duration may be longer than 50 years of 365 days.
type Options struct {
	// TTL is how long a session lives without a heartbeat, by the store's clock: the locks of a crashed process
	// become free that long after its last heartbeat. Default 30 s; at least 1 s, in whole milliseconds. A command
	// may last a sixth of the TTL, at most 5 s. Locks survive a fail-over of the store that takes less than TTL·0.999
	// − Margin − Grace − 1.1·HeartbeatInterval, about half a TTL.
	TTL time.Duration

	// Margin allows for clock errors: a hold that is not renewed ends, by the local clock, at least Margin + Grace
	// before the store may grant the key to anyone else. It must exceed the sum of these errors within one TTL: steps
	// of the store's clock, clock differences between possible primaries, and late timers. Default 500 ms or TTL/10,
	// whichever is smaller.
	Margin time.Duration

	// Grace is the time that a holder has to stop after its Lost channel closed. Default TTL/10.
	Grace time.Duration

	// HeartbeatInterval is the time between two heartbeats, jittered by ±10 %. Default TTL/3. If one fails, there
	// must be time for another: 1.1·HeartbeatInterval + min(TTL/6, 5 s) ≤ TTL·0.999 − Margin − Grace.
	HeartbeatInterval time.Duration

	// PollInterval is how often a waiter asks the store even without a notice, jittered by ±20 %. Default: the TTL,
	// but at least 5 s and at most 30 s; 250 ms if the store cannot notify. At least 10 ms.
	PollInterval time.Duration

	// HandOffTime is how long, after the store's grant, this process's goroutines may hand off an exclusive hold to
	// each other while other processes wait. A hand-off takes no command. Default 50 ms; negative: the store grants
	// every hold, as for a [Semaphore].
	HandOffTime time.Duration

	// Linger is how long this process keeps a key after Unlock, so that the next Lock takes no command. If another
	// process waits and the store can notify, the key is released at once. Default 0. Only exclusive holds linger,
	// except leases and units of a [Semaphore].
	Linger time.Duration

	// AlwaysListen keeps a listener open for as long as the session lives, so that the first wait need not
	// open one. It costs the store a connection. Default false: the session listens while it waits or holds.
	AlwaysListen bool

	// Retention is how long the store keeps idle records; it may keep them up to a quarter longer. It must exceed, by a
	// second or more, any step back of the store's clock, because fencing tokens start again from that clock.
	// Default 7 days; negative: this session never deletes any.
	Retention time.Duration

	// Name is the identity that others see: a pod's name, for example. It need not be unique. Default: Host.
	Name string

	Host string            // shown like Name; default: the host's name
	App  string            // the application's name and version, shown like Name
	Meta map[string]string // shown like Name; together with Name, Host and App at most 4 KiB

	// HostDir is a folder on a local disk or in memory that the processes of this machine share, such as the emptyDir
	// of a pod. If a process dies, waiters with the same HostDir expire its session a Margin after the kernel reports
	// its death; all others wait for the TTL.
	//
	// Each process keeps a locked file there. So a process's children must end with it, and it must not be
	// checkpointed and restored (CRIU). The folder must exist. Linux only.
	HostDir string

	// Anonymous hides the process id. Name, Host, App and Meta must be empty.
	Anonymous bool

	// Logger gets what an operator would want to know. Default: slog.Default() gets warnings and errors.
	Logger *slog.Logger

	Hooks *Hooks // called when something happens; nil: none
}

// withDefaults returns a copy of o with the defaults filled in, except that of PollInterval, which depends on whether
// the store can notify.
func (o *Options) withDefaults() (r Options, err error) {
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
	c := r.config(o)
	if lease, need := c.Hold(r.TTL), c.Silence(); need > lease {
		return r, fmt.Errorf("dsync: HeartbeatInterval is %v, so a renewal can take %v, but the lease lasts only %v; raise TTL, or lower HeartbeatInterval, Margin or Grace",
			r.HeartbeatInterval, need, lease)
	}
	if r.PollInterval != 0 && r.PollInterval < 10*time.Millisecond {
		return r, fmt.Errorf("dsync: PollInterval is %v; it must be at least 10ms (0 means the default)", r.PollInterval)
	}
	if r.HandOffTime == 0 {
		r.HandOffTime = defaultHandOffTime
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
	return r, nil
}

// config returns the settings of the session's Core. o has the defaults filled in. asked has only what the caller
// set, and may be nil.
func (o *Options) config(asked *Options) core.Config {
	c := core.Config{
		TTL: o.TTL, Margin: o.Margin, Grace: o.Grace, Heartbeat: o.HeartbeatInterval, Attempt: min(o.TTL/6, engine.MaxAttempt),
		Poll: o.PollInterval, HandOff: o.HandOffTime, Linger: o.Linger, Retention: o.Retention,
		Retry: firstBackoff, Backoff: min(o.TTL/12, maxBackoff), AlwaysListen: o.AlwaysListen,
	}
	if asked != nil {
		c.LeastMargin, c.LeastGrace = asked.Margin, asked.Grace
	}
	return c
}

// member returns how the session appears to others.
func (o *Options) member() driver.Member {
	m := driver.Member{
		TTL: o.TTL, Name: o.Name, Host: o.Host, PID: os.Getpid(), App: o.App, Meta: o.Meta,
		Settings: driver.Settings{
			Version: version(), Heartbeat: o.HeartbeatInterval, Poll: o.PollInterval, Margin: o.Margin, Grace: o.Grace,
		},
	}
	if o.Anonymous {
		m.PID = 0
	}
	return m
}

// version returns the version of this module in the running program.
var version = sync.OnceValue(func() string {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return ""
	}
	for _, m := range append(info.Deps, &info.Main) {
		if m.Path == "github.com/leasehold-go/leasehold" {
			return m.Version
		}
	}
	return ""
})
