package leader

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/leasehold-go/leasehold/internal/engine"

	"github.com/leasehold-go/leasehold/dsync"
	"github.com/leasehold-go/leasehold/dsync/driver"
)

// A Group is an errgroup of named singletons. If several processes have a function of the same name in groups of the
// same name, only one of them runs it at a time. When that process dies, loses the function's election or removes the
// function, another process runs it.
//
// The functions spread evenly over the processes. A process's share is the number of functions in its
// group divided by the number of processes that have them, rounded up. A process that runs more than
// its share resigns functions that others wait for, at most one every [GroupOptions].BalanceInterval.
// So a process that starts later gets its share, too.
//
// Each function has an [Election], whose name is the group's name, a slash and the function's name. For
// example, use "jobs/mails" to observe or break the function "mails" of group "jobs". The function's
// name may contain slashes; the group's name may not, so that no two groups share an election.
//
// Make a Group with [NewGroup]; it must not be copied. All methods may be called concurrently.
type Group struct {
	s      *engine.Session
	name   string
	opt    GroupOptions
	ctx    context.Context
	cancel context.CancelCauseFunc

	balanced chan struct{} // closed when the balancing has ended

	mu   sync.Mutex
	err  error // the first
	runs map[string]*Singleton
}

// GroupOptions are the settings of a [Group]. The zero value of each field is its
// default; a nil *GroupOptions is all defaults.
type GroupOptions struct {
	// BalanceInterval is how often a process checks whether it runs more than its share, jittered by ±50 %. It must be
	// at least 10 ms and at most 50 years. Default: a third of the session's TTL. Negative: never.
	//
	// Unless BalanceInterval is negative, each function waits for a random time before its first campaign, so that
	// processes that start together share the functions. The wait is at most a tenth of BalanceInterval and at most a
	// thirtieth of the TTL.
	BalanceInterval time.Duration

	// Election has the options of each function's election. With YieldAfter, BalanceInterval must be negative.
	Election *Options
}

// minBalance is the shortest BalanceInterval allowed. With a shorter interval, a process would do
// little but read its elections.
const minBalance = 10 * time.Millisecond

// A Singleton is a function in a [Group] on this process, from [Group.Go] until it has left the group.
// It must not be copied. All methods may be called concurrently.
type Singleton struct {
	Name     string    // as given to Go
	Election *Election // its hooks NewLeader and Refreshed are called until the function leaves the group

	g      *Group
	cancel context.CancelCauseFunc
	done   chan struct{} // closed when the function has left the group

	// Guarded by g.mu:
	running bool
	term    Term // while it runs
}

// Running reports whether the function runs on this process, that is, was called and has not
// returned.
func (s *Singleton) Running() bool {
	s.g.mu.Lock()
	defer s.g.mu.Unlock()
	return s.running
}

// String returns the names and the state, such as `function "mails" of group "jobs": running, term 7`.
func (s *Singleton) String() string {
	s.g.mu.Lock()
	defer s.g.mu.Unlock()
	state := "not running"
	switch {
	case s.running:
		state = fmt.Sprintf("running, term %d", s.term.Number)
	case s.g.runs[s.Name] != s:
		state = "left the group"
	}
	return fmt.Sprintf("function %q of group %q: %s", s.Name, s.g.name, state)
}

// Done returns a channel that is closed when the function has left the group. The function leaves because it returned
// during its term, was removed or could not campaign, or because the group has ended. Afterwards the function does not
// run on this process.
func (s *Singleton) Done() <-chan struct{} { return s.done }

// runs records that the function runs in the term t, until done is called.
func (s *Singleton) runs(t Term) (done func()) {
	s.g.mu.Lock()
	defer s.g.mu.Unlock()
	s.running, s.term = true, t
	return func() {
		s.g.mu.Lock()
		defer s.g.mu.Unlock()
		s.running = false
	}
}

// Remove removes the function from this process's group, so that another process can run it. It waits
// until the function has returned or ctx ends, and reports whether the function was in the group.
// If ctx is the function's context or was made from it, Remove does not wait.
func (s *Singleton) Remove(ctx context.Context) bool {
	s.g.mu.Lock()
	in := s.g.runs[s.Name] == s
	s.g.mu.Unlock()
	if !in {
		return false
	}
	inside, ok := TermFrom(ctx)
	s.cancel(errRemoved)
	if ok && inside.Election == s.Election.name {
		return true
	}
	select {
	case <-s.done:
	case <-ctx.Done():
	}
	return true
}

// errRemoved is the cause of a function's context when the function is removed.
var errRemoved = errors.New("leader: removed from the group")

// NewGroup returns a group of that name on s, and a context made from ctx. As with errgroup.WithContext, that context
// ends when a function first returns an error, or when Wait returns. NewGroup returns an error if s is nil or
// BalanceInterval is too short or too long. If name contains a slash, or if dsync.CheckKey refuses it, the error
// matches dsync.ErrInvalidKey.
func NewGroup(ctx context.Context, s *dsync.Session, name string, opt *GroupOptions) (*Group, context.Context, error) {
	if s == nil {
		return nil, nil, errors.New("leader: the session is nil; make one with Open or Connect of dsync/mongo, or dsync.New")
	}
	if err := dsync.CheckKey(name); err != nil {
		return nil, nil, fmt.Errorf("leader: name of the group: %w", err)
	}
	if strings.Contains(name, "/") { // a function's name may contain slashes, because programs often generate it
		return nil, nil, fmt.Errorf("leader: name of the group: %w: %q contains a slash, which separates the group from the function; use another character",
			dsync.ErrInvalidKey, name)
	}
	g := &Group{s: engine.Of(s), name: name, runs: make(map[string]*Singleton), balanced: make(chan struct{})}
	if opt != nil {
		g.opt = *opt
	}
	switch b := g.opt.BalanceInterval; {
	case b == 0:
		g.opt.BalanceInterval = g.s.TTL() / 3
	case b > 0 && b < minBalance || b > driver.MaxDuration:
		return nil, nil, fmt.Errorf("leader: BalanceInterval is %v; it must be at least %v and at most %v (0: a third of the session's TTL; negative: never)",
			b, minBalance, driver.MaxDuration)
	}
	if o := g.opt.Election; o != nil && o.YieldAfter > 0 && g.opt.BalanceInterval > 0 {
		return nil, nil, fmt.Errorf("leader: YieldAfter is %v in a group that spreads its functions, so they would move back and forth; make BalanceInterval negative", o.YieldAfter)
	}
	g.ctx, g.cancel = context.WithCancelCause(ctx)
	go g.balance()
	return g, g.ctx, nil
}

// Go adds a function to the group under a name that is unique in the group, and returns at once. f is called each time
// this process is elected to run it. The context of f is made from the group's, and f must return when that context
// ends.
//
// If f returns before its context ends, the function leaves the group on this process. If f returned nil, another
// process may run it. If f returned an error, the group's context ends, and [Group.Wait] returns the first such error.
//
// Go returns an error if the name is already in the group or is not valid, or if the group has ended,
// as it does when [Group.Wait] returns.
func (g *Group) Go(name string, f func(context.Context) error) (*Singleton, error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.ctx.Err() != nil {
		return nil, fmt.Errorf("leader: group %q has ended: %w", g.name, context.Cause(g.ctx))
	}
	if g.runs[name] != nil {
		return nil, fmt.Errorf("leader: group %q has a function %q already", g.name, name)
	}
	heard, leave := context.WithCancel(context.Background()) // not derived from g.ctx: the hooks also report how the group ends
	election, err := newElection(heard, g.s, g.name+"/"+name, g.opt.Election)
	if err != nil {
		leave()
		return nil, err
	}
	ctx, cancel := context.WithCancelCause(g.ctx)
	r := &Singleton{Name: name, Election: election, g: g, cancel: cancel, done: make(chan struct{})}
	g.runs[name] = r
	go func() {
		var err error
		defer func() { // runs even if f calls runtime.Goexit
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
	return r, nil
}

func (g *Group) run(ctx context.Context, r *Singleton, f func(context.Context) error) error {
	// Processes that start together must join the queues in different orders. A longer
	// BalanceInterval does not require a longer delay.
	if g.opt.BalanceInterval > 0 {
		t := time.NewTimer(rand.N(min(g.opt.BalanceInterval, g.s.TTL()/3) / 10))
		defer t.Stop()
		select {
		case <-t.C:
		case <-ctx.Done():
		}
	}
	return r.Election.Run(ctx, func(ctx context.Context) error {
		t, _ := TermFrom(ctx)
		defer r.runs(t)()
		return f(ctx)
	})
}

// Wait waits until all functions have left the group, ends the group's context, and returns the first
// error, if any. If functions ended because the context passed to [NewGroup] ended, and none had failed before, the
// error is the context's.
//
// As with errgroup, if the group has no functions, even if Go was never called, Wait ends the group and returns at
// once. A program that adds and removes functions while it runs should call Wait only when the group's context has
// ended.
func (g *Group) Wait() error {
	for r := g.next(); r != nil; r = g.next() {
		<-r.done
	}
	<-g.balanced
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.err
}

// next returns one of the functions in the group. If there is none, it ends the group and returns nil. A sync.WaitGroup
// would not do: while its counter is zero, Add must not be called concurrently with Wait. But Group.Go may be called
// concurrently with Group.Wait at any time.
func (g *Group) next() *Singleton {
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, r := range g.runs {
		return r
	}
	g.cancel(context.Canceled)
	return nil
}

// List returns the functions that are in the group on this process, sorted by name.
func (g *Group) List() []*Singleton {
	g.mu.Lock()
	defer g.mu.Unlock()
	return slices.SortedFunc(maps.Values(g.runs), func(a, b *Singleton) int { return strings.Compare(a.Name, b.Name) })
}

// String returns the name and the state, such as `group "jobs": 2 of 5 functions running`.
func (g *Group) String() string {
	g.mu.Lock()
	defer g.mu.Unlock()
	if len(g.runs) == 0 && g.ctx.Err() != nil {
		return fmt.Sprintf("group %q: ended", g.name)
	}
	running := 0
	for _, r := range g.runs {
		if r.running {
			running++
		}
	}
	return fmt.Sprintf("group %q: %d of %d functions running", g.name, running, len(g.runs))
}

// balance calls shed at intervals of BalanceInterval ± 50 %.
func (g *Group) balance() {
	defer close(g.balanced)
	if g.opt.BalanceInterval < 0 {
		return
	}
	for {
		t := time.NewTimer(g.opt.BalanceInterval/2 + rand.N(g.opt.BalanceInterval))
		select {
		case <-t.C:
			g.shed()
		case <-g.ctx.Done():
			t.Stop()
			return
		}
	}
}

// shed resigns one function that another process waits for, if this process runs more than its
// share. It checks one running function, chosen at random. The processes that have this function in
// their group are this process and those that wait to run the function.
func (g *Group) shed() {
	g.mu.Lock()
	var running []*Singleton
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
	st, err := g.s.Load(g.ctx, r.Election.name)
	if err != nil || st.Waiting == 0 {
		return
	}
	processes := 1 + st.Waiting
	if share := (all + processes - 1) / processes; len(running) > share {
		_ = r.Election.Resign(g.ctx)
	}
}
