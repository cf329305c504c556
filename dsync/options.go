package dsync

import (
	"log/slog"
	"time"

	"github.com/leasehold-go/leasehold/dsync/driver"
	"github.com/leasehold-go/leasehold/internal/engine"
)

// MaxDuration is the longest duration that this package takes, in [Options] and elsewhere: 50 years
// of 365 days (438,000 hours).
const MaxDuration = driver.MaxDuration

// Options are the settings of a [Session]. The zero value of each field is its
// default; a nil *Options is all defaults. No duration may be longer than [MaxDuration].
type Options struct {
	// TTL is how long a session lives without a heartbeat, by the store's clock. The locks
	// of a crashed process become free that long after its last heartbeat. Default 30 s; at
	// least 1 s, in whole milliseconds. A command may take a sixth of it, and at most 5 s: if the
	// store answers more slowly, no command succeeds. Locks survive a fail-over of the store that takes
	// less than TTL·0.999 − Margin − Grace − 1.1·HeartbeatInterval, about half a TTL.
	TTL time.Duration

	// Margin pays for clocks: a hold ends by the local clock at least Margin + Grace
	// before the store may grant the key to anyone else. It must be greater than the sum,
	// within one TTL, of steps of the store's clock, of the spread between the clocks of
	// servers that can become primary, and of the lateness of timers. Default 500 ms or
	// TTL/10, whichever is smaller.
	Margin time.Duration

	// Grace is the time that a holder has to stop after its Lost channel closed. Default
	// TTL/10.
	Grace time.Duration

	// HeartbeatInterval is the time between two heartbeats, jittered by ±10 %. Default
	// TTL/3. After a heartbeat that fails there must be time for another:
	// 1.1·HeartbeatInterval + min(TTL/6, 5 s) ≤ TTL·0.999 − Margin − Grace.
	HeartbeatInterval time.Duration

	// PollInterval is how often a waiter asks the store again although no notice came,
	// jittered by ±20 %. If it is set, or the store cannot notify, waiters that are not
	// first in the queue ask up to four times less often. Default: the TTL, but at least 5 s
	// and at most 30 s; 250 ms if the store cannot notify. At least 10 ms.
	PollInterval time.Duration

	// HandOffTime is how long goroutines of this process may hand off an exclusive hold to
	// each other, counted from the store's grant, while other processes may be waiting. A
	// hand-off takes no command, and each holder has a fencing token of its own; there are at
	// most 1,023 after each grant. HandOffTime also limits how long new readers here may share
	// a hold: see [RWMutex]. Holds of a [Semaphore] are never handed off. Default: 50 ms.
	// Negative: the store grants every hold.
	HandOffTime time.Duration

	// Linger is how long this process keeps a key after Unlock, so that the next Lock
	// takes no command. If another process waits for the key it is released at once,
	// within a round trip or two where the store notifies; elsewhere after Linger. Until
	// then a try in another process finds the key held. A session with Linger keeps a
	// listener open. Default 0: keys do not linger. Keys of a [Semaphore] never do.
	Linger time.Duration

	// AlwaysListen keeps a listener open for as long as the session lives, so that the
	// first wait need not open one. A listener costs the store a connection, and a small
	// command or two every ten seconds. Default false: the session listens while it waits
	// or observes, and once it has held something for a second.
	AlwaysListen bool

	// Retention is how long the store keeps idle records. It must be greater, by a second or
	// more, than any step back of the store's clock, because fencing tokens start again from
	// that clock.
	// Records are deleted at most a quarter of it later. Default 7 days; negative: this
	// session never deletes any.
	Retention time.Duration

	// Name is the identity that others see when they ask who holds a lock or leads: a
	// pod's name, for example. It grants nothing and need not be unique. Default: Host.
	Name string

	// Host is shown like Name. Default: the host's name.
	Host string

	// App is the application's name and version, shown like Host.
	App string

	// Meta is free-form and shown like Host. Name, Host, App and Meta may have 4 KiB
	// together, because some stores log them with every heartbeat.
	Meta map[string]string

	// HostDir is a folder that the processes of this machine share, on a local disk or in
	// memory: /run/invoices, or the emptyDir of a pod. A process that waits for one that has
	// died, and has the same HostDir, expires its session a Margin after it learns of that. All
	// others wait for the TTL, as without HostDir.
	//
	// The kernel says who is dead: each session keeps a locked file there. So what a process
	// has left to its children must end with it, and it must not be checkpointed and restored
	// (CRIU). The folder must exist; [New] tries it out. Linux only. Default "": none.
	HostDir string

	// Anonymous shows nothing: Name, Host, App and Meta must be empty, and the process id
	// is not shown either.
	Anonymous bool

	// Logger gets what an operator would want to know. Default nil: warnings and errors go to
	// slog.Default(). For silence, set slog.New(slog.DiscardHandler).
	Logger *slog.Logger

	// Hooks are called when something happens. Nil: none.
	Hooks *Hooks
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
