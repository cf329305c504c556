package integration_test

import (
	"context"
	"testing"
	"time"

	"github.com/leasehold-go/leasehold/dsync"
	"github.com/leasehold-go/leasehold/dsync/driver"
	"github.com/leasehold-go/leasehold/integration/internal/proc"
	"github.com/leasehold-go/leasehold/integration/internal/proxy"
	"github.com/leasehold-go/leasehold/integration/internal/server"
	"github.com/leasehold-go/leasehold/internal/mongod"
)

// fates are the faults that can happen to a command or its reply.
var fates = []struct {
	name string
	fate proxy.Fate
}{
	{"reply lost", proxy.LoseReply},
	{"cut before the reply", proxy.CutReply},
	{"reply late", proxy.LateReply},
	{"request lost", proxy.LoseRequest},
	{"request late", proxy.LateRequest},
	{"request shed", proxy.ShedRequest},
	{"shed after it was applied", proxy.ShedReply},
}

// B09: the request or the reply of an acquire, a heartbeat, an expiry or a release is lost, late or shed. Even so, no
// claim is left behind, and the session keeps its other holds.
func TestB09LostReply(t *testing.T) {
	t.Parallel()
	cases := map[string]func(t *testing.T, f fault){
		"acquire":           lostAcquire,
		"acquire, given up": lostAcquireGivenUp,
		"heartbeat":         lostHeartbeat,
		"release":           lostRelease,
		"expire":            lostExpire,
	}
	lab.One(t, server.Need{}, func(t *testing.T, s *server.Server) {
		for name, run := range cases {
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				for _, f := range fates {
					t.Run(f.name, func(t *testing.T) {
						t.Parallel()
						r := newRoom(t, s)
						p := r.proxy()
						lost := new(losses)
						opt := r.short(patient)
						opt.HeartbeatInterval, opt.Hooks = time.Second, lost.hooks()
						run(t, fault{r, p, f.fate, r.via(p, opt), r.session(r.short(patient)), r.store(), lost})
						lost.none(t)
					})
				}
			})
		}
	})
}

// A fault is the setup of one case: a session behind a proxy that causes the fault, and another
// session without faults.
type fault struct {
	r        *room
	p        *proxy.Proxy
	fate     proxy.Fate
	troubled *dsync.Session
	other    *dsync.Session
	store    driver.Store
	lost     *losses
}

// f.hit waits until the fault has happened.
func (f fault) hit(t *testing.T, hit <-chan struct{}) {
	t.Helper()
	select {
	case <-hit:
	case <-time.After(proc.Patience):
		t.Fatal("the proxy never saw the command that the fault is for")
	}
}

// f.free checks that no claim is left on the key, both now and after delayed messages have arrived.
func (f fault) free(t *testing.T, key string) {
	t.Helper()
	isFree := func() bool {
		st := load(t, f.store, key)
		return len(st.Holders) == 0 && st.Waiting == 0
	}
	eventually(t, "nothing is left on the key", isFree)
	f.p.Heal()
	time.Sleep(500 * time.Millisecond)
	eventually(t, "nothing is left on the key after delayed messages have arrived", isFree)
	m := f.other.Mutex(key)
	release(t, lock(t, m))
}

func lostAcquire(t *testing.T, f fault) {
	m := warm(t, f.troubled, "key")
	hit := f.p.Once(f.fate, acquires("key"))
	h := lock(t, m)
	f.hit(t, hit)
	if st := load(t, f.store, "key"); len(st.Holders) != 1 || st.Holders[0].Token != h.Token() || st.Waiting != 0 {
		t.Errorf("holders %v and %d waiting, want one with token %d", st.Holders, st.Waiting, h.Token())
	}
	release(t, h)
	f.free(t, "key")
}

func lostAcquireGivenUp(t *testing.T, f fault) {
	m := warm(t, f.troubled, "key")
	ctx, cancel := context.WithCancel(t.Context())
	hit := f.p.Once(f.fate, acquires("key"))
	ch := locking(ctx, m)
	f.hit(t, hit)
	cancel()
	if g := <-ch; g.err == nil {
		// If the grant came before the cancellation, the hold must be valid.
		release(t, g.h)
	} else if sentinel(g.err) != "canceled" {
		t.Errorf("Hold: %v, want context.Canceled", g.err)
	}
	// The session does not end, so nothing but its own clean-up can free the key.
	f.free(t, "key")
}

func lostHeartbeat(t *testing.T, f fault) {
	h := lock(t, f.troubled.Mutex("key"))
	hit := f.p.Once(f.fate, heartbeats(f.troubled.ID()))
	f.hit(t, hit)
	renewed(t, f.troubled, 2)
	if closed(h.Lost()) {
		t.Error("the lock was lost because of one heartbeat with a fault")
	}
	release(t, h)
	f.free(t, "key")
}

func lostRelease(t *testing.T, f fault) {
	m := f.troubled.Mutex("key")
	h := lock(t, m)
	ch := locking(t.Context(), f.other.Mutex("key"))
	eventually(t, "the other is queued", func() bool { return load(t, f.store, "key").Waiting == 1 })
	hit := f.p.Once(f.fate, releases("key"))
	release(t, h)
	f.hit(t, hit)
	g := granted(t, ch)

	// The troubled session's newer lock must survive a retry of the earlier release (B28).
	again := locking(t.Context(), m)
	release(t, g.h)
	newer := granted(t, again)
	f.p.Heal()
	time.Sleep(time.Second)
	if newer.token <= g.token {
		t.Errorf("token %d came after %d, want a greater one", newer.token, g.token)
	}
	if st := load(t, f.store, "key"); len(st.Holders) != 1 || st.Holders[0].Token != newer.token {
		t.Errorf("the newer lock is gone: holders %v, want token %d", st.Holders, newer.token)
	}
	release(t, newer.h)
	f.free(t, "key")
}

func lostExpire(t *testing.T, f fault) {
	// A third session, which is cut off below and stays so.
	gone := f.r.proxy()
	cut := f.r.via(gone, f.r.short(time.Second))
	held := lock(t, cut.Mutex("key"))
	hit := f.p.Once(f.fate, expires(cut.ID()))
	ch := locking(t.Context(), f.troubled.Mutex("key"))
	gone.Cut()
	f.hit(t, hit)
	g := granted(t, ch)
	if err := held.Release(t.Context()); sentinel(err) != "lost" {
		t.Errorf("Release by the expired holder: %v, want ErrLost", err)
	}
	release(t, g.h)
	f.free(t, "key")
}

// B31: a request that arrives after its claim was released neither joins the queue nor frees
// anything.
func TestB31LateRequest(t *testing.T) {
	t.Parallel()
	lab.One(t, server.Need{}, func(t *testing.T, s *server.Server) {
		r := newRoom(t, s)
		p := r.proxy()
		var lost losses
		opt := r.short(patient)
		opt.Hooks = lost.hooks()
		troubled, other, store := r.via(p, opt), r.session(r.short(patient)), r.store()
		m := warm(t, troubled, "late")

		hit := p.Once(proxy.LateRequest, acquires("late"))
		h := lock(t, m) // the repeated request succeeds
		if !closed(hit) {
			t.Fatal("no request was held back")
		}
		release(t, h)
		next := other.Mutex("late")
		h = lock(t, next)
		held := load(t, store, "late").Holders
		time.Sleep(time.Second)
		p.Heal()
		time.Sleep(time.Second)
		st := load(t, store, "late")
		if len(st.Holders) != 1 || st.Holders[0] != held[0] {
			t.Errorf("holders %v, want %v", st.Holders, held)
		}
		if st.Waiting != 0 {
			t.Errorf("the late request is queued: %v", st)
		}
		release(t, h)
		release(t, lock(t, next))
		lost.none(t)
	})
}

// If a fail-over undoes an Unlock, the key stays held until the next heartbeat, which discards
// the claim. Then another process gets the key, with a greater token. Hold.Release does not
// succeed until a majority has the release.
func TestUndoneUnlock(t *testing.T) {
	t.Parallel()
	lab.Each(t, server.Need{Members: true}, func(t *testing.T, _ *server.Server) {
		own := lab.Start(t, mongod.Spec{Members: 3, ElectionTimeout: 2 * time.Second})
		r := newRoom(t, own)
		opt := r.short(time.Minute)
		opt.HeartbeatInterval = 5 * time.Second
		var lost losses
		opt.Hooks = lost.hooks()
		s := r.session(opt)
		m := s.Mutex("key")
		m.Lock()
		sure := lock(t, s.Mutex("sure"))
		first := m.Token()

		old := primary(t, own.Set())
		var others []*mongod.Member
		for _, member := range own.Set().Members() {
			if member == old {
				continue
			}
			noErr(t, member.Freeze())
			t.Cleanup(func() { member.Thaw() })
			others = append(others, member)
		}
		m.Unlock() // returns as soon as the primary has the release
		ctx, cancel := context.WithTimeout(t.Context(), time.Second/2)
		err := sure.Release(ctx)
		cancel()
		if err == nil {
			t.Error("Release succeeded before a majority had the release")
		}
		old.Kill()
		t.Cleanup(func() { old.Start() })
		for _, member := range others {
			member.Thaw()
		}
		var next *mongod.Member
		eventually(t, "there is another primary", func() bool {
			next = primary(t, own.Set())
			return next != old
		})
		b := lock(t, r.session(opt).Mutex("key"))
		if b.Token() <= first {
			t.Errorf("token %d came after %d, want a greater one", b.Token(), first)
		}
		lost.none(t)
		release(t, b)
	})
}
