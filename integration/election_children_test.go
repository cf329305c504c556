package integration_test

import (
	"context"
	"fmt"
	"runtime"
	"sync"
	"time"

	"github.com/leasehold-go/leasehold/integration/internal/proc"
	"github.com/leasehold-go/leasehold/leader"
)

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
