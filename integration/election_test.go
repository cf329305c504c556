package integration_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/leasehold-go/leasehold/dsync"
	"github.com/leasehold-go/leasehold/dsync/driver"
	"github.com/leasehold-go/leasehold/integration/internal/proc"
	"github.com/leasehold-go/leasehold/integration/internal/server"
	"github.com/leasehold-go/leasehold/internal/mongod"
	"github.com/leasehold-go/leasehold/internal/testkit"
	"github.com/leasehold-go/leasehold/leader"
)

// E1–E4, B04, B06: three processes elect a leader. When the leader resigns or closes its session,
// another process leads. When the leader is killed with SIGKILL, another process leads as soon as
// the killed leader's session has lapsed by the server's clock. All processes learn of each new
// leader.
func TestElectionOfProcesses(t *testing.T) {
	t.Parallel()
	lab.One(t, server.Need{}, func(t *testing.T, s *server.Server) {
		r := newRoom(t, s)
		opt := r.short(6 * time.Second)
		store := r.store()
		a := r.args(opt)
		a.Key = "election"
		ps := map[string]*proc.Proc{} // by session ID
		for range 3 {
			p := proc.Start(t, "candidate", a)
			ps[p.Await("ready").Text] = p
		}
		for _, p := range ps {
			p.Tell(proc.Order{Do: "run"})
		}
		var now leaderSeen
		for round, harm := range []string{"resign", "kill", "close"} {
			// Exactly one process is elected, and all remaining processes are notified.
			before := now
			st := follower(t, store, a.Key, before.token, 20*time.Second)
			now = leaderSeen{st.Holders[0].Session, st.Holders[0].Token, st.Term}
			if now.term != before.term+1 {
				t.Errorf("round %d: term %d came after %d, want the next number", round, now.term, before.term)
			}
			p := ps[now.session]
			if p == nil {
				t.Fatalf("round %d: session %s leads, but no process has that session", round, now.session)
			}
			if e := p.Await("elected"); e.Token != now.token || int64(e.N) != now.term {
				t.Errorf("round %d: elected %+v, the store has %+v", round, e, now)
			}
			for _, q := range ps {
				if q == p {
					continue
				}
				for l := q.Await("leader"); l.Token != now.token; {
					l = q.Await("leader")
				}
			}
			time.Sleep(300 * time.Millisecond) // wait until the others are in the queue
			switch harm {
			case "resign", "close":
				start := time.Now()
				p.Tell(proc.Order{Do: harm})
				p.Await(harm)
				if e := p.Await("lost"); e.Token != now.token {
					t.Errorf("the leader lost %+v, want its own term", e)
				}
				follower(t, store, a.Key, now.token, 10*time.Second)
				lab.Note(t, "%s: another leader seen after %v", harm, time.Since(start).Round(time.Millisecond))
			case "kill":
				p.Kill()
				delete(ps, now.session)
				time.Sleep(100 * time.Millisecond)
				died := member(t, store, now.session)
				lapse := died.LastHeartbeat.Add(died.TTL)
				since := follower(t, store, a.Key, now.token, 20*time.Second).Holders[0].Since
				if d := since.Sub(lapse); d < -s.Skew || d > wakeUp {
					t.Errorf("elected %v after the killed leader's session lapsed", d)
				}
				lab.Note(t, "SIGKILL: elected %v after the killed leader's session lapsed (server's clock)", since.Sub(lapse))
			}
		}
	})
}

type leaderSeen struct {
	session string
	token   int64
	term    int64
}

// follower waits for a leader whose token differs from the given one. It returns the state of the key.
func follower(t testing.TB, store driver.Store, key string, token int64, d time.Duration) (st driver.State) {
	t.Helper()
	eventually(t, "there is another leader", func() bool {
		st = load(t, store, key)
		return len(st.Holders) == 1 && st.Holders[0].Token != token
	})
	return st
}

// B02, B03, B29: however the leader is cut off, its context ends before another candidate's Campaign returns. At least
// the grace lies between the two.
func TestB29ContextEndsBeforeTheNextLeads(t *testing.T) {
	t.Parallel()
	lanes, rounds := testkit.Rounds(4, 8), testkit.Rounds(1, 3)
	lab.One(t, server.Need{}, func(t *testing.T, s *server.Server) {
		const ttl = time.Second
		const grace = ttl / 10
		var mu sync.Mutex
		var least time.Duration
		count := 0
		for lane := range lanes {
			t.Run(fmt.Sprint("lane ", lane), func(t *testing.T) {
				t.Parallel()
				r := newRoom(t, s)
				store, opt := r.store(), r.short(ttl)
				next := r.session(r.short(patient))
				stalls := newStallMeter(t)
				for round := range rounds {
					name := fmt.Sprint("election ", round)
					p := r.proxy()
					holder := r.via(p, opt)
					ea, eb := electionOn(t, holder, name, nil), electionOn(t, next, name, nil)
					ctx, err := ea.Campaign(t.Context())
					noErr(t, err)
					notified := make(chan time.Time, 1)
					go func() {
						<-ctx.Done()
						notified <- time.Now()
					}()
					led := campaigning(t.Context(), eb)
					stalls.worst()
					eventually(t, "the next is queued", func() bool { return load(t, store, name).Waiting == 1 })
					if (lane+round)%2 == 0 {
						p.Cut()
					} else {
						p.Hang()
					}
					var at time.Time
					select {
					case at = <-notified:
					case <-time.After(ttl + 5*time.Second):
						t.Fatal("the leader was never notified")
					}
					wantIs(t, "cause", context.Cause(ctx), leader.ErrLost)
					n := leads(t, led)
					gap := stalls.atLeast(t, "another leads", n.at.Sub(at), grace)
					eb.Resign(t.Context())
					mu.Lock()
					if count == 0 || gap < least {
						least = gap
					}
					count++
					mu.Unlock()
				}
			})
		}
		t.Cleanup(func() {
			lab.Note(t, "%d rounds, the context ended at least %v before the next led (grace %v)", count, least.Round(time.Millisecond), grace)
		})
	})
}

// The leader's process is frozen (by SIGSTOP) for two TTLs. When it continues, the first call of the context's Err
// reports that the term is over. The test freezes a leader 6 times, or 20 times in a long run.
func TestFrozenLeader(t *testing.T) {
	t.Parallel()
	processes, rounds := testkit.Rounds(3, 5), testkit.Rounds(2, 4)
	lab.One(t, server.Need{}, func(t *testing.T, s *server.Server) {
		r := newRoom(t, s)
		opt := r.short(time.Second)
		waiter := r.session(r.short(patient))
		for i := range processes {
			t.Run(fmt.Sprint(i), func(t *testing.T) {
				t.Parallel()
				a := r.args(opt)
				a.Key = fmt.Sprint("frozen ", i)
				p := proc.Start(t, "frozenLeader", a)
				p.Await("ready")
				e := electionOn(t, waiter, a.Key, nil)
				for round := range rounds {
					p.Tell(proc.Order{Do: "campaign"})
					p.Await("elected")
					time.Sleep(20 * time.Millisecond) // until it spins
					p.Stop()
					stopped := time.Now()
					leads(t, campaigning(t.Context(), e))
					time.Sleep(time.Until(stopped.Add(2 * opt.TTL)))
					p.Cont()
					if check := p.Await("check"); !check.Lost || check.Is != "lost" {
						t.Errorf("round %d: the first check says %+v, want lost", round, check)
					}
					p.Await("resigned")
					if !e.IsLeader() {
						t.Errorf("round %d: the late Resign ended the next leader's term", round)
					}
					noErr(t, e.Resign(t.Context()))
				}
			})
		}
	})
}

// B15: when the database is back after three TTLs, Run campaigns again by itself. Lost is called once for each call of
// Elected.
func TestB15RunAfterAnOutage(t *testing.T) {
	t.Parallel()
	lab.One(t, server.Need{}, func(t *testing.T, s *server.Server) {
		r := newRoom(t, s)
		opt := r.short(2 * time.Second)
		p := r.proxy()
		var elected, lost atomic.Int64
		e := electionOn(t, r.via(p, opt), "election", &leader.Options{Hooks: &leader.Hooks{
			Elected: func(context.Context, leader.Term) { elected.Add(1) },
			Lost:    func(leader.Term, error) { lost.Add(1) },
		}})
		ctx, cancel := context.WithCancel(t.Context())
		var running atomic.Int64
		done := make(chan error, 1)
		go func() {
			done <- e.Run(ctx, func(ctx context.Context) error {
				running.Add(1)
				defer running.Add(-1)
				<-ctx.Done()
				return errors.New("the work failed, too")
			})
		}()
		eventually(t, "the process leads", func() bool { return running.Load() == 1 })
		for range 2 {
			p.Cut()
			time.Sleep(3 * opt.TTL)
			if running.Load() != 0 || e.IsLeader() {
				t.Fatal("the process leads without a database")
			}
			p.Heal()
			eventually(t, "the process leads again", func() bool { return running.Load() == 1 })
		}
		cancel()
		wantIs(t, "Run", <-done, context.Canceled)
		eventually(t, "one Lost for each Elected", func() bool { return elected.Load() == 3 && lost.Load() == 3 })
	})
}

// A leader keeps its leadership during a planned step-down of the primary.
func TestElectionStepDown(t *testing.T) {
	t.Parallel()
	lab.Each(t, server.Need{Members: true}, func(t *testing.T, s *server.Server) {
		own := lab.Start(t, mongod.Spec{Members: 3, ElectionTimeout: 2 * time.Second})
		r := newRoom(t, own)
		opt := r.lasting()
		leading := r.session(opt)
		a, b := electionOn(t, leading, "election", nil), electionOn(t, r.session(opt), "election", nil)
		ctx, err := a.Campaign(t.Context())
		noErr(t, err)
		led := campaigning(t.Context(), b)
		store := r.store()
		eventually(t, "the next is queued", func() bool { return load(t, store, "election").Waiting == 1 })
		noErr(t, own.Set().StepDown(t.Context()))
		renewed(t, leading, 3)
		if ctx.Err() != nil {
			t.Fatalf("the leadership was lost over a step-down: %v", context.Cause(ctx))
		}
		noErr(t, a.Resign(t.Context()))
		leads(t, led)
	})
}

// If the server has notices, nobody waits for a poll after the leader has resigned. The next leader's Campaign returns
// at once, and observers see the new leader just as quickly. B16: a restarted candidate with the same identity leads
// again. If its old session was closed, it leads at once. After a crash, it leads as soon as the old session has
// lapsed.
func TestB16ResignAndRestart(t *testing.T) {
	t.Parallel()
	lab.One(t, server.Need{Notices: true}, func(t *testing.T, s *server.Server) {
		r := newRoom(t, s)
		opt := dsync.Options{TTL: 10 * time.Second, PollInterval: time.Minute, Name: "node"}
		sa := r.session(opt)
		a, b := electionOn(t, sa, "election", nil), electionOn(t, r.session(opt), "election", nil)
		seen := electionOn(t, r.session(opt), "election", nil).Observe(t.Context())
		if _, err := a.Campaign(t.Context()); err != nil {
			t.Fatal(err)
		}
		led := campaigning(t.Context(), b)
		store := r.store()
		eventually(t, "the next is queued", func() bool { return load(t, store, "election").Waiting == 1 })
		time.Sleep(500 * time.Millisecond) // until it listens
		start := time.Now()
		a.Resign(t.Context())
		took := leads(t, led).at.Sub(start)
		if took > 10*time.Second {
			t.Errorf("the next led after %v, want a notice and no poll", took)
		}
		for l := range seen {
			if l.Term == 2 {
				if l.Name != "node" {
					t.Errorf("observed %+v, want the name node", l)
				}
				break
			}
		}
		if d := time.Since(start); d > 20*time.Second {
			t.Errorf("observed after %v, want a notice and no poll", d)
		}
		lab.Note(t, "the next led %v after Resign was called", took.Round(100*time.Microsecond))

		// B16, after Close.
		b.Resign(t.Context())
		if _, err := a.Campaign(t.Context()); err != nil {
			t.Fatal(err)
		}
		a.Resign(t.Context())
		noErr(t, sa.Close(t.Context()))
		p := r.proxy()
		again := electionOn(t, r.via(p, dsync.Options{TTL: 2 * time.Second, Name: "node"}), "election", nil)
		ctx, err := again.TryCampaign(t.Context())
		if err != nil {
			t.Fatalf("after Close: %v", err)
		}
		// After a crash.
		tm, _ := leader.TermFrom(ctx)
		p.Cut()
		time.Sleep(100 * time.Millisecond)
		died := member(t, store, tm.Session)
		restarted := electionOn(t, r.session(opt), "election", nil)
		leads(t, campaigning(t.Context(), restarted))
		late := load(t, store, "election").Holders[0].Since.Sub(died.LastHeartbeat.Add(died.TTL))
		if late < -s.Skew || late > wakeUp {
			t.Errorf("after a crash the same identity led %v after the old session had lapsed", late)
		}
	})
}

// E8, E9, B18: a session that leads a hundred elections sends one heartbeat per interval. When it resigns from one of
// them, another candidate leads. Candidates lists the candidates with their names, apps and metadata.
func TestHundredElections(t *testing.T) {
	t.Parallel()
	lab.One(t, server.Need{}, func(t *testing.T, s *server.Server) {
		r := newRoom(t, s)
		opt := r.short(2 * patient) // a request times out after a sixth of the TTL
		opt.Retention = -1
		opt.Name, opt.App, opt.Meta = "node-1", "v1", map[string]string{"zone": "x"}
		m := newMonitor(r.DB)
		sa := r.session(opt, m.client())
		other := r.session(r.short(2 * patient))
		var first *leader.Election
		for i := range 100 {
			e := electionOn(t, sa, fmt.Sprint("election ", i), nil)
			if _, err := e.TryCampaign(t.Context()); err != nil {
				t.Fatal(err)
			}
			if i == 0 {
				first = e
			}
		}
		b := electionOn(t, other, "election 0", nil)
		led := campaigning(t.Context(), b)
		eventually(t, "both are candidates", func() bool {
			all, err := first.Candidates(t.Context())
			if err != nil || len(all) != 2 || all[1].IsLeader {
				return false
			}
			l := all[0]
			return l.IsLeader && l.Name == "node-1" && l.App == "v1" && l.Meta["zone"] == "x" && !l.Seen.IsZero()
		})
		m.reset()
		start := time.Now()
		time.Sleep(opt.TTL)
		periods := int(time.Since(start)/(opt.TTL/3)) + 1
		look := func(c command) bool { return c.name == "aggregate" } // reads the held keys
		looks, others := m.commands(look), m.commands(func(c command) bool { return !look(c) && !aboutNotices(c) })
		if len(looks) > periods+2 || len(others) > periods+2 || slices.ContainsFunc(others, func(c command) bool { return !strings.HasPrefix(c.id, "s/") }) {
			t.Errorf("in %d periods the commands were %v and %v, want one heartbeat and one read each", periods, others, looks)
		}
		noErr(t, first.Resign(t.Context()))
		leads(t, led)
	})
}

// S3: the functions of a group spread out over three sessions, and each function runs on one
// session at a time. When a session is cut off, its functions move to the other two.
func TestGroupOfThree(t *testing.T) {
	t.Parallel()
	const functions = 30
	lab.One(t, server.Need{}, func(t *testing.T, s *server.Server) {
		r := newRoom(t, s)
		opt := r.short(6 * time.Second)
		if opt.PollInterval > 0 {
			opt.PollInterval = 500 * time.Millisecond // sixty candidates poll
		}
		var mu sync.Mutex
		running := map[string]int{} // by function
		loads := make([]int, 3)
		count := func(process int, name string, d int) {
			mu.Lock()
			defer mu.Unlock()
			loads[process] += d
			if running[name] += d; running[name] > 1 {
				t.Errorf("%s runs %d times", name, running[name])
			}
		}
		sum := func() (n int) {
			mu.Lock()
			defer mu.Unlock()
			for _, k := range running {
				n += k
			}
			return n
		}
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		p := r.proxy()
		var groups []*leader.Group
		for i := range loads {
			session := r.session(opt)
			if i == 0 {
				session = r.via(p, opt)
			}
			g, _, err := leader.NewGroup(ctx, session, "jobs", nil)
			noErr(t, err)
			groups = append(groups, g)
			for f := range functions {
				name := fmt.Sprint("f", f)
				_, err := g.Go(name, func(ctx context.Context) error {
					count(i, name, 1)
					defer count(i, name, -1)
					<-ctx.Done()
					return ctx.Err()
				})
				noErr(t, err)
			}
		}
		eventually(t, "all functions run, except perhaps one, spread over the sessions", func() bool {
			if sum() < functions-1 {
				return false
			}
			mu.Lock()
			defer mu.Unlock()
			return slices.Min(loads) >= functions/3-3
		})
		mu.Lock()
		spread := slices.Clone(loads)
		mu.Unlock()
		p.Cut()
		eventually(t, "all functions run on the remaining two", func() bool {
			mu.Lock()
			gone := loads[0] == 0
			mu.Unlock()
			return gone && sum() == functions
		})
		lab.Note(t, "%d functions on 3 processes: %v; one cut off: %v", functions, spread, loads)
		cancel()
		for _, g := range groups {
			wantIs(t, "Wait", g.Wait(), context.Canceled)
		}
	})
}

func electionOn(t testing.TB, s *dsync.Session, name string, opt *leader.Options) *leader.Election {
	t.Helper()
	e, err := leader.New(s, name, opt)
	noErr(t, err)
	return e
}

// led is the result of a call of Campaign that campaigning started.
type led struct {
	at  time.Time // when Campaign returned
	ctx context.Context
	err error
}

func campaigning(ctx context.Context, e *leader.Election) <-chan led {
	ch := make(chan led, 1)
	go func() {
		c, err := e.Campaign(ctx)
		ch <- led{time.Now(), c, err}
	}()
	return ch
}

// leads waits until Campaign returns. It fails the test if the candidate does not lead within a
// minute.
func leads(t testing.TB, ch <-chan led) led {
	t.Helper()
	select {
	case l := <-ch:
		if l.err != nil {
			t.Fatalf("Campaign: %v", l.err)
		}
		return l
	case <-time.After(time.Minute):
		t.Fatal("not elected within a minute")
		panic("unreachable")
	}
}

func wantIs(t testing.TB, what string, err, want error) {
	t.Helper()
	if !errors.Is(err, want) {
		t.Errorf("%s: %v, want %v", what, err, want)
	}
}
