package program

import (
	"fmt"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"
)

// A runner runs one program.
type runner struct {
	tempo
	w     World
	p     Program
	began time.Time

	watchers sync.WaitGroup

	mu       sync.Mutex // guards the fields below, and those of other types whose comments say so
	slots    []*slot
	pages    map[string]*page
	cuts     int           // links that are cut or noisy
	skew     time.Duration // the difference between the store's clock and the true time
	fault    time.Time     // when something that can delay a grant last happened: a link's fault, a step, a Close, a Break, a Resize
	runs     int           // runs of Once
	opened   int           // sessions opened
	grants   int
	failures []string
	trace    []string
}

// Run runs p in w, and fails t if any promise is broken. If the program does not end, Run panics.
func Run(t testing.TB, w World, p Program) {
	t.Helper()
	r := &runner{w: w, p: p, began: time.Now(), pages: make(map[string]*page), tempo: bubble}
	if w.server == nil {
		r.tempo = wall
	}
	r.fault = r.began
	for i := range p.Sessions {
		s := &slot{number: i}
		s.life = r.open(i, s)
		r.slots = append(r.slots, s)
	}
	ended := r.bounded(r.run)
	r.mu.Lock()
	defer r.mu.Unlock()
	if !ended {
		buf := make([]byte, 1<<20)
		r.fail("the program does not end; the stacks:\n%s", buf[:runtime.Stack(buf, true)])
		panic(r.verdict()) // otherwise the bubble panics without giving a reason
	}
	if len(r.failures) > 0 {
		t.Error(r.verdict())
	}
}

// verdict describes the failures. The program and the failures come last, where people look first.
func (r *runner) verdict() string {
	return fmt.Sprintf("What happened:\n%s\n\n%v\n%s", strings.Join(r.trace, "\n"), r.p, strings.Join(r.failures, "\n"))
}

// bounded calls f and reports whether it returned in time.
func (r *runner) bounded(f func()) bool {
	done := make(chan struct{})
	go func() {
		defer close(done)
		f()
	}()
	limit := time.NewTimer(r.limit)
	defer limit.Stop()
	select {
	case <-done:
		return true
	case <-limit.C:
		return false
	}
}

func (r *runner) run() {
	var all sync.WaitGroup
	for i := range r.p.Sessions {
		for n := range 3 {
			if ops := r.p.goroutine(i, n); len(ops) > 0 {
				g := &goroutine{runner: r, slot: r.slots[i], name: fmt.Sprintf("s%d.%d", i, n)}
				all.Go(func() { g.run(ops) })
			}
		}
	}
	all.Wait()
	r.finish()
	r.watchers.Wait()
}
