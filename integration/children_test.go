package integration_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"sync"
	"time"

	"github.com/leasehold-go/leasehold/dsync"
	dsyncmongo "github.com/leasehold-go/leasehold/dsync/mongo"
	"github.com/leasehold-go/leasehold/integration/internal/proc"
	"github.com/leasehold-go/leasehold/leader"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"
)

// children are the functions that child processes can run.
var children = map[string]proc.Func{
	"beating":      beating,
	"turns":        turns,
	"worker":       worker,
	"frozen":       frozen,
	"fenced":       fenced,
	"candidate":    candidate,
	"frozenLeader": frozenLeader,
	"nemesis":      nemesisWork,
	"migrating":    migrating,
	"ticking":      ticking,
	"guarding":     guarding,
	"several":      several,
	"contending":   contending,
}

// childArgs are the arguments of all children.
type childArgs struct {
	URI, DB string
	TTL     time.Duration
	Poll    time.Duration
	Key     string
	Rounds  int
	Dir     string
	How     string
	HostDir string
}

// args returns the arguments of a child in the room.
func (r *room) args(o dsync.Options) childArgs {
	return childArgs{URI: r.URI, DB: r.DB, TTL: o.TTL, Poll: o.PollInterval, HostDir: o.HostDir}
}

func (a childArgs) session(env *proc.Env, h *dsync.Hooks) *dsync.Session {
	client, err := mongo.Connect(options.Client().ApplyURI(a.URI))
	if err != nil {
		env.Fatal(err)
	}
	s, err := dsyncmongo.Open(context.Background(), client.Database(a.DB), &dsyncmongo.Options{
		Session: dsync.Options{TTL: a.TTL, PollInterval: a.Poll, HostDir: a.HostDir, Hooks: h},
	})
	if err != nil {
		env.Fatal(err)
	}
	return s
}

// turns is a child that locks the key many times. Under the lock it adds one to a number in a file. It reads and writes
// the file separately, so additions are lost if two processes hold the lock at the same time.
func turns(env *proc.Env) {
	var a childArgs
	env.Args(&a)
	s := a.session(env, nil)
	m := s.Mutex(a.Key)
	number, inside := filepath.Join(a.Dir, "number"), filepath.Join(a.Dir, "inside")
	env.Emit(proc.Event{Name: "ready"})
	<-env.Orders()
	for range a.Rounds {
		m.Lock()
		token := m.Token()
		f, err := os.OpenFile(inside, os.O_CREATE|os.O_EXCL, 0o600)
		if err != nil {
			env.Fatal(fmt.Errorf("two processes hold the lock at the same time: %w", err))
		}
		f.Close()
		n := 0
		if text, err := os.ReadFile(number); err == nil {
			n, _ = strconv.Atoi(string(text))
		}
		runtime.Gosched()
		if err := os.WriteFile(number, []byte(strconv.Itoa(n+1)), 0o600); err != nil {
			env.Fatal(err)
		}
		if err := os.Remove(inside); err != nil {
			env.Fatal(err)
		}
		lost := closed(m.Lost())
		m.Unlock()
		env.Emit(proc.Event{Name: "turn", N: n, Token: token, Lost: lost})
	}
	if err := s.Close(context.Background()); err != nil {
		env.Fatal(err)
	}
	env.Emit(proc.Event{Name: "done"})
}

// worker is a child that obeys these orders, one after the other. After each order it emits an event of the same name.
//
//	lock, unlock   locks or unlocks the order's key
//	close          closes the session
func worker(env *proc.Env) {
	var a childArgs
	env.Args(&a)
	s := a.session(env, &dsync.Hooks{
		Lost:           func(l dsync.HoldInfo) { env.Emit(proc.Event{Name: "lost", Key: l.Key, Token: l.Token}) },
		SessionStarted: func(id string) { env.Emit(proc.Event{Name: "session", Text: id}) },
		Deadlock: func(members, keys []string) {
			env.Emit(proc.Event{Name: "deadlock", Text: fmt.Sprint(members, keys), N: len(members)})
		},
	})
	env.Emit(proc.Event{Name: "ready"})
	holds := make(map[string]*dsync.Hold)
	for o := range env.Orders() {
		var err error
		ev := proc.Event{Name: o.Do, Key: o.Key}
		switch o.Do {
		case "lock":
			var h *dsync.Hold
			if h, err = s.Mutex(o.Key).Hold(context.Background()); err == nil {
				holds[o.Key], ev.Token = h, h.Token()
			}
			ev.Text = s.ID()
		case "unlock":
			err = holds[o.Key].Release(context.Background())
		case "close":
			err = s.Close(context.Background())
		default:
			env.Fatal(fmt.Errorf("unknown order %q", o.Do))
		}
		if err != nil {
			ev.Err, ev.Is = err.Error(), sentinel(err)
		}
		env.Emit(ev)
	}
}

// frozen is a child. For each order, it locks the key and spins until it notices that it was frozen for longer than a
// TTL. Then it checks the hold once, in the way that the order names, and unlocks. It runs on one thread, so nothing
// but the library call under test runs between the thaw and the check.
func frozen(env *proc.Env) {
	var a childArgs
	env.Args(&a)
	runtime.GOMAXPROCS(1)
	s := a.session(env, nil)
	env.Emit(proc.Event{Name: "ready"})
	for o := range env.Orders() {
		m := s.Mutex(a.Key)
		var checked proc.Event
		f := func(ctx context.Context, h *dsync.Hold) {
			checked = proc.Event{Name: "check", Text: o.Do}
			env.Emit(proc.Event{Name: "locked", Token: h.Token(), Text: s.ID()})
			last := time.Now()
			for {
				now := time.Now()
				gap := now.Sub(last)
				last = now
				if gap > a.TTL {
					checked.Took = gap
					break
				}
			}
			switch o.Do {
			case "lost":
				checked.Lost = closed(h.Lost())
			case "token":
				checked.Lost = h.Token() == 0
			case "err":
				checked.Lost = ctx.Err() != nil
			}
			env.Emit(checked)
		}
		var err error
		if o.Do == "err" {
			err = m.Do(context.Background(), func(ctx context.Context) error {
				f(ctx, dsync.HoldFrom(ctx))
				return nil
			})
		} else if h, herr := m.Hold(context.Background()); herr != nil {
			env.Fatal(herr)
		} else {
			f(nil, h)
			err = h.Release(context.Background())
		}
		ev := proc.Event{Name: "unlocked", Is: sentinel(err)}
		if err != nil {
			ev.Err = err.Error()
		}
		env.Emit(ev)
	}
	if err := s.Close(context.Background()); err != nil && !errors.Is(err, context.Canceled) {
		env.Fatal(err)
	}
}

// startHolder starts a worker that holds the key.
func (r *room) startHolder(o dsync.Options, key string) (*proc.Proc, proc.Event) {
	r.t.Helper()
	p := proc.Start(r.t, "worker", r.args(o))
	p.Await("ready")
	p.Tell(proc.Order{Do: "lock", Key: key})
	return p, p.Await("lock")
}

// candidate is a child that takes part in the election named a.Key and obeys these orders:
//
//	run      calls Run, so that it campaigns from now on
//	resign   resigns, and stays a candidate
//	close    closes the session
//
// It reports "elected" and "lost", and "leader" for each leader that it observes.
func candidate(env *proc.Env) {
	var a childArgs
	env.Args(&a)
	s := a.session(env, nil)
	e, err := leader.New(s, a.Key, &leader.Options{
		Value: []byte(a.How),
		Hooks: &leader.Hooks{
			Elected: func(_ context.Context, t leader.Term) {
				env.Emit(proc.Event{Name: "elected", N: int(t.Number), Token: t.Token, Text: t.Session})
			},
			Lost: func(t leader.Term, cause error) {
				env.Emit(proc.Event{Name: "lost", N: int(t.Number), Token: t.Token, Err: cause.Error(), Is: sentinel(cause)})
			},
			NewLeader: func(_, now leader.Leader) {
				env.Emit(proc.Event{Name: "leader", N: int(now.Term), Token: now.Token, Text: now.Session})
			},
		},
	})
	if err != nil {
		env.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	e.Observe(ctx) // registers the session
	for s.ID() == "" {
		time.Sleep(10 * time.Millisecond)
	}
	env.Emit(proc.Event{Name: "ready", Text: s.ID()})
	var runs sync.WaitGroup
	for o := range env.Orders() {
		switch o.Do {
		case "run":
			runs.Go(func() {
				e.Run(ctx, func(ctx context.Context) error {
					<-ctx.Done()
					return ctx.Err()
				})
			})
		case "resign":
			err = e.Resign(context.Background())
		case "close":
			cancel()
			runs.Wait()
			err = s.Close(context.Background())
		default:
			err = fmt.Errorf("unknown order %q", o.Do)
		}
		if err != nil {
			env.Fatal(err)
		}
		env.Emit(proc.Event{Name: o.Do})
	}
}

// On each order, frozenLeader campaigns in the election named a.Key, spins until it notices that
// it was frozen, and checks the term's context once.
func frozenLeader(env *proc.Env) {
	var a childArgs
	env.Args(&a)
	runtime.GOMAXPROCS(1)
	s := a.session(env, nil)
	e, err := leader.New(s, a.Key, nil)
	if err != nil {
		env.Fatal(err)
	}
	env.Emit(proc.Event{Name: "ready"})
	for range env.Orders() {
		ctx, err := e.Campaign(context.Background())
		if err != nil {
			env.Fatal(err)
		}
		t, _ := leader.TermFrom(ctx)
		env.Emit(proc.Event{Name: "elected", N: int(t.Number), Token: t.Token, Text: t.Session})
		last := time.Now()
		for {
			now := time.Now()
			gap := now.Sub(last)
			last = now
			if gap > a.TTL {
				break
			}
		}
		env.Emit(proc.Event{Name: "check", Lost: ctx.Err() != nil, Is: sentinel(context.Cause(ctx))})
		if err := e.Resign(context.Background()); sentinel(err) != "lost" {
			env.Fatal(fmt.Errorf("late Resign: %v, want ErrLost", err))
		}
		env.Emit(proc.Event{Name: "resigned"})
	}
}
