package integration_test

import (
	"context"
	"fmt"
	"os"
	"sync"
	"testing"
	"time"

	"github.com/leasehold-go/leasehold/integration/internal/server"
	"github.com/leasehold-go/leasehold/internal/mongod"
	"github.com/leasehold-go/leasehold/leader"
	"go.mongodb.org/mongo-driver/v2/bson"
)

// A hold survives the loss of the primary if the set elects another primary within half the TTL. When the hold is
// released, the next waiter is granted the key as usual.
func TestFailover(t *testing.T) {
	t.Parallel()
	cases := map[string]func(t *testing.T, set *mongod.Set){
		"step-down": func(t *testing.T, set *mongod.Set) {
			if err := set.StepDown(t.Context()); err != nil {
				t.Fatalf("step-down: %v", err)
			}
		},
		"primary killed": func(t *testing.T, set *mongod.Set) {
			m := primary(t, set)
			m.Kill()
			t.Cleanup(func() { m.Start() })
		},
		"primary frozen": func(t *testing.T, set *mongod.Set) {
			m := primary(t, set)
			noErr(t, m.Freeze())
			thaw := time.AfterFunc(8*time.Second, func() { m.Thaw() }) // the frozen member continues as a former primary
			t.Cleanup(func() { thaw.Stop(); m.Thaw() })
		},
	}
	lab.Each(t, server.Need{Members: true}, func(t *testing.T, s *server.Server) {
		for name, harm := range cases {
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				own := lab.Start(t, mongod.Spec{Members: 3, ElectionTimeout: 2 * time.Second})
				r := newRoom(t, own)
				var lost losses
				opt := r.lasting()
				opt.Hooks = lost.hooks()
				a, b := r.session(opt), r.session(opt)
				ma, mb := a.Mutex("key"), b.Mutex("key")
				h := lock(t, ma)
				first := h.Token()
				ch := locking(t.Context(), mb)
				store := r.store()
				eventually(t, "the waiter is queued", func() bool { return load(t, store, "key").Waiting == 1 })

				old := primary(t, own.Set()).Addr
				harm(t, own.Set())
				begin := time.Now()
				eventually(t, "there is another primary", func() bool {
					ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
					defer cancel()
					m, err := own.Set().Primary(ctx)
					return err == nil && m.Addr != old
				})
				election := time.Since(begin)
				renewed(t, a, 3)
				if h.Token() != first {
					t.Errorf("the lock was lost when the primary changed")
				}
				select {
				case g := <-ch:
					t.Fatalf("granted to another: %v", g)
				default:
				}
				release(t, h)
				g := granted(t, ch)
				if g.token <= first {
					t.Errorf("token %d came after %d, want a greater one", g.token, first)
				}
				release(t, g.h)
				for range 20 {
					release(t, lock(t, ma))
				}
				lost.none(t)
				lab.Note(t, "another primary after %.1f s", election.Seconds())
			})
		}
	})
}

func primary(t *testing.T, set *mongod.Set) *mongod.Member {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	m, err := set.Primary(ctx)
	noErr(t, err)
	return m
}

// formerVersions maps each release to the feature compatibility version of the previous release.
// Each release also supports that version.
var formerVersions = map[string]string{"4.4": "4.2", "5.0": "4.4", "6.0": "5.0", "7.0": "6.0", "8.0": "7.0"}

// turnsOf checks that turns exclude each other and that their tokens grow.
type turnsOf struct {
	t    *testing.T
	what string

	mu   sync.Mutex
	now  int
	n    int
	last int64
}

func (o *turnsOf) begin(token int64) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.now++; o.now > 1 {
		o.t.Errorf("%s: %d turns at the same time, want 1", o.what, o.now)
	}
	if token <= o.last {
		o.t.Errorf("%s: %d came after %d, want a greater one", o.what, token, o.last)
	}
	o.last, o.n = token, o.n+1
}

func (o *turnsOf) end() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.now--
}

func (o *turnsOf) count() int {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.n
}

// MongoDB is upgraded one member at a time while sessions lock, wait and elect. The members are
// restarted in turn with the next release. The primary steps down and is restarted last; then the
// feature compatibility version is raised. Nobody loses anything. LEASEHOLD_NEXT_MONGOD names the
// next release's mongod. If it is not set, the replica set begins with the previous feature
// compatibility version, and its members are restarted with the same program.
func TestRollingUpgrade(t *testing.T) {
	t.Parallel()
	lab.Each(t, server.Need{Members: true}, func(t *testing.T, s *server.Server) {
		own := lab.Start(t, mongod.Spec{Members: 3, ElectionTimeout: 2 * time.Second})
		r := newRoom(t, own)
		from, to, next := formerVersions[fmt.Sprintf("%.3s", own.Version)], fmt.Sprintf("%.3s", own.Version), os.Getenv("LEASEHOLD_NEXT_MONGOD")
		if next != "" {
			from, to = to, ""
			for release, former := range formerVersions {
				if former == from {
					to = release
				}
			}
		}
		if from == "" || to == "" {
			lab.Skip(t, s, "the releases before and after "+own.Version+" are not known")
		}
		compatible := func(version string) {
			t.Helper()
			cmd := bson.D{{Key: "setFeatureCompatibilityVersion", Value: version}}
			if version >= "7.0" || own.Major() >= 7 {
				cmd = append(cmd, bson.E{Key: "confirm", Value: true})
			}
			if err := own.Client(t).Database("admin").RunCommand(t.Context(), cmd).Err(); err != nil {
				t.Fatalf("%v: %v", cmd, err)
			}
		}
		compatible(from)

		var lost losses
		opt := r.lasting()
		opt.Hooks = lost.hooks()
		ctx, cancel := context.WithCancel(t.Context())
		var busy sync.WaitGroup
		defer busy.Wait()
		defer cancel()
		locks, terms := &turnsOf{t: t, what: "tokens"}, &turnsOf{t: t, what: "terms"}
		for range 3 {
			session := r.session(opt)
			m := session.Mutex("turns")
			busy.Go(func() {
				for ctx.Err() == nil {
					h, err := m.Hold(ctx)
					if err != nil {
						if ctx.Err() == nil {
							t.Errorf("Hold: %v", err)
						}
						return
					}
					locks.begin(h.Token())
					time.Sleep(20 * time.Millisecond)
					locks.end()
					if err := h.Release(context.Background()); err != nil {
						t.Errorf("Release: %v", err)
					}
				}
			})
			election, err := leader.New(session, "leader", nil)
			noErr(t, err)
			busy.Go(func() {
				for ctx.Err() == nil {
					err := election.Run(ctx, func(ctx context.Context) error {
						term, _ := leader.TermFrom(ctx)
						terms.begin(term.Number)
						defer terms.end()
						time.Sleep(20 * time.Millisecond)
						return ctx.Err()
					})
					if err != nil && ctx.Err() == nil {
						t.Errorf("Run: %v", err)
					}
				}
			})
		}
		kept := lock(t, r.session(opt).Mutex("kept"))
		token, ch := kept.Token(), locking(t.Context(), r.session(opt).Mutex("kept"))

		// goOn checks that all sessions make progress after a step of the upgrade.
		goOn := func(after string) {
			t.Helper()
			l, e := locks.count(), terms.count()
			eventually(t, after+": all sessions make progress", func() bool { return locks.count() > l+20 && terms.count() > e+20 })
		}
		restart := func(m *mongod.Member) {
			t.Helper()
			noErr(t, m.Stop())
			if next != "" {
				m.Replace(next)
			}
			noErr(t, m.Start())
			direct := server.Connect(t, "mongodb://"+m.Addr+"/?directConnection=true").Database("admin")
			eventually(t, "the member is back", func() bool {
				var hello struct{ Secondary bool }
				err := direct.RunCommand(t.Context(), bson.D{{Key: "hello", Value: 1}}).Decode(&hello)
				return err == nil && hello.Secondary
			})
			goOn("a restart")
		}
		goOn("the beginning")
		first := primary(t, own.Set())
		for _, m := range secondaries(t, own.Set()) {
			restart(m)
		}
		noErr(t, own.Set().StepDown(t.Context()))
		goOn("a step-down")
		restart(first)
		compatible(to)
		goOn("a higher version")

		if kept.Token() != token {
			t.Errorf("token %d, want %d unchanged", kept.Token(), token)
		}
		select {
		case g := <-ch:
			t.Errorf("granted to another: %+v", g)
		default:
		}
		release(t, kept)
		g := granted(t, ch)
		if g.token <= token {
			t.Errorf("token %d came after %d, want a greater one", g.token, token)
		}
		release(t, g.h)
		cancel()
		busy.Wait()
		if n := lost.session.Load(); n != 0 { // no hold can be lost unless a session is
			t.Errorf("lost %d sessions, want none", n)
		}
		lab.Note(t, "from %s to %s: %d turns and %d terms", from, to, locks.count(), terms.count())
	})
}
