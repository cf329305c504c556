package dsync

import (
	"log/slog"
	"time"

	"github.com/leasehold-go/leasehold/internal/engine"
)

// Options are the settings of a [Session]. The zero value of each field is its default; a nil *Options means the
// defaults. No duration may be longer than 50 years of 365 days.
type Options struct {
	// TTL is how long a session lives without a heartbeat, by the store's clock: the locks of a crashed process
	// become free that long after its last heartbeat. Default 30 s; at least 1 s, in whole milliseconds. A command
	// may last a sixth of the TTL, at most 5 s. Locks survive a fail-over of the store that takes less than TTL·0.999
	// − Margin − Grace − 1.1·HeartbeatInterval, about half a TTL.
	TTL time.Duration

	// Margin allows for clock errors: a hold ends by the local clock at least Margin + Grace before the store may
	// grant the key to anyone else. It must exceed the sum of these errors within one TTL: steps of the store's
	// clock, clock differences between possible primaries, and late timers. Default 500 ms or TTL/10, whichever is
	// smaller.
	Margin time.Duration

	// Grace is the time that a holder has to stop after its Lost channel closed. Default TTL/10.
	Grace time.Duration

	// HeartbeatInterval is the time between two heartbeats, jittered by ±10 %. Default TTL/3. If one fails, there
	// must be time for another: 1.1·HeartbeatInterval + min(TTL/6, 5 s) ≤ TTL·0.999 − Margin − Grace.
	HeartbeatInterval time.Duration

	// PollInterval is how often a waiter asks the store even without a notice, jittered by ±20 %. Default: the TTL,
	// but at least 5 s and at most 30 s; 250 ms if the store cannot notify. At least 10 ms.
	PollInterval time.Duration

	// HandOffTime is how long after the store's grant this process's goroutines may hand off an exclusive hold to
	// each other while other processes wait. A hand-off takes no command. Default 50 ms; negative: the store grants
	// every hold, as for a [Semaphore].
	HandOffTime time.Duration

	// Linger is how long this process keeps a key after Unlock, so that the next Lock takes no command. If another
	// process waits and the store can notify, the key is released at once. Default 0. Keys of a [Semaphore] never
	// linger.
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

// options returns the options of a session, with every default filled in. hooks are the caller's.
func options(e engine.Options, hooks *Hooks) Options {
	return Options{
		TTL:               e.TTL,
		Margin:            e.Margin,
		Grace:             e.Grace,
		HeartbeatInterval: e.HeartbeatInterval,
		PollInterval:      e.PollInterval,
		HandOffTime:       e.HandOffTime,
		Linger:            e.Linger,
		AlwaysListen:      e.AlwaysListen,
		Retention:         e.Retention,
		Name:              e.Name,
		Host:              e.Host,
		App:               e.App,
		Meta:              e.Meta,
		HostDir:           e.HostDir,
		Anonymous:         e.Anonymous,
		Logger:            e.Logger,
		Hooks:             hooks,
	}
}

// engine returns o as the engine's options. The engine checks them and fills in the defaults.
func (o *Options) engine() *engine.Options {
	if o == nil {
		return nil
	}
	return &engine.Options{
		TTL:               o.TTL,
		Margin:            o.Margin,
		Grace:             o.Grace,
		HeartbeatInterval: o.HeartbeatInterval,
		PollInterval:      o.PollInterval,
		HandOffTime:       o.HandOffTime,
		Linger:            o.Linger,
		AlwaysListen:      o.AlwaysListen,
		Retention:         o.Retention,
		Name:              o.Name,
		Host:              o.Host,
		App:               o.App,
		Meta:              o.Meta,
		HostDir:           o.HostDir,
		Anonymous:         o.Anonymous,
		Logger:            o.Logger,
		Hooks:             o.Hooks.engine(),
	}
}
