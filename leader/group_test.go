package leader_test

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/leasehold-go/leasehold/dsync"
	"github.com/leasehold-go/leasehold/dsync/driver"
	"github.com/leasehold-go/leasehold/dsync/dsynctest"
	"github.com/leasehold-go/leasehold/leader"
)

// A fleet counts the calls that are running, by function and process.
type fleet struct {
	t       *testing.T
	mu      sync.Mutex
	running map[string]int            // by function
	on      map[string]map[string]int // by process, by function
}

func newFleet(t *testing.T) *fleet {
	return &fleet{t: t, running: map[string]int{}, on: map[string]map[string]int{}}
}

// work returns a function that runs until its context ends.
func (f *fleet) work(process, name string) func(context.Context) error {
	return func(ctx context.Context) error {
		f.add(process, name, 1)
		defer f.add(process, name, -1)
		<-ctx.Done()
		return ctx.Err()
	}
}

func (f *fleet) add(process, name string, d int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.on[process] == nil {
		f.on[process] = map[string]int{}
	}
	f.on[process][name] += d
	if f.running[name] += d; f.running[name] > 1 {
		f.t.Errorf("%s runs %d times at once", name, f.running[name])
	}
}

// load returns how many functions the process runs.
func (f *fleet) load(process string) int {
	f.mu.Lock()
	defer f.mu.Unlock()
	n := 0
	for _, k := range f.on[process] {
		n += k
	}
	return n
}

func (f *fleet) group(process string, store driver.Store, functions int) (*leader.Group, func() error) {
	f.t.Helper()
	ctx, cancel := context.WithCancel(background)
	g, _, err := leader.NewGroup(ctx, newSession(f.t, store, nil), "g", nil)
	if err != nil {
		f.t.Fatal(err)
	}
	for i := range functions {
		name := fmt.Sprint("f", i)
		if _, err := g.Go(name, f.work(process, name)); err != nil {
			f.t.Fatal(err)
		}
	}
	return g, func() error {
		cancel()
		return g.Wait()
	}
}

// S3: each function runs on one process at a time. The functions spread evenly, even when the fleet
// grows or shrinks.
func TestGroupSpreads(t *testing.T) {
	bubble(t, func(t *testing.T) {
		functions := 30
		if testing.Short() {
			functions = 9
		}
		store := dsynctest.NewMemory()
		f := newFleet(t)
		check := func(when string, processes ...string) {
			t.Helper()
			total, loads := 0, map[string]int{}
			for _, p := range processes {
				loads[p] = f.load(p)
				total += loads[p]
			}
			t.Logf("%s: %v", when, loads)
			share := (functions + len(processes) - 1) / len(processes)
			for p, n := range loads {
				if n > share+1 || n < share-3 {
					t.Errorf("%s: %s runs %d of %d, want about %d: %v", when, p, n, functions, share, loads)
				}
			}
			if total < functions-2 { // two may be moving
				t.Errorf("%s: %d of %d run: %v", when, total, functions, loads)
			}
		}
		crash := newFaulty(t, store, nil)
		_, stopA := f.group("a", store, functions)
		_, stopB := f.group("b", crash, functions)
		time.Sleep(2 * time.Minute)
		check("two that start together", "a", "b")
		_, stopC := f.group("c", store, functions)
		time.Sleep(10 * time.Minute)
		check("a third process has joined", "a", "b", "c")
		crash.Cut()
		time.Sleep(10 * time.Minute)
		check("one crashed", "a", "c")
		crash.Heal()
		for _, stop := range []func() error{stopA, stopB, stopC} {
			wantErr(t, "Wait", stop(), context.Canceled)
		}
	})
}

// When each process has its share, no function moves.
func TestGroupSettles(t *testing.T) {
	bubble(t, func(t *testing.T) {
		store := dsynctest.NewMemory()
		f := newFleet(t)
		_, stopA := f.group("a", store, 4)
		_, stopB := f.group("b", store, 4)
		time.Sleep(20 * time.Minute)
		before := store.Counts().Commands[dsynctest.MethodRelease]
		time.Sleep(20 * time.Minute)
		if n := store.Counts().Commands[dsynctest.MethodRelease] - before; n != 0 || f.load("a") != 2 || f.load("b") != 2 {
			t.Errorf("%d functions moved in 20 minutes although nothing happened; a runs %d of 4, b runs %d", n, f.load("a"), f.load("b"))
		}
		stopA()
		stopB()
	})
}

// S3, S4: the list shows the functions. A function can be removed through its handle or from inside, and then another
// process runs it.
func TestGroupListAndRemove(t *testing.T) {
	bubble(t, func(t *testing.T) {
		store := dsynctest.NewMemory()
		ctx, cancel := context.WithCancel(background)
		g, _, err := leader.NewGroup(ctx, newSession(t, store, nil), "g", &leader.GroupOptions{BalanceInterval: -1})
		noErr(t, err)
		f := newFleet(t)
		g.Go("kept", f.work("a", "kept"))
		removed, _ := g.Go("removed", f.work("a", "removed"))
		g.Go("leaves", func(ctx context.Context) error {
			time.Sleep(3 * time.Second)
			return nil
		})
		g.Go("removes itself", func(ctx context.Context) error {
			i := slices.IndexFunc(g.List(), func(s *leader.Singleton) bool { return s.Name == "removes itself" })
			if !g.List()[i].Remove(ctx) {
				t.Error("Remove inside the function returned false")
			}
			<-ctx.Done()
			return ctx.Err()
		})
		if _, err := g.Go("kept", f.work("a", "kept")); err == nil {
			t.Error("Go accepted a name twice")
		}
		if _, err := g.Go(string([]byte{0}), nil); err == nil {
			t.Error("Go accepted a name with a NUL")
		}
		time.Sleep(2 * time.Second)
		var names []string
		for _, s := range g.List() {
			names = append(names, fmt.Sprint(s.Name, " ", s.Running(), " ", s.Election.IsLeader()))
		}
		if got, want := fmt.Sprint(names), "[kept true true leaves true true removed true true]"; got != want {
			t.Errorf("List: %s, want %s", got, want)
		}
		_, stop := f.group("b", store, 0)
		other, _, _ := leader.NewGroup(ctx, newSession(t, store, nil), "g", &leader.GroupOptions{BalanceInterval: -1})
		other.Go("removed", f.work("b", "removed"))
		other.Go("leaves", f.work("b", "leaves"))
		time.Sleep(500 * time.Millisecond)
		if f.load("b") != 0 {
			t.Errorf("the other process runs %d functions, want none", f.load("b"))
		}
		if !removed.Remove(background) || removed.Remove(background) {
			t.Error("want true from the first Remove, and false from the second")
		}
		time.Sleep(2 * time.Second)
		if f.load("b") != 2 {
			t.Errorf("the other process runs %d functions, want those that were removed or have left the group here", f.load("b"))
		}
		cancel()
		wantErr(t, "Wait", g.Wait(), context.Canceled)
		wantErr(t, "Wait", other.Wait(), context.Canceled)
		stop()
		if _, err := g.Go("late", nil); err == nil {
			t.Error("Go succeeded on a group that has ended")
		}
	})
}

// Wait returns the first error, like errgroup's, and all other functions stop.
func TestGroupWaitReturnsTheFirstError(t *testing.T) {
	bubble(t, func(t *testing.T) {
		wrong := errors.New("work failed")
		f := newFleet(t)
		g, ctx, err := leader.NewGroup(background, newSession(t, dsynctest.NewMemory(), nil), "g", nil)
		noErr(t, err)
		g.Go("works", f.work("a", "works"))
		g.Go("fails", func(context.Context) error {
			time.Sleep(2 * time.Second)
			return wrong
		})
		if err := g.Wait(); err != wrong {
			t.Errorf("Wait returned %v, want the first error", err)
		}
		wantErr(t, "cause of the group's context", context.Cause(ctx), wrong)
		if f.load("a") != 0 {
			t.Error("a function runs after Wait has returned")
		}
	})
}

// A group ends without an error when all its functions are done. B15: after an outage the functions run again.
func TestGroupSurvivesAnOutage(t *testing.T) {
	bubble(t, func(t *testing.T) {
		faulty := newFaulty(t, dsynctest.NewMemory(), nil)
		f := newFleet(t)
		_, stop := f.group("a", faulty, 5)
		time.Sleep(ttl)
		faulty.Cut()
		time.Sleep(3 * ttl)
		if f.load("a") != 0 {
			t.Errorf("%d functions run during an outage, want none", f.load("a"))
		}
		faulty.Heal()
		time.Sleep(2 * ttl)
		if f.load("a") != 5 {
			t.Errorf("%d functions run after the outage, want 5", f.load("a"))
		}
		stop()

		g, _, _ := leader.NewGroup(background, newSession(t, dsynctest.NewMemory(), nil), "h", nil)
		g.Go("done", func(context.Context) error { return nil })
		if err := g.Wait(); err != nil {
			t.Errorf("Wait: %v", err)
		}
	})
}

// If a group has no functions, Wait ends it at once, as errgroup's Wait ends its context, and a
// later call of Go returns an error. Go and Wait may be called at the same time.
func TestGroupWaitWithoutFunctions(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := newSession(t, dsynctest.NewMemory(), nil)
		g, ctx, err := leader.NewGroup(background, s, "g", nil)
		noErr(t, err)
		start := time.Now()
		if err := g.Wait(); err != nil || time.Since(start) != 0 || ctx.Err() == nil {
			t.Errorf("Wait: %v after %v; the context's Err is %v", err, time.Since(start), ctx.Err())
		}
		_, err = g.Go("late", func(context.Context) error { return nil })
		wantErr(t, "Go after Wait", err, context.Canceled)

		g, _, _ = leader.NewGroup(background, s, "g", nil)
		g.Go("exits", func(context.Context) error {
			runtime.Goexit() // as t.FailNow does
			return nil
		})
		if err := g.Wait(); err != nil {
			t.Errorf("Wait for a function that exits: %v", err)
		}

		for range 50 {
			g, _, _ := leader.NewGroup(background, s, "g", nil)
			ran := make(chan bool, 1)
			added := make(chan error)
			go func() {
				_, err := g.Go("f", func(context.Context) error {
					ran <- true
					return nil
				})
				added <- err
			}()
			werr := g.Wait()
			if err := <-added; werr != nil || (err == nil) != (len(ran) == 1) {
				t.Fatalf("Wait: %v; Go: %v; the function ran %d times", werr, err, len(ran))
			}
		}
	})
}

// Functions that were removed or refused leave nothing behind: no goroutine observes their
// elections, and no hook is called for them.
func TestGroupForgetsRemovedFunctions(t *testing.T) {
	bubble(t, func(t *testing.T) {
		var cycles atomic.Int64
		ctx, cancel := context.WithCancel(background)
		g, _, err := leader.NewGroup(ctx, newSession(t, dsynctest.NewMemory(), nil), "g", &leader.GroupOptions{Election: &leader.Options{Hooks: &leader.Hooks{
			Refreshed: func(leader.Reading) { cycles.Add(1) },
		}}})
		noErr(t, err)
		work := func(ctx context.Context) error { <-ctx.Done(); return nil }
		g.Go("stays", work)
		time.Sleep(ttl)
		before := runtime.NumGoroutine()
		for range 20 {
			removed, err := g.Go("is removed", work)
			noErr(t, err)
			if _, err := g.Go("returns", func(context.Context) error { return nil }); err != nil {
				t.Fatal(err)
			}
			if _, err := g.Go("stays", work); err == nil {
				t.Fatal("Go accepted a name twice")
			}
			time.Sleep(2 * time.Second)
			removed.Remove(background)
		}
		time.Sleep(time.Minute)
		if after := runtime.NumGoroutine(); after > before+10 { // allows for the session's idle goroutines
			t.Errorf("%d goroutines before, and %d after adding and removing 40 functions", before, after)
		}
		cycles.Store(0)
		time.Sleep(time.Minute)
		if n := cycles.Load(); n < 5 || n > 30 {
			t.Errorf("Refreshed was called %d times in a minute, want only the calls for the remaining function", n)
		}
		cancel()
		g.Wait()
	})
}

// S4: the list shows which functions run on this process. A function does not run while it waits to
// be elected, or after it has stopped.
func TestGroupListsRunningFunctions(t *testing.T) {
	bubble(t, func(t *testing.T) {
		store := dsynctest.NewMemory()
		f := newFaulty(t, store, nil)
		group := func(store driver.Store) (*leader.Group, func()) {
			ctx, cancel := context.WithCancel(background)
			g, _, err := leader.NewGroup(ctx, newSession(t, store, nil), "g", &leader.GroupOptions{BalanceInterval: -1})
			noErr(t, err)
			g.Go("f", func(ctx context.Context) error {
				<-ctx.Done()
				time.Sleep(grace / 2)
				return ctx.Err()
			})
			return g, func() { cancel(); g.Wait() }
		}
		a, stopA := group(f)
		synctest.Wait()
		b, stopB := group(store)
		check := func(when string, g *leader.Group, running bool) {
			t.Helper()
			synctest.Wait()
			list := g.List()
			if len(list) != 1 || list[0].Name != "f" || list[0].Running() != running {
				t.Errorf("%s: the list has %d functions, want f, running %t", when, len(list), running)
			}
		}
		check("elected", a, true)
		check("in the queue", b, false)
		go a.List()[0].Election.Resign(background)
		check("resigned, but f has not returned", a, true)
		check("the other still waits", b, false)
		time.Sleep(grace)
		check("f has returned", a, false)
		check("the other was elected", b, true)
		go b.List()[0].Election.Resign(background)
		time.Sleep(grace)
		check("elected again", a, true)
		f.Cut()
		time.Sleep(2 * ttl)
		check("lost", a, false)
		check("elected after the loss", b, true)
		f.Heal()
		stopA()
		stopB()
	})
}

// S3: a function is called when this process is elected to run it, and can be removed by its handle. Remove waits
// until the function has returned. The handle of a removed function has no effect on a later function with the same
// name.
func TestSingletonHandle(t *testing.T) {
	bubble(t, func(t *testing.T) {
		var mu sync.Mutex
		var log []string
		note := func(who, what string, tm leader.Term) {
			mu.Lock()
			defer mu.Unlock()
			log = append(log, fmt.Sprint(who, " ", what, " ", tm.Number))
		}
		want := func(when string, want ...string) {
			t.Helper()
			synctest.Wait()
			mu.Lock()
			defer mu.Unlock()
			if !slices.Equal(log, want) {
				t.Errorf("%s: %q, want %q", when, log, want)
			}
			log = nil
		}
		f := newFleet(t)
		observed := func(name string) func(context.Context) error {
			work := f.work("a", name)
			return func(ctx context.Context) error {
				tm, _ := leader.TermFrom(ctx)
				note(name, "start", tm)
				err := work(ctx)
				if !errors.Is(err, context.Canceled) {
					t.Errorf("the function's work returned %v, want context.Canceled", err)
				}
				note(name, "stop", tm)
				return err
			}
		}
		g, _, err := leader.NewGroup(t.Context(), newSession(t, dsynctest.NewMemory(), nil), "g", &leader.GroupOptions{BalanceInterval: -1})
		noErr(t, err)
		one, err := g.Go("one", observed("one"))
		noErr(t, err)
		want("started", "one start 1")
		other, err := g.Go("other", observed("other"))
		noErr(t, err)
		want("another function", "other start 1")
		if !one.Running() || g.List()[0] != one {
			t.Error("the list has another handle, or the function does not run")
		}
		one.Election.Resign(background)
		want("again", "one stop 1", "one start 2")
		select {
		case <-one.Done():
			t.Error("Done's channel is closed between two terms")
		default:
		}
		if !one.Remove(background) || one.Running() || f.load("a") != 1 {
			t.Errorf("after Remove the function runs: %t; %d functions run, want only the other one", one.Running(), f.load("a"))
		}
		<-one.Done()
		want("removed", "one stop 2")
		again, err := g.Go("one", observed("one"))
		noErr(t, err)
		want("its successor", "one start 3")
		if one.Remove(background) || !again.Running() {
			t.Error("the handle of the first function removed the second one")
		}
		again.Remove(background)
		other.Remove(background)
		if err := g.Wait(); err != nil {
			t.Error(err)
		}
	})
}

// Even if BalanceInterval is long, it delays the first start of a function by less than a thirtieth of the TTL.
func TestGroupStartsSoon(t *testing.T) {
	for _, balance := range []time.Duration{0, -1, 10 * time.Millisecond, 24 * time.Hour, driver.MaxDuration} {
		inBubble(t, fmt.Sprint(balance), func(t *testing.T) {
			ctx, cancel := context.WithCancel(background)
			g, _, err := leader.NewGroup(ctx, newSession(t, dsynctest.NewMemory(), nil), "g", &leader.GroupOptions{BalanceInterval: balance})
			noErr(t, err)
			begin := time.Now()
			const n = 50
			var started atomic.Int64
			var last atomic.Int64 // when the last function started, counted from begin
			for i := range n {
				g.Go(fmt.Sprint("f", i), func(ctx context.Context) error {
					last.Store(int64(time.Since(begin)))
					started.Add(1)
					<-ctx.Done()
					return nil
				})
			}
			time.Sleep(ttl)
			d := time.Duration(last.Load())
			if started.Load() != n || d >= ttl/30 || d == 0 && balance >= 0 || d > 0 && balance < 0 {
				t.Errorf("%d of %d functions have started, the last after %v", started.Load(), n, d)
			}
			cancel()
			wantErr(t, "Wait", g.Wait(), context.Canceled)
		})
	}
}

// Groups or functions with different names have different elections.
func TestFunctionsOfGroupsAreDistinct(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := newSession(t, dsynctest.NewMemory(), nil)
		names := make(map[string]string) // from an election's name to its group and function
		for _, group := range []string{"a", "a/b", "a/", "/a", "/", "b", "a b"} {
			ctx, cancel := context.WithCancel(background)
			defer cancel()
			g, _, err := leader.NewGroup(ctx, s, group, nil)
			if strings.Contains(group, "/") {
				wantErr(t, fmt.Sprintf("NewGroup %q", group), err, dsync.ErrInvalidKey)
				continue
			}
			noErr(t, err)
			for _, f := range []string{"c", "b/c", "/c", "/", "b/"} {
				r, err := g.Go(f, func(context.Context) error { return nil })
				noErr(t, err)
				name, pair := strings.Split(r.Election.String(), `"`)[1], fmt.Sprintf("%q of %q", f, group)
				if names[name] != "" || name != group+"/"+f {
					t.Errorf("%s has the election %q, want %q; earlier function with this election: %s", pair, name, group+"/"+f, names[name])
				}
				names[name] = pair
			}
			if err := g.Wait(); err != nil {
				t.Error(err)
			}
		}
	})
}
