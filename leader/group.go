package leader

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/leasehold-go/leasehold/dsync"
	"github.com/leasehold-go/leasehold/internal/calls"
)

// A Group is an errgroup of named singletons: functions of which each runs on one
// process of the fleet at a time, among those that have it in a group of the same
// name. When that process dies, loses it or removes it, another runs it.
//
// Functions spread over the fleet. A process that runs more than its share of
// them, the number it has divided by the number of processes that have them,
// rounded up, resigns those that others wait for, one at a time every
// [GroupOptions].Balance. So a process that comes later gets its share, too, and a
// function must be such that it can end and begin again elsewhere.
//
// Each function has an [Election], named by the group, a slash and the function: what
// a group "jobs" runs as "mails" is shown, observed and broken as "jobs/mails".
//
// Make one with [NewGroup]; it must not be copied. All methods may be called
// concurrently.
type Group struct {
	s      *dsync.Session
	name   string
	opt    GroupOptions
	hooks  calls.Queue
	ctx    context.Context
	cancel context.CancelCauseFunc

	balanced chan struct{} // closed when the balancing has ended

	mu   sync.Mutex
	err  error // the first
	runs map[string]*single
}

// GroupOptions are the settings of a [Group]. The zero value of each field is its
// default; a nil *GroupOptions is all defaults.
type GroupOptions struct {
	// Balance is how often a process looks whether it runs more than its share,
	// jittered by half. Default a third of the session's TTL; negative: never, so
	// that the first process keeps what it got.
	Balance time.Duration

	// Started and Stopped are called when a function has started and stopped on
	// this process, like hooks of an [Election]; err is what it returned.
	Started func(t Term)
	Stopped func(t Term, err error)

	// Election are the options of the election of each function.
	Election *Options
}

// A single is one function of a group.
type single struct {
	name     string
	election *Election
	cancel   context.CancelCauseFunc
	running  bool
	done     chan struct{} // closed when it has left the group
}

// A Singleton is what [Group.List] tells of a function.
type Singleton struct {
	Name     string    // as given to Go
	Running  bool      // on this process
	Election *Election // its NewLeader, Cycle, StoreError, Joined and Left are called until the function has left the group
}

// errRemoved is the cause with which a function that was removed is cancelled.
var errRemoved = errors.New("leader: removed from the group")

// NewGroup returns a group of that name on s, and a context that ends with ctx,
// with the first error of a function, or when Wait returns, as that of
// errgroup.WithContext does. The functions run under contexts made from it. It
// refuses a nil session and a name that dsync.CheckKey refuses.
func NewGroup(ctx context.Context, s *dsync.Session, name string, opt *GroupOptions) (*Group, context.Context, error) {
	if s == nil {
		return nil, nil, errors.New("leader: the session is nil; make one with Open or Connect of dsync/mongo, or dsync.New")
	}
	if err := dsync.CheckKey(name); err != nil {
		return nil, nil, fmt.Errorf("leader: name of the group: %w", err)
	}
	g := &Group{s: s, name: name, runs: make(map[string]*single), balanced: make(chan struct{})}
	if opt != nil {
		g.opt = *opt
	}
	if g.opt.Balance == 0 {
		g.opt.Balance = s.TTL() / 3
	}
	g.ctx, g.cancel = context.WithCancelCause(ctx)
	go g.balance()
	return g, g.ctx, nil
}

// Go adds a function to the group, under a name that is unique in it, and returns
// at once. f runs on this process when it is elected to; its context ends when it
// is not any more, and then it must return, to be run again when it is elected
// again.
//
// When f returns nil while its context goes on, it leaves the group on this
// process, and another may run it. When it returns an error then, the group's
// context ends, and [Group.Wait] returns the error, if it is the first.
//
// The error is that of a name that is in the group already or that can't be used,
// or of a group that has ended, also by [Group.Wait].
func (g *Group) Go(name string, f func(context.Context) error) error {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.ctx.Err() != nil {
		return fmt.Errorf("leader: group %q has ended: %w", g.name, context.Cause(g.ctx))
	}
	if g.runs[name] != nil {
		return fmt.Errorf("leader: group %q has a function %q already", g.name, name)
	}
	heard, leave := context.WithCancel(context.Background()) // not the group's: hooks hear of how it ends
	election, err := newElection(heard, g.s, g.name+"/"+name, g.opt.Election)
	if err != nil {
		leave()
		return err
	}
	ctx, cancel := context.WithCancelCause(g.ctx)
	r := &single{name: name, election: election, cancel: cancel, done: make(chan struct{})}
	g.runs[name] = r
	go func() {
		var err error
		defer func() { // also when f calls runtime.Goexit
			g.mu.Lock()
			defer g.mu.Unlock()
			delete(g.runs, name)
			if err != nil && g.err == nil && !errors.Is(context.Cause(ctx), errRemoved) {
				g.err = err
				g.cancel(err)
			}
			cancel(nil)
			leave()
			close(r.done)
		}()
		err = g.run(ctx, r, f)
	}()
	return nil
}

func (g *Group) run(ctx context.Context, r *single, f func(context.Context) error) error {
	// Processes that start together ask in orders of their own.
	if g.opt.Balance > 0 {
		t := time.NewTimer(rand.N(g.opt.Balance / 10))
		defer t.Stop()
		select {
		case <-t.C:
		case <-ctx.Done():
		}
	}
	return r.election.Run(ctx, func(ctx context.Context) (err error) {
		t, _ := TermFrom(ctx)
		g.started(r, true)
		if s := g.opt.Started; s != nil {
			g.hooks.Add(func() { s(t) })
		}
		defer func() {
			g.started(r, false)
			if s := g.opt.Stopped; s != nil {
				g.hooks.Add(func() { s(t, err) })
			}
		}()
		return f(ctx)
	})
}

func (g *Group) started(r *single, running bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	r.running = running
}

// Wait waits until all functions have left the group, ends its context, and
// returns the first error, if any: ctx's when that of [NewGroup] ended before the
// functions. A function stays until it returns nil or an error, is removed, or the
// group's context ends.
//
// So it returns at once while there is none in the group, before the first Go, too,
// as errgroup's Wait does; and as the context has ended then, no function can be
// added any more. A program that adds and removes functions as it goes calls it when
// the group's context has ended.
func (g *Group) Wait() error {
	for r := g.next(); r != nil; r = g.next() {
		<-r.done
	}
	<-g.balanced
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.err
}

// next returns a function that is in the group, or nil after it has ended the group
// because there is none. A sync.WaitGroup would not do: its first Add must not
// meet a Wait, and Go may.
func (g *Group) next() *single {
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, r := range g.runs {
		return r
	}
	g.cancel(context.Canceled)
	return nil
}

// Remove removes a function from the group on this process, waits until it has
// returned, if it runs, or until ctx ends, and lets another process run it. It
// reports whether there was such a function. A function that removes itself calls
// it with its own context, and is not waited for.
func (g *Group) Remove(ctx context.Context, name string) bool {
	g.mu.Lock()
	r := g.runs[name]
	g.mu.Unlock()
	if r == nil {
		return false
	}
	inside, ok := TermFrom(ctx)
	r.cancel(errRemoved)
	if ok && inside.Election == r.election.Name() {
		return true
	}
	select {
	case <-r.done:
	case <-ctx.Done():
	}
	return true
}

// List returns the functions that are in the group on this process, by name.
func (g *Group) List() []Singleton {
	g.mu.Lock()
	defer g.mu.Unlock()
	var list []Singleton
	for _, r := range g.runs {
		list = append(list, Singleton{Name: r.name, Running: r.running, Election: r.election})
	}
	slices.SortFunc(list, func(a, b Singleton) int { return strings.Compare(a.Name, b.Name) })
	return list
}

// balance resigns, now and then, one function of which this process has more than
// its share.
func (g *Group) balance() {
	defer close(g.balanced)
	if g.opt.Balance < 0 {
		return
	}
	for {
		t := time.NewTimer(g.opt.Balance/2 + rand.N(g.opt.Balance))
		select {
		case <-t.C:
			g.shed()
		case <-g.ctx.Done():
			t.Stop()
			return
		}
	}
}

// shed resigns one function that another process waits for, if this one runs more
// than its share. It looks at one at random: the processes that have a function
// are those that hold it or wait for it.
func (g *Group) shed() {
	g.mu.Lock()
	var running []*single
	all := len(g.runs)
	for _, r := range g.runs {
		if r.running {
			running = append(running, r)
		}
	}
	g.mu.Unlock()
	if len(running) < 2 {
		return
	}
	r := running[rand.N(len(running))]
	st, err := g.s.Load(g.ctx, r.election.Name())
	if err != nil || st.Waiting == 0 {
		return
	}
	processes := 1 + st.Waiting
	if share := (all + processes - 1) / processes; len(running) > share {
		_ = r.election.Resign(g.ctx)
	}
}
