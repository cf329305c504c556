package program

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/leasehold-go/leasehold/dsync"
	"github.com/leasehold-go/leasehold/dsync/driver"
)

// A World is where a program runs.
type World struct {
	// Open opens the program's i-th session, for the first time or again after Close. If i is the number of sessions,
	// Open opens one more session, which checks what the others have left behind. Run closes all sessions.
	Open func(i int, set Setting, opt dsync.Options) *dsync.Session

	// Prefix is put before each key.
	Prefix string

	// Skew is the greatest difference between the clocks that the store reads. It is more than 0 if the clock is
	// stepped, or if the store is a sharded cluster whose routers' clocks differ.
	Skew time.Duration

	// server is the store in memory, and links lead the sessions to it. If they are nil, the program runs on a real server,
	// in real time, without faults.
	server *server
	links  []*link
}

// InMemory returns a World for p, for use within a bubble. A Cleanup of t closes the links of the World.
func InMemory(t testing.TB, p Program) World {
	w := World{server: newServer(p)}
	if p.has(Step) {
		w.Skew = bubble.margin()
	}
	for i := range len(p.Sessions) + 1 { // the last one is for the audit at the end
		f := newLink(w.server, p, i)
		t.Cleanup(f.Close)
		w.links = append(w.links, f)
		if p.has(Replay) {
			f.Record()
		}
	}
	w.Open = func(i int, set Setting, opt dsync.Options) *dsync.Session {
		var store driver.Store = w.links[i]
		if set.Polling {
			store = polled{store}
		}
		s, err := dsync.New(store, &opt)
		if err != nil {
			t.Fatal(err)
		}
		return s
	}
	return w
}

// Faults returns how many requests and notices have had a fault, not counting the faults of Replay.
func (w World) Faults() int {
	sum := 0
	for _, l := range w.links {
		sum += int(l.faults.Load())
	}
	return sum
}

// polled is a store that can't notify.
type polled struct{ driver.Store }

func (polled) Listen(context.Context, string, []string, func(driver.Notice)) error {
	return errors.ErrUnsupported
}
