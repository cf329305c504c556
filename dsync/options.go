package dsync

import (
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"os"
	"time"
)

const (
	minTTL           = time.Second
	defaultTTL       = 30 * time.Second
	defaultMargin    = 500 * time.Millisecond
	defaultTurn      = 50 * time.Millisecond
	defaultRetention = 7 * 24 * time.Hour
	maxMeta          = 4 << 10
)

// Options are the settings of a [Session]. The zero value of each field is its
// default; a nil *Options is all defaults.
type Options struct {
	// TTL is how long after its last heartbeat, by the store's clock, a session
	// may be declared dead: the time after which the locks of a crashed process
	// can be taken. Default 30 s, at least 1 s, whole milliseconds. Locks survive a
	// fail-over of the store that is over within TTL·0.999 − Margin − Grace −
	// 1.1·Heartbeat, which is about half of it.
	TTL time.Duration

	// Margin pays for clocks: a hold ends by the local clock at least Margin +
	// Grace before the store may grant it to anyone else. It must exceed, strictly,
	// what one TTL can bring of steps of the store's clock, of spread between the
	// clocks of servers that can become primary, and of late timers. Default
	// 500 ms or TTL/10, whichever is smaller.
	Margin time.Duration

	// Grace is the holder's time to stop after it was told. Default TTL/10.
	Grace time.Duration

	// Heartbeat is the period of heartbeats, jittered by ±10 %. Default TTL/3. A
	// heartbeat that fails must leave time for another before the lease ends:
	// 1.1·Heartbeat + TTL/6 ≤ TTL·0.999 − Margin − Grace.
	Heartbeat time.Duration

	// Poll is how often a waiter asks the store again when nothing was pushed to
	// it, jittered by ±20 %; a waiter that is not first in line up to four times
	// as seldom. Default 250 ms where the store can't push, 5 s where it can.
	// At least 10 ms.
	Poll time.Duration

	// Turn is for how long, since the store granted an exclusive hold to this
	// process, the goroutines here may hand it on to each other while other
	// processes may be waiting; HandOvers is how often. Each gets a token of its
	// own, and a hand-over takes no command. For Turn, too, readers here may share a
	// hold: see [RWMutex]. A [Semaphore] is not handed on. Default 50 ms and 1,023,
	// which is the most; negative: every hold is granted by the store.
	Turn      time.Duration
	HandOvers int

	// Linger is for how long a key that was unlocked stays with this process, so
	// that locking it again takes no command. Others that wait for it get it before
	// that, within a round trip or two where the store pushes; where it can't, the
	// key is kept for that long at a time, and as long in all while it is in use. A
	// try elsewhere finds the key held as long as it lingers. A session with it
	// keeps a watch open. Default 0: no key lingers; that of a [Semaphore] never does.
	Linger time.Duration

	// Watch keeps a watch open as long as the session lives, which spares the first
	// wait the time to open one. A watch costs the store something: a connection, and
	// a look at each write. Default false.
	Watch bool

	// Retention is how long the store keeps records that are idle. It must exceed
	// any step back of the store's clock (fencing tokens start again from the
	// clock). They are deleted at most a quarter of it later. Default 7 days; negative:
	// this session never sweeps.
	Retention time.Duration

	// Name is the identity that is shown to people who ask who holds a lock or
	// leads: a pod's name, say. It has no authority and need not be unique. Default:
	// Host.
	Name string

	// Host is shown like Name. Default: the host's name.
	Host string

	// App is the application's name and version, shown like Host.
	App string

	// Meta is free-form, shown like Host. At most 4 KiB in all, since it is
	// logged with every heartbeat by some stores.
	Meta map[string]string

	// Anonymous switches off what is shown: Name, Host, App and Meta must be empty,
	// and the process's id is not told either.
	Anonymous bool

	// Logger gets what an operator would want to know. Nil is silent.
	Logger *slog.Logger

	// Hooks are called on what happens. Nil: none.
	Hooks *Hooks
}

// withDefaults returns o with every zero field replaced by its default, or an
// error that says what is wrong and what would be right.
func (o *Options) withDefaults() (Options, error) {
	var r Options
	if o != nil {
		r = *o
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
	if r.Heartbeat == 0 {
		r.Heartbeat = r.TTL / 3
	}
	if r.Heartbeat < 10*time.Millisecond {
		return r, fmt.Errorf("dsync: Heartbeat is %v; it must be at least 10ms (0 means TTL/3)", r.Heartbeat)
	}
	lease, need := holdTime(r.TTL, r.Margin, r.Grace), r.beatTime()
	if need > lease {
		return r, fmt.Errorf("dsync: Heartbeat %v leaves no time for a second one: 1.1·Heartbeat + TTL/6 = %v must be at most TTL·0.999 − Margin − Grace = %v; raise TTL (%v) or lower Heartbeat, Margin (%v) or Grace (%v)",
			r.Heartbeat, need, lease, r.TTL, r.Margin, r.Grace)
	}
	if r.Poll != 0 && r.Poll < 10*time.Millisecond {
		return r, fmt.Errorf("dsync: Poll is %v; it must be at least 10ms (0 means the default)", r.Poll)
	}
	if r.Turn == 0 {
		r.Turn = defaultTurn
	}
	if r.HandOvers == 0 {
		r.HandOvers = tokenRoom - 1
	}
	if r.HandOvers >= tokenRoom {
		return r, fmt.Errorf("dsync: HandOvers is %d; it may be %d at the most (0 means that; negative: none)", r.HandOvers, tokenRoom-1)
	}
	if r.Linger < 0 {
		return r, fmt.Errorf("dsync: Linger is %v; it must be positive (0: no key lingers)", r.Linger)
	}
	if r.Retention == 0 {
		r.Retention = defaultRetention
	}
	if r.Retention > 0 && r.Retention < 2*r.TTL {
		return r, fmt.Errorf("dsync: Retention is %v; it must be at least two TTLs (%v), and should be days (negative: never sweep)", r.Retention, 2*r.TTL)
	}
	switch {
	case r.Anonymous && (r.Name != "" || r.Host != "" || r.App != "" || len(r.Meta) > 0):
		return r, errors.New("dsync: Anonymous together with Name, Host, App or Meta; give one or the other")
	case !r.Anonymous && r.Host == "":
		r.Host, _ = os.Hostname() // for display only: an empty one is no reason to fail
	}
	if r.Name == "" {
		r.Name = r.Host
	}
	r.Meta = maps.Clone(r.Meta) // registered again after each loss
	size := len(r.Name) + len(r.Host) + len(r.App)
	for k, v := range r.Meta {
		size += len(k) + len(v)
	}
	if size > maxMeta {
		return r, fmt.Errorf("dsync: Name, Host, App and Meta have %d bytes; they may have %d in all", size, maxMeta)
	}
	if r.Hooks == nil {
		r.Hooks = &Hooks{}
	}
	return r, nil
}

// beatTime is how long after the send of a heartbeat the next one has been answered
// if nothing fails: a period at its longest, and an attempt.
func (o *Options) beatTime() time.Duration { return o.Heartbeat + o.Heartbeat/10 + o.TTL/6 }

// holdTime is how long after the send of a request that was granted d the local
// clock may believe in it: d·(1−ρ) − margin − grace, with ρ = 1/1000 for clocks
// that run at slightly different rates.
func holdTime(d, margin, grace time.Duration) time.Duration {
	return d - d/1000 - margin - grace
}
