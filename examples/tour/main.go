// The tour shows several workers that take turns with a mutex. Each worker has its own session. One worker is killed
// while it holds the mutex. Then the workers elect leaders; some resign, and one is killed.
//
//	go run ./examples/tour
//	go run -tags mongodb ./examples/tour -uri mongodb://localhost:27017/?replicaSet=rs0
//
// Without -uri the workers are goroutines on a store in memory, and a killed worker is cut off from the store. With
// -uri the workers are processes that share a real server, and one is killed with SIGKILL.
// -uri needs MongoDB's driver, which takes a while to compile, so it also needs a build tag.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/leasehold-go/leasehold/dsync"
	"github.com/leasehold-go/leasehold/leader"
)

const (
	key = "the-key"
	ttl = 2 * time.Second // keeps the tour short
)

var names = []string{"anna", "bert", "carl"}

// An event is what a worker reports: that it waits for the key, has it, is about to release it, or has lost it.
type event struct {
	worker string
	what   string // "waits", "has", "frees" or "loses"
	token  int64  // for "has": the fencing token or the term
}

// A part describes one part of the tour: what its workers do, and the texts that it prints.
type part struct {
	name   string
	work   func(ctx context.Context, s *dsync.Session, tell func(event))
	intro  string
	has    string // text for a worker that gets the key
	frees  string // text for a worker that releases it
	turns  int    // number of turns in this part
	fatal  int    // the holder of this turn is killed
	ending string
}

var parts = []part{
	{
		name: "mutex", work: takeTurns,
		intro: "3 workers take turns on the mutex \"the-key\"; a session's TTL is 2s.",
		has:   "HOLDS, token", frees: "unlocks",
		turns: 9, fatal: 3,
		ending: "9 holds, one at a time, each with a greater token; one holder was killed, and\nthe next followed when its session's TTL ran out.",
	},
	{
		name: "election", work: lead,
		intro: "Now they elect a leader, which resigns after a while.",
		has:   "LEADS, term", frees: "resigns",
		turns: 5, fatal: 2,
		ending: "5 terms, one after the other; one leader was killed.",
	},
}

// A crew runs the workers of a tour.
type crew interface {
	start(name string, p part, tell func(event)) error
	kill(name string) error // while it holds the key, without releasing it
	stop() error            // stops the remaining workers cleanly
}

func main() {
	uri := flag.String("uri", "", "MongoDB connection string; without it the tour runs in memory")
	worker := flag.String("worker", "", "run as the worker with this name (used by the tour itself)")
	job := flag.String("part", "", "the part in which the worker takes part (used by the tour itself)")
	flag.Parse()

	for _, p := range parts {
		var err error
		switch {
		case *worker != "" && p.name == *job:
			err = runWorker(*uri, *worker, p)
		case *worker != "":
		case *uri != "":
			var c crew
			if c, err = newProcesses(*uri); err == nil {
				err = tour(c, p)
			}
		default:
			err = tour(newGoroutines(), p)
		}
		if err != nil {
			fmt.Fprintln(os.Stderr, "tour:", err)
			os.Exit(1)
		}
	}
}

// tour runs a part with the crew and prints what happens.
func tour(c crew, p part) error {
	start := time.Now()
	say := func(format string, args ...any) {
		fmt.Printf("%7.3fs  %s\n", time.Since(start).Seconds(), fmt.Sprintf(format, args...))
	}
	column := func(name string) string {
		for i, n := range names {
			if n == name {
				return strings.Repeat(" ", 10*i)
			}
		}
		return ""
	}
	fmt.Printf("%s\n\n", p.intro)

	events := make(chan event, 100)
	for _, name := range names {
		if err := c.start(name, p, func(e event) { events <- e }); err != nil {
			return err
		}
	}
	var (
		last    int64
		holder  string
		early   []event // the next holder's events, if they arrived before the present holder's last event
		killed  string
		death   time.Time
		overdue = time.NewTimer(time.Minute)
	)
	defer overdue.Stop()
	for n := 0; n < p.turns; {
		var e event
		if holder == "" && len(early) > 0 {
			e, early = early[0], early[1:]
		} else {
			select {
			case e = <-events:
			case <-overdue.C:
				return fmt.Errorf("only %d of %d turns after a minute", n, p.turns)
			}
		}
		if e.worker == killed {
			continue // the worker reported this before it was killed
		}
		if holder != "" && e.worker != holder && (e.what != "waits" || len(early) > 0) {
			early = append(early, e)
			continue
		}
		switch e.what {
		case "waits":
			say("%s%s waits", column(e.worker), e.worker)
		case "frees":
			holder = ""
			say("%s%s %s", column(e.worker), e.worker, p.frees)
		case "loses":
			holder = ""
			say("%s%s has lost it", column(e.worker), e.worker)
		case "has":
			n++
			holder = e.worker
			after := ""
			if !death.IsZero() {
				after = fmt.Sprintf("  <- %.1fs after the kill: the killed worker's TTL has run out", time.Since(death).Seconds())
				death = time.Time{}
			}
			say("%s%s %s %d%s", column(e.worker), e.worker, p.has, e.token, after)
			if e.token <= last {
				return fmt.Errorf("token or term %d came after %d, want a greater one", e.token, last)
			}
			last = e.token
			if n == p.fatal {
				holder, killed, death = "", e.worker, time.Now()
				if err := c.kill(killed); err != nil {
					return err
				}
				say("%s%s is KILLED", column(killed), killed)
			}
		}
	}
	if err := c.stop(); err != nil {
		return err
	}
	fmt.Printf("\n%s\n\n", p.ending)
	return nil
}

// takeTurns locks and unlocks the mutex until ctx ends.
func takeTurns(ctx context.Context, s *dsync.Session, tell func(event)) {
	mu := s.Mutex(key)
	for ctx.Err() == nil {
		tell(event{what: "waits"})
		hold, err := mu.Hold(ctx)
		if err != nil {
			return
		}
		tell(event{what: "has", token: hold.Token()})
		select {
		case <-time.After(300 * time.Millisecond): // the work
		case <-hold.Lost(): // a real program would stop its work here
		case <-ctx.Done():
		}
		if hold.Token() != 0 {
			tell(event{what: "frees"}) // before Release, so the next worker's "has" comes later
		} else {
			tell(event{what: "loses"})
		}
		hold.Release(ctx)
	}
}

// lead campaigns again and again until ctx ends. Each time it is elected, it resigns after a while.
func lead(ctx context.Context, s *dsync.Session, tell func(event)) {
	election, err := leader.New(s, "the-election", nil)
	if err != nil {
		panic(err)
	}
	for ctx.Err() == nil {
		tell(event{what: "waits"})
		term, err := election.Campaign(ctx)
		if err != nil {
			return
		}
		t, _ := leader.TermFrom(term)
		tell(event{what: "has", token: t.Number})
		select {
		case <-time.After(500 * time.Millisecond): // the work
		case <-term.Done(): // a real program would stop its work here
		}
		if term.Err() == nil {
			tell(event{what: "frees"}) // before Resign, so the next worker's "has" comes later
		} else {
			tell(event{what: "loses"})
		}
		election.Resign(context.WithoutCancel(ctx))
	}
}
