package program

import (
	"fmt"
	"time"

	"github.com/leasehold-go/leasehold/dsync"
)

// A goroutine does its ops one after the other, and then releases everything it holds.
type goroutine struct {
	*runner
	slot  *slot
	name  string
	holds []*hold
	pools map[poolKey]*pool
	onces map[poolKey]*dsync.Once
}

// A poolKey identifies a pool of a goroutine.
type poolKey struct {
	life *life
	key  string
	sem  bool // a semaphore, not an RWMutex
}

// A pool is a Semaphore or RWMutex that the goroutine holds several times at once, through the
// methods of the Semaphore or RWMutex itself.
type pool struct {
	sem *dsync.Semaphore
	rw  *dsync.RWMutex
	n   int64 // how many are held
	h   *hold // one hold that represents all of them; on the key's page while n > 0
}

func (g *goroutine) run(ops []Op) {
	defer func() {
		if e := recover(); e != nil {
			panic(fmt.Sprintf("%v\n%v", e, g.p)) // so that the panic shows the program
		}
	}()
	g.pools, g.onces = make(map[poolKey]*pool), make(map[poolKey]*dsync.Once)
	for _, o := range ops {
		time.Sleep(min(o.Delay, g.delay))
		g.log(o)
		g.do(o)
	}
	// Release in the order of the grants, as the ops do.
	for len(g.holds) > 0 {
		g.release(g.holds[0], Op{Arg: 15})
	}
	for _, p := range g.pools {
		for p.n > 0 {
			g.releaseSome(p, Op{Arg: 15})
		}
	}
}

func (g *goroutine) log(o Op) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.note(g.name, "%v", o)
}

// begin begins a call for a key on the slot's current session.
func (g *goroutine) begin(key string) *call {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.call(g.name, g.slot.life, key)
}

// wait returns how long a call may wait for key. The time is short if the goroutine itself holds key.
func (g *goroutine) wait(o Op, key string) time.Duration {
	d := g.tempo.patience(o)
	for _, h := range g.holds {
		if h.Key == key {
			d = min(d, g.short[3])
		}
	}
	for k, p := range g.pools {
		if k.key == key && p.n > 0 {
			d = min(d, g.short[3])
		}
	}
	return d
}

func (g *goroutine) do(o Op) {
	key := g.w.Prefix + o.key()
	switch o.Verb {
	case Lock, TryLock, ForceHold:
		c := g.begin(key)
		g.exclusive(c, o, c.life.Mutex(key))
	case WriteLock, TryWriteLock:
		c := g.begin(key)
		g.exclusive(c, o, c.life.RWMutex(key))
	case ReadLock, TryReadLock:
		g.readLock(o, key)
	case Readers:
		g.readers(o, key)
	case Acquire, TryAcquire:
		g.acquire(o, key)
	case Lease, TryLease:
		g.lease(o, key)
	case Campaign, TryCampaign:
		g.campaign(o, key)
	case Unlock, ReleaseAfter, WriteUnlock, ReadUnlock, Release, EndLease, Resign, Transfer:
		g.releaseOne(o, key)
	case Resize:
		g.resize(o, key)
	case Extend:
		g.extend(key)
	case Once:
		g.once(o, key)
	case Break:
		g.breakKey(o, key)
	case Status:
		g.status(key)
	case List:
		g.list()
	case Sleep:
		time.Sleep(g.sleepTime(o))
	case Close:
		g.close(g.life(), g.tempo.patience(o), g.name)
	case Open:
		g.reopen()
	default:
		if g.w.server != nil {
			g.misbehave(o)
		}
	}
}

// misbehave makes the network or the store do what the op says.
func (g *goroutine) misbehave(o Op) {
	switch o.Verb {
	case Cut, Noise, Heal:
		g.disturb(g.slot, o.Verb)
	case Replay:
		g.replay(g.slot)
	case Step:
		g.step(g.clock(o))
	case FailOver:
		if o.Arg > 3 { // otherwise most fail-overs would undo nothing
			turn := Op{Verb: Lock, Key: o.Key, Variant: 2, Arg: 2}
			g.do(turn)
			turn.Verb = Unlock
			g.do(turn)
			time.Sleep(time.Millisecond) // for the release, which Unlock need not wait for
		}
		if o.Variant < 2 {
			g.failOver()
		}
		if o.Variant > 0 {
			g.disturb(g.slot, FailOver)
		}
	}
}

func (g *goroutine) life() *life {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.slot.life
}

// reopen opens the session again if it is closed.
func (g *goroutine) reopen() {
	l := g.life()
	select {
	case <-l.closed:
	default:
		return
	}
	fresh := g.open(g.slot.number, g.slot)
	g.mu.Lock()
	if g.slot.life == l {
		g.slot.life = fresh
		fresh = nil
	}
	g.mu.Unlock()
	if fresh != nil { // another goroutine has opened it first
		g.close(fresh, 0, g.name)
	}
}

// took records a hold that was granted to a call.
func (g *goroutine) took(c *call, h *hold, verb Verb) {
	h.Key, h.verb, h.who, h.life, h.Requested = c.key, verb, g.name, c.life, g.since(c.began)
	if h.lost == nil && !h.pooled {
		panic("program: a hold without Lost")
	}
	g.runner.grant(h)
	g.holds = append(g.holds, h)
}

// releaseOne releases the oldest hold that the op can release.
func (g *goroutine) releaseOne(o Op, key string) {
	for _, h := range g.holds {
		if h.Key == key && releases(o.Verb, h.verb) {
			g.release(h, o)
			return
		}
	}
	for k, p := range g.pools {
		if k.key == key && p.n > 0 && (p.sem != nil) == (o.Verb == Release) && (o.Verb == Release || o.Verb == ReadUnlock) {
			g.releaseSome(p, o)
			return
		}
	}
}

// releases reports whether v undoes the other verb, as Unlock undoes TryLock.
func releases(v, what Verb) bool {
	switch what {
	case Lock, TryLock, ForceHold:
		return v == Unlock || v == ReleaseAfter
	case WriteLock, TryWriteLock:
		return v == WriteUnlock
	case ReadLock, TryReadLock, Readers:
		return v == ReadUnlock
	case Acquire, TryAcquire:
		return v == Release
	case Campaign, TryCampaign:
		return v == Resign || v == Transfer
	}
	return v == EndLease
}

func (g *goroutine) release(h *hold, o Op) {
	h.release(o)
	g.runner.ended(h)
	for i := range g.holds {
		if g.holds[i] == h {
			g.holds = append(g.holds[:i], g.holds[i+1:]...)
			return
		}
	}
}
