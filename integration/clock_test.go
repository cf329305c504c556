package integration_test

import (
	"errors"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/leasehold-go/leasehold/dsync"
	"github.com/leasehold-go/leasehold/integration/internal/proc"
	"github.com/leasehold-go/leasehold/integration/internal/server"
	"github.com/leasehold-go/leasehold/internal/mongod"
	"go.mongodb.org/mongo-driver/v2/bson"
)

// B07: the server's clock is an hour ahead of or behind the host's. In spite of the skew, holders are notified at the
// usual time, and a killed process's lock is granted at the usual time.
func TestB07HourApart(t *testing.T) {
	t.Parallel()
	lab.Each(t, server.Need{Members: true}, func(t *testing.T, s *server.Server) {
		for _, ahead := range []time.Duration{time.Hour, -time.Hour} {
			t.Run(ahead.String(), func(t *testing.T) {
				t.Parallel()
				env, ok := server.FakeClock(ahead)
				if !ok {
					lab.Skip(t, s, server.NoFakeClock)
				}
				own := lab.Start(t, mongod.Spec{Members: 1, Env: env})
				r := newRoom(t, own)
				var hello struct {
					LocalTime time.Time `bson:"localTime"`
				}
				err := own.Client(t).Database("admin").RunCommand(t.Context(), bson.D{{Key: "hello", Value: 1}}).Decode(&hello)
				noErr(t, err)
				if off := time.Until(hello.LocalTime); (off - ahead).Abs() > time.Minute {
					t.Fatalf("the server's clock is %v ahead, want %v", off, ahead)
				}

				opt := r.short(6 * time.Second)
				opt.HeartbeatInterval = time.Second
				store := r.store()
				waiter := r.session(r.short(patient))

				// A killed process's lock is granted once the server's clock shows that its
				// session has lapsed.
				p, holder := r.startHolder(opt, "killed")
				ch := locking(t.Context(), waiter.Mutex("killed"))
				eventually(t, "the waiter is queued", func() bool { return load(t, store, "killed").Waiting == 1 })
				p.Kill()
				time.Sleep(100 * time.Millisecond)
				died := member(t, store, holder.Text)
				lapse := died.LastHeartbeat.Add(died.TTL)
				g := granted(t, ch)
				over := load(t, store, "killed").Holders[0].Since.Sub(lapse)
				if over < 0 || over > wakeUp {
					t.Errorf("taken %v after the killed session lapsed, want 0 to %v", over, wakeUp)
				}
				release(t, g.h)

				// A holder that is cut off is notified before its lock is granted to another
				// session.
				px := r.proxy()
				cut := r.via(px, opt)
				lost := lock(t, cut.Mutex("cut")).Lost()
				notified := make(chan time.Time, 1)
				go func() {
					<-lost
					notified <- time.Now()
				}()
				ch = locking(t.Context(), waiter.Mutex("cut"))
				eventually(t, "the waiter is queued", func() bool { return load(t, store, "cut").Waiting == 1 })
				renewed(t, cut, 4)
				if closed(lost) {
					t.Fatal("the hold was lost although nothing has happened")
				}
				px.Hang()
				g = granted(t, ch)
				select {
				case at := <-notified:
					if gap := g.at.Sub(at); gap < opt.TTL/10 {
						t.Errorf("the holder was notified %v before the lock was granted again, want the grace of %v", gap, opt.TTL/10)
					}
				default:
					t.Error("the lock was granted again before the holder was notified")
				}
				release(t, g.h)

				// A fixed lease lapses after its duration.
				const d = 4 * time.Second
				l, err := waiter.Mutex("leased").Lease(t.Context(), d)
				noErr(t, err)
				begin := time.Now()
				<-l.Lost()
				if took := time.Since(begin); took < d/2 || took > d {
					t.Errorf("a lease of %v ended after %v, want at least half of that, and at most all of it", d, took)
				}
			})
		}
	})
}

// B07: the clock of a running primary is stepped. One session holds a key, two sessions wait for the key, and a fourth
// session tries to lock it. If the clock is set back, no session loses anything, and the fourth does not get the key.
// The same is true if the clock is set forward, but not so far that the sessions lapse. After a step larger than the
// margin, each session reports the jump once. If the clock is set forward by more than the TTL, the fourth session gets
// the key, and the holder learns of the loss with its next heartbeat. Tokens grow, and all sessions continue.
func TestB07ClockSteps(t *testing.T) {
	t.Parallel()
	lab.Each(t, server.Need{Members: true}, func(t *testing.T, s *server.Server) {
		const ttl, margin = patient, 500 * time.Millisecond
		clock, env, ok := server.NewSteppedClock(t)
		if !ok {
			lab.Skip(t, s, server.NoFakeClock)
		}
		own := lab.Start(t, mongod.Spec{Members: 1, Env: env})
		r := newRoom(t, own)
		store, p := r.store(), r.proxy()
		enter := func(open func(dsync.Options) *dsync.Session) *stepped {
			x, o := new(stepped), r.short(ttl)
			o.HeartbeatInterval, o.PollInterval = time.Second, 5*time.Second
			o.Hooks, o.Logger = x.hooks(), x.log.logger()
			x.Session = open(o)
			release(t, lock(t, x.Mutex("any"))) // registers the session
			return x
		}
		through := func(o dsync.Options) *dsync.Session { return r.via(p, o) }
		all := []*stepped{enter(through), enter(through), enter(through), nil}
		held, next, last := all[0].Mutex("key"), all[1].Mutex("key"), all[2].Mutex("key")
		var token int64
		grows := func(what string, now int64) {
			t.Helper()
			if now <= token {
				t.Errorf("%s: token %d came after %d, want a greater one", what, now, token)
			}
			token = now
		}
		var before time.Duration
		for _, ahead := range []time.Duration{100 * time.Millisecond, 0, ttl / 3, 0, time.Hour, 0, -time.Hour, 0} {
			step := ahead - before
			before = ahead
			holds := lock(t, held)
			grows("held", holds.Token())
			grants := make(chan grant, 2)
			for i, m := range []*dsync.Mutex{next, last} {
				ch := locking(t.Context(), m)
				go func() { grants <- <-ch }()
				eventually(t, "the waiter is queued", func() bool { return load(t, store, "key").Waiting == i+1 })
			}
			all[3] = enter(func(o dsync.Options) *dsync.Session { return r.session(o) }) // a new session knows nothing yet about the others
			tries := all[3].Mutex("key")
			for _, o := range all {
				o.forget()
			}

			p.Hang() // the server gets no heartbeat before the try
			session := all[0].ID()
			clock.Set(ahead)
			if step.Abs() <= margin { // too small to be seen from here on a busy machine
				time.Sleep(server.Noticed)
			} else {
				eventually(t, "the server has noticed", func() bool { // a server reads its clock now and then, and less often when it is busy
					off := time.Until(load(t, store, "key").Now)
					return (off - ahead).Abs() < step.Abs()/2
				})
			}
			for _, o := range all { // what is counted below has seen the new time, or at least the second of two has
				o.do(func(c *stepCounts) { c.beats = 0 })
			}
			var tried *dsync.Hold
			var err error
			eventually(t, "a try is answered", func() bool {
				tried, err = tries.TryHold(t.Context())
				return err == nil || errors.Is(err, dsync.ErrHeld)
			})
			if step < ttl {
				if left, err := store.Expire(t.Context(), session, false); err != nil || left <= 0 || left > ttl {
					t.Errorf("step %v: the holder's session has %v left, %v; want up to the TTL", step, left, err)
				}
			}
			p.Heal()
			switch {
			case step > ttl && err == nil: // until their next heartbeats, the sessions appear lapsed to each other
				grows("taken", tried.Token())
				select {
				case <-holds.Lost():
				case <-time.After(proc.Patience):
					t.Errorf("step %v: the holder was not notified", step)
				}
				if err := tried.Release(t.Context()); err != nil && !errors.Is(err, dsync.ErrLost) {
					t.Errorf("step %v: Release: %v", step, err)
				}
			case step > ttl || err == nil:
				t.Errorf("step %v: a try by another session: %v, want it to get the key only after a step of more than the TTL", step, err)
			default:
				eventually(t, "two heartbeats of all", func() bool {
					return !slices.ContainsFunc(all, func(o *stepped) bool { return o.count().beats < 2 })
				})
				if st := load(t, store, "key"); closed(holds.Lost()) || len(st.Holders) != 1 || st.Holders[0].Token != token || st.Waiting != 2 {
					t.Errorf("step %v: the hold was lost: %t; the holders are %v, want one with token %d; %d wait, want 2",
						step, closed(holds.Lost()), st.Holders, token, st.Waiting)
				}
				for i, o := range all {
					if n := o.count().lost; n > 0 {
						t.Errorf("step %v: session %d was lost %d times", step, i, n)
					}
				}
			}
			if err := holds.Release(t.Context()); (err != nil) != (step > ttl) {
				t.Errorf("step %v: Release: %v", step, err)
			}
			for i := range 2 {
				g := granted(t, grants)
				if step > ttl {
					token = max(token, g.token)
					g.h.Release(t.Context())
					continue
				}
				grows("granted", g.token)
				if i == 0 && g.m != next {
					t.Errorf("step %v: the waiters were granted the key out of order", step)
				}
				release(t, g.h)
			}
			eventually(t, "all sessions know the new time", func() bool {
				return !slices.ContainsFunc(all, func(o *stepped) bool { return o.count().beats+o.count().lost == 0 })
			})
			for _, m := range []*dsync.Mutex{held, next, last, tries} { // registers lost sessions again
				h := lock(t, m)
				grows("held again", h.Token())
				release(t, h)
			}
			for i, o := range all {
				if step > ttl {
					eventually(t, "the session reports the jump", func() bool { return len(o.count().jumps) > 0 })
				}
				got := o.count()
				if len(got.jumps) > 1 || (len(got.jumps) == 1) != (step.Abs() > margin) {
					t.Errorf("step %v: session %d reported the jumps %v, want one if the step exceeds the margin, otherwise none", step, i, got.jumps)
				}
				for _, d := range got.jumps {
					if (d > 0) != (step > 0) || d.Abs() > step.Abs()+margin || d.Abs() < margin { // d is a lower bound of the jump
						t.Errorf("step %v: session %d reported a jump of %v", step, i, d)
					}
				}
				if n := strings.Count(o.log.String(), "the store's clock jumped by more than the margin"); n != o.jumped {
					t.Errorf("session %d logged %d jumps, but reported %d", i, n, o.jumped)
				}
			}
		}
	})
}

// stepped is a session that counts the calls of its hooks.
type stepped struct {
	*dsync.Session
	log warned

	mu     sync.Mutex
	counts stepCounts
	jumped int // jumps since the start of the test
}

// stepCounts counts the calls of hooks since the last step.
type stepCounts struct {
	beats, lost int
	jumps       []time.Duration
}

func (s *stepped) do(f func(c *stepCounts)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	f(&s.counts)
}

func (s *stepped) hooks() *dsync.Hooks {
	return &dsync.Hooks{
		Heartbeat: func(_, _ time.Duration, err error) {
			if err == nil {
				s.do(func(c *stepCounts) { c.beats++ })
			}
		},
		SessionLost: func(string, error) { s.do(func(c *stepCounts) { c.lost++ }) },
		ClockJump: func(d time.Duration) {
			s.do(func(c *stepCounts) { c.jumps, s.jumped = append(c.jumps, d), s.jumped+1 })
		},
	}
}

func (s *stepped) forget() { s.do(func(c *stepCounts) { *c = stepCounts{} }) }

func (s *stepped) count() (c stepCounts) {
	s.do(func(now *stepCounts) { c = *now })
	return c
}
