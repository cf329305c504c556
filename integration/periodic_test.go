package integration_test

import (
	"cmp"
	"context"
	"errors"
	"flag"
	"maps"
	"math/rand/v2"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/leasehold-go/leasehold/dsync"
	"github.com/leasehold-go/leasehold/integration/internal/proc"
	"github.com/leasehold-go/leasehold/integration/internal/server"
	"github.com/leasehold-go/leasehold/internal/mongod"
	"github.com/leasehold-go/leasehold/internal/testkit"
)

var periodicFor = flag.Duration("periodic.duration", 0, "duration of TestPeriodicFleet; 0: 15s, 5m with LEASEHOLD_LONG set")

// Ten hosts run a Periodic each second. Meanwhile, their processes are killed and restarted, primaries step down and
// are killed, and runs fail. No tick succeeds twice, ticks succeed in order, and a tick is over when its Do returns
// without an error. This holds whether the hosts' clocks agree or are up to an hour apart.
func TestPeriodicFleet(t *testing.T) {
	t.Parallel()
	lab.Each(t, server.Need{Members: true}, func(t *testing.T, _ *server.Server) {
		var harms atomic.Int64
		own := lab.Start(t, mongod.Spec{Members: 3, ElectionTimeout: 2 * time.Second})
		for name, apart := range map[string]time.Duration{"together": 0, "an hour apart": time.Hour} {
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				f := &periodicHosts{room: newRoom(t, own), harms: &harms, succeeded: make(map[int]int64), overlooked: make(map[int]bool), called: make(map[int]bool)}
				harming, harmed := context.WithTimeout(t.Context(), cmp.Or(*periodicFor, time.Duration(testkit.Rounds(15, 300))*time.Second))
				defer harmed()
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				var wg sync.WaitGroup
				wg.Go(func() {
					defer cancel()
					<-harming.Done()
					f.awaitTicks(t)
				})
				for i := range 10 {
					off := apart / 9 * time.Duration(i)
					wg.Go(func() { f.host(ctx, off, lab.Rand(t.Name(), "host", i)) })
				}
				if name == "together" { // both fleets share the set, so let only one of them harm it
					wg.Go(func() { f.harm(harming, own.Set(), lab.Rand(t.Name(), "harm")) })
				}
				wg.Wait()
				f.judge(t, apart)
			})
		}
	})
}

// periodicHosts collects the reports from a fleet of hosts that share one Periodic.
type periodicHosts struct {
	room *room

	mu         sync.Mutex
	succeeded  map[int]int64 // tokens of the runs that certainly succeeded, by tick (in seconds)
	called     map[int]bool
	overlooked map[int]bool // ticks for which Do returned without an error although they were not over
	twice      []int
	kills      int
	harms      *atomic.Int64 // number of faults of the replica set, which both fleets share
	outcomes   map[string]int
}

// host starts and kills processes on a host whose clock is ahead by the duration off.
func (f *periodicHosts) host(ctx context.Context, off time.Duration, r *rand.Rand) {
	for ctx.Err() == nil {
		a := f.room.args(f.room.short(2 * time.Second))
		a.Key, a.How, a.Rounds = "nightly", off.String(), int(r.Int32())
		p := proc.Start(f.room.t, "ticking", a)
		life := time.NewTimer(time.Second + time.Duration(r.Int64N(int64(20*time.Second))))
		for open := true; open; {
			select {
			case e, ok := <-p.Events():
				if open = ok; ok {
					f.heard(e)
				}
			case <-life.C:
				open = false
			case <-ctx.Done():
				open = false
			}
		}
		life.Stop()
		syscall.Kill(p.PID(), syscall.SIGKILL)
		for e := range p.Events() { // collect the reports from before the kill
			f.heard(e)
		}
		f.mu.Lock()
		f.kills++
		f.mu.Unlock()
	}
}

// f.heard records a process's report on a call of DoValue.
func (f *periodicHosts) heard(e proc.Event) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.outcomes == nil {
		f.outcomes = make(map[string]int)
	}
	f.outcomes[e.Name]++
	f.called[e.N] = true
	switch e.Name {
	case "succeeded":
		if _, again := f.succeeded[e.N]; again {
			f.twice = append(f.twice, e.N)
		}
		f.succeeded[e.N] = e.Token
	case "not over":
		f.overlooked[e.N] = true
	}
}

// enoughTicks is how many ticks must have succeeded before the reports are judged.
const enoughTicks = 5

// awaitTicks waits until enough ticks have succeeded.
func (f *periodicHosts) awaitTicks(t *testing.T) {
	enough := func() bool {
		f.mu.Lock()
		defer f.mu.Unlock()
		return len(f.succeeded) >= enoughTicks
	}
	for end := time.Now().Add(proc.Patience); !enough() && time.Now().Before(end); {
		rest(t.Context(), 100*time.Millisecond)
	}
}

// harm repeatedly makes the primary step down or, less often, kills it and starts it again.
func (f *periodicHosts) harm(ctx context.Context, set *mongod.Set, r *rand.Rand) {
	for ctx.Err() == nil {
		rest(ctx, 3*time.Second+time.Duration(r.Int64N(int64(6*time.Second))))
		m, err := set.Primary(ctx)
		if err != nil {
			continue
		}
		f.harms.Add(1)
		if r.IntN(3) > 0 {
			_ = set.StepDown(ctx)
			continue
		}
		m.Kill()
		rest(ctx, 2*time.Second)
		if err := m.Start(); err != nil {
			f.room.t.Error(err)
		}
	}
}

// rest waits until d has passed or ctx ends.
func rest(ctx context.Context, d time.Duration) {
	select {
	case <-time.After(d):
	case <-ctx.Done():
	}
}

// judge checks the collected reports.
func (f *periodicHosts) judge(t *testing.T, apart time.Duration) {
	if len(f.twice) > 0 {
		t.Errorf("these ticks have succeeded twice: %d", f.twice)
	}
	if len(f.overlooked) > 0 {
		t.Errorf("Do returned without an error, but these ticks were not over: %d", slices.Sorted(maps.Keys(f.overlooked)))
	}
	ticks := slices.Sorted(maps.Keys(f.succeeded))
	for i, n := range ticks[:max(0, len(ticks)-1)] {
		if next := ticks[i+1]; f.succeeded[next] <= f.succeeded[n] {
			t.Errorf("tick %d succeeded with token %d, but the later tick %d with %d, want a greater one", n, f.succeeded[n], next, f.succeeded[next])
		}
	}
	if len(ticks) < enoughTicks {
		t.Fatalf("only %d ticks have succeeded, want at least %d; the outcomes were %v", len(ticks), enoughTicks, f.outcomes)
	}
	passed := 0
	for n := range f.called {
		if _, ok := f.succeeded[n]; !ok && n > ticks[0] && n < ticks[len(ticks)-1] {
			passed++
		}
	}
	lab.Note(t, "clocks %v apart: %d kills, %d faults of the primary; %d ticks certainly succeeded, none twice; %d others were skipped; outcomes %v",
		apart, f.kills, f.harms.Load(), len(ticks), passed, f.outcomes)
}

// ticking is a child that calls DoValue for each second of its clock and reports the results, until it is killed.
func ticking(env *proc.Env) {
	var a childArgs
	env.Args(&a)
	off, err := time.ParseDuration(a.How)
	if err != nil {
		env.Fatal(err)
	}
	s := a.session(env, nil)
	p := s.Periodic(a.Key)
	for i := 0; ; i++ {
		mine := time.Now().Add(off)
		tick := mine.Truncate(time.Second).Add(time.Second)
		time.Sleep(tick.Sub(mine))
		r := rand.New(rand.NewPCG(uint64(a.Rounds), uint64(i)))
		go func() {
			e := proc.Event{N: int(tick.Unix())}
			_, ran, err := p.DoValue(context.Background(), tick, func(ctx context.Context) ([]byte, error) {
				e.Token = dsync.HoldFrom(ctx).Token()
				time.Sleep(time.Duration(r.IntN(150)) * time.Millisecond)
				if r.IntN(5) == 0 {
					return nil, errors.New("failed")
				}
				return []byte(strconv.Itoa(e.N)), ctx.Err()
			})
			switch {
			case err != nil && ran:
				e.Name = "failed"
			case err != nil:
				e.Name, e.Err = "gave up", err.Error()
			case ran:
				e.Name = "succeeded"
			default:
				e.Name = "over"
			}
			env.Emit(e)
			if err != nil {
				return
			}
			last, value, err := p.Last(context.Background())
			if n, _ := strconv.Atoi(string(value)); err == nil && (last.Before(tick) || int64(n) != last.Unix()) {
				env.Emit(proc.Event{Name: "not over", N: e.N, Text: last.String() + ": " + string(value)})
			}
		}()
	}
}
