// The tour shows several workers, each with its own session, taking turns with a mutex. One
// is killed while it holds the mutex. Then the workers elect a leader, which resigns, and is
// killed.
//
//	go run ./examples/tour
//	go run -tags mongodb ./examples/tour -uri mongodb://localhost:27017/?replicaSet=rs0
//
// Without -uri the workers are goroutines on a store in memory, and a killed one is cut off from
// it. With -uri they are processes on a real server, and one is killed with SIGKILL. Only this needs MongoDB's
// driver, which takes a while to compile; so it has a build tag.
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
	ttl = 2 * time.Second // short, so that the tour is
)

var names = []string{"anna", "bert", "carl"}

// An event is what a worker tells: that it waits, has what it waited for, is about to give it up, or has lost it.
type event struct {
	worker string
	what   string // "waits", "has", "frees" or "loses"
	token  int64  // with "has"
}

// A part of the tour: what its workers do, and the texts around it.
type part struct {
	name   string
	work   func(ctx context.Context, s *dsync.Session, tell func(event))
	intro  string
	has    string // what a worker that has it does
	frees  string // what it does then
	turns  int    // after how many turns the part ends
	fatal  int    // the turn in which the holder is killed
	ending string
}

var parts = []part{
	{
		name: "mutex", work: takeTurns,
		intro: "3 workers take turns on the mutex \"the-key\"; a session's TTL is 2s.",
		has:   "HOLDS, token", frees: "unlocks",
		turns: 9, fatal: 3,
		ending: "9 holds, one at a time, each with a greater token; one holder died, and was followed\nwhen its session's TTL was over.",
	},
	{
		name: "election", work: lead,
		intro: "Now they elect a leader, which resigns after a while.",
		has:   "LEADS, term", frees: "resigns",
		turns: 5, fatal: 2,
		ending: "5 terms, one after the other; one leader died.",
	},
}

// A crew is the workers of a tour.
type crew interface {
	start(name string, p part, tell func(event)) error
	kill(name string) error // while it holds, without a chance to release
	stop() error            // all that are left, in good order
}

func main() {
	uri := flag.String("uri", "", "connection string of a MongoDB; without it the tour runs in memory")
	worker := flag.String("worker", "", "run as the worker of that name (the tour does this)")
	job := flag.String("part", "", "the part that the worker is of")
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

// tour runs a part with the crew and prints the timeline.
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
		early   []event // of the next holder, whose words came sooner than the last ones of the present holder
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
			continue // said before it died
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
				after = fmt.Sprintf("  <- %.1fs after the kill: the TTL of the dead is over", time.Since(death).Seconds())
				death = time.Time{}
			}
			say("%s%s %s %d%s", column(e.worker), e.worker, p.has, e.token, after)
			if e.token <= last {
				return fmt.Errorf("%d was given after %d", e.token, last)
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

// takeTurns takes turns on the mutex until ctx ends.
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
		case <-hold.Lost(): // the work would be stopped here
		case <-ctx.Done():
		}
		if hold.Token() != 0 {
			tell(event{what: "frees"}) // before the next can say that it has it
		} else {
			tell(event{what: "loses"})
		}
		hold.Release(ctx)
	}
}

// lead campaigns until ctx ends, and resigns each time after a while.
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
		case <-term.Done(): // the work would be stopped here
		}
		if term.Err() == nil {
			tell(event{what: "frees"}) // before the next can say that it leads
		} else {
			tell(event{what: "loses"})
		}
		election.Resign(context.WithoutCancel(ctx))
	}
}
