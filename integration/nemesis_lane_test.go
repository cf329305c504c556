package integration_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/leasehold-go/leasehold/integration/internal/history"
	"github.com/leasehold-go/leasehold/integration/internal/proc"
	"github.com/leasehold-go/leasehold/integration/internal/proxy"
	"github.com/leasehold-go/leasehold/integration/internal/server"
	"github.com/leasehold-go/leasehold/internal/mongod"
)

// A harm is one kind of fault.
type harm struct {
	what  string
	least time.Duration // shortest and longest duration
	most  time.Duration
	begin func() error
	end   func() error // nil if the fault ends by itself
}

// A lane is a target that suffers one fault at a time: the server, a client, or a client's
// connections to the server. The faults and their durations depend only on the lane's random
// source.
type lane struct {
	target string // the target's name in the history; "" for the server
	draw   *rand.Rand
	harms  []harm
	least  time.Duration // shortest and longest time between two faults
	most   time.Duration

	due  time.Time // when to call step next
	heal func() error
}

// between(draw, least, most) draws a duration from least to most.
func between(draw *rand.Rand, least, most time.Duration) time.Duration {
	return least + time.Duration(draw.Int64N(int64(most-least)+1))
}

// step ends the current fault, or begins one if there is none.
func (l *lane) step(rec *history.Recorder, counts map[string]int) error {
	if l.heal != nil {
		l.due = time.Now().Add(between(l.draw, l.least, l.most))
		return l.end()
	}
	h := l.harms[l.draw.IntN(len(l.harms))]
	lasts := between(l.draw, h.least, h.most)
	counts[h.what]++
	healed := rec.Fault(h.what, l.target)
	if err := h.begin(); err != nil {
		return fmt.Errorf("%s %s: %w", h.what, l.target, err)
	}
	l.heal = func() error {
		defer healed()
		if h.end == nil {
			return nil
		}
		if err := h.end(); err != nil {
			return fmt.Errorf("end of %s %s: %w", h.what, l.target, err)
		}
		return nil
	}
	l.due = time.Now().Add(lasts)
	return nil
}

// end ends the current fault, if there is one.
func (l *lane) end() error {
	heal := l.heal
	l.heal = nil
	if heal == nil {
		return nil
	}
	return heal()
}

// containerHarms are the faults of a server in an isolated container.
func (n *nemesis) containerHarms(box *server.Container) []harm {
	return []harm{
		{"server paused", n.ttl / 10, 2 * n.ttl, box.Pause, box.Unpause},
		{"server killed", n.ttl / 10, n.ttl, box.Kill, func() error { return box.Restart(n.t.Context()) }},
		{"server cut off", n.ttl / 10, 2 * n.ttl, box.Disconnect, box.Connect},
	}
}

// setHarms are the faults of a set of mongod processes behind proxies. They harm the set's primary.
func (n *nemesis) setHarms(set *mongod.Set, draw *rand.Rand) []harm {
	var m *mongod.Member // the harmed member
	harmed := func(f func() error) func() error {
		return func() (err error) {
			ctx, cancel := context.WithTimeout(n.t.Context(), 2*time.Minute)
			defer cancel()
			if m, err = set.Primary(ctx); err != nil {
				return err
			}
			return f()
		}
	}
	var in, out *proxy.Link // the links to and from the primary
	parted := func(f func()) func() error {
		return harmed(func() error {
			p := n.net.Proxy(m.Addr)
			in, out = p.Link, p.Outgoing()
			f()
			return nil
		})
	}
	join := func() error { in.Heal(); out.Heal(); return nil }
	// The harm called alone freezes the other members and, a moment later, the primary; then it thaws the others. So
	// the next primary lacks the writes of that moment.
	alone := harmed(func() (err error) {
		for _, o := range set.Members() {
			if o != m {
				err = errors.Join(err, o.Freeze())
				defer o.Thaw()
			}
		}
		time.Sleep(between(draw, n.ttl/20, n.ttl/6))
		return errors.Join(err, m.Freeze())
	})
	return []harm{
		{"step-down", n.ttl, n.ttl, func() error { return n.stepDown(set) }, nil},
		{"primary killed", n.ttl / 10, 2 * n.ttl, harmed(func() error { m.Kill(); return nil }), func() error { return m.Start() }},
		{"primary frozen", n.ttl / 10, 4 * n.ttl, harmed(func() error { return m.Freeze() }), func() error { return m.Thaw() }},
		{"primary cut off", n.ttl / 10, 4 * n.ttl, parted(func() { in.Hang(); out.Hang() }), join},
		{"primary rolled back", n.ttl, 4 * n.ttl, alone, func() error { return m.Thaw() }},
		// A deaf primary receives nothing, neither requests nor replies to its own requests. A mute
		// primary sends nothing.
		{"primary deaf", n.ttl / 10, 4 * n.ttl, parted(func() { in.HangRequests(); out.HangReplies() }), join},
		{"primary mute", n.ttl / 10, 4 * n.ttl, parted(func() { in.HangReplies(); out.HangRequests() }), join},
	}
}

// clusterHarms are the faults of a sharded cluster. Each harms one of the cluster's processes,
// chosen at random.
func (n *nemesis) clusterHarms(c *mongod.Cluster, draw *rand.Rand) (harms []harm) {
	of := func(what string, members []*mongod.Member) {
		var m *mongod.Member // the harmed member
		harmed := func(f func(*mongod.Member) error) func() error {
			return func() error {
				m = members[draw.IntN(len(members))]
				return f(m)
			}
		}
		harms = append(harms,
			harm{what + " killed", n.ttl / 10, n.ttl, harmed(func(m *mongod.Member) error { m.Kill(); return nil }), func() error { return m.Start() }},
			harm{what + " frozen", n.ttl / 10, 2 * n.ttl, harmed((*mongod.Member).Freeze), func() error { return m.Thaw() }})
	}
	var shards []*mongod.Member
	for _, s := range c.Shards() {
		shards = append(shards, s.Members()...)
	}
	of("router", c.Routers())
	of("shard", shards)
	of("config server", c.Config().Members())
	return harms
}

// stepDown makes the primary step down as soon as another member can replace it. A member that was
// harmed before may have to catch up first.
func (n *nemesis) stepDown(set *mongod.Set) error {
	ctx, cancel := context.WithTimeout(n.t.Context(), time.Minute)
	defer cancel()
	for {
		err := set.StepDown(ctx)
		if err == nil || ctx.Err() != nil {
			return err
		}
		time.Sleep(n.ttl / 10)
	}
}

// clientHarms are the faults of a client process.
func (n *nemesis) clientHarms(i int) []harm {
	stop := func() error { n.clients[i].Stop(); return nil }
	cont := func() error { n.clients[i].Cont(); return nil }
	return []harm{
		{"client stopped", n.ttl / 20, n.ttl / 2, stop, cont},
		{"client stopped for long", n.ttl, 5 * n.ttl / 2, stop, cont},
		{"client killed", n.ttl / 20, 2 * n.ttl, func() error { n.kill(i); return nil }, func() error { n.start(i); return nil }},
	}
}

// linkHarms are the faults of a client's connections to the server.
func (n *nemesis) linkHarms(l *proxy.Link, name string) []harm {
	delays, messages := n.source("delays "+name), n.source("messages "+name) // messages is only for the proxies' goroutines
	heal := func() error { l.Heal(); return nil }
	fates := []proxy.Fate{proxy.LoseReply, proxy.CutReply, proxy.LoseRequest, proxy.LateReply, proxy.LateRequest, proxy.ShedRequest, proxy.ShedReply}
	return []harm{
		{"link cut", n.ttl / 20, 2 * n.ttl, func() error { l.Cut(); return nil }, heal},
		{"link hung", n.ttl / 20, 2 * n.ttl, func() error { l.Hang(); return nil }, heal},
		{"link slow", n.ttl, 3 * n.ttl, func() error { l.Delay(between(delays, n.ttl/100, n.ttl/8)); return nil }, heal},
		{"link lossy", n.ttl, 3 * n.ttl, func() error {
			l.Rule(func(proxy.Command) proxy.Fate {
				if messages.IntN(8) > 0 {
					return proxy.Pass
				}
				n.messages.Add(1)
				return fates[messages.IntN(len(fates))]
			})
			return nil
		}, heal},
	}
}

// clientName returns the name of a client and of its connections.
func clientName(i int) string { return fmt.Sprintf("c%d", i) }

// start starts a client, or restarts it after it was killed.
func (n *nemesis) start(i int) {
	n.starts[i]++
	a := nemesisArgs{
		URI: n.uri + "&appName=" + clientName(i), DB: n.room.DB, TTL: n.ttl, Poll: n.poll, Dir: n.dir,
		Name: fmt.Sprintf("%s.%d", clientName(i), n.starts[i]),
		Seed: n.seed + uint64(i)<<32 + uint64(n.starts[i])<<40,
	}
	if i%2 == 0 {
		a.HostDir = n.host // so after a crash, other clients with a HostDir wait only for a margin
	}
	n.names[i] = a.Name
	n.clients[i] = proc.Start(n.t, "nemesis", a)
}

func (n *nemesis) kill(i int) {
	n.clients[i].Kill()
	n.rec.Put(history.Event{Type: history.Killed, Target: n.names[i]})
}
