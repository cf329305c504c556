package program

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/leasehold-go/leasehold/dsync"
	"github.com/leasehold-go/leasehold/dsync/driver"
	"github.com/leasehold-go/leasehold/dsync/dsynctest"
)

// A World is where a program runs.
type World struct {
	// Open opens the program's i-th session, for the first time or again after Close. If i is the number of sessions,
	// Open opens one more session, which checks what the others have left behind. Run closes all sessions.
	Open func(i int, set Setting, opt dsync.Options) *dsync.Session

	// Links are the links of the sessions to the store. If they are nil, links can't be cut, and the program
	// runs in real time.
	Links []*Link

	// Prefix is put before each key.
	Prefix string

	// Skew is the greatest difference between the clocks that the store reads. It is more than 0 if the clock is
	// stepped, or if the store is a sharded cluster whose routers' clocks differ.
	Skew time.Duration

	// Step steps the store's clock by d. Step is nil if the clock can't be stepped.
	Step func(d time.Duration)
}

// InMemory returns a World for p, for use within a bubble. A Cleanup of t closes the links of the World.
func InMemory(t testing.TB, p Program) World {
	store := dsynctest.NewMemory()
	w := On(t, p, store)
	w.Step = store.Skew
	if p.has(Step) {
		w.Skew = bubble.margin()
	}
	return w
}

// On is like InMemory, but uses the given store, whose clock is not stepped.
func On(t testing.TB, p Program, store driver.Store) World {
	var w World
	var stores []driver.Store
	for i := range len(p.Sessions) + 1 { // the last one is for the audit at the end
		f := newLink(store, p, i)
		t.Cleanup(f.Close)
		w.Links = append(w.Links, f)
		switch {
		case i == len(p.Sessions):
			stores = append(stores, f)
		case p.Sessions[i].Polling:
			stores = append(stores, polled{f})
		default:
			stores = append(stores, f)
		}
		if p.has(Replay) {
			f.Record()
		}
	}
	w.Open = func(i int, _ Setting, opt dsync.Options) *dsync.Session {
		s, err := dsync.New(stores[i], &opt)
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
	for _, l := range w.Links {
		sum += int(l.faults.Load())
	}
	return sum
}

// polled is a store that can't notify.
type polled struct{ driver.Store }

func (polled) Listen(context.Context, string, []string, func(driver.Notice)) error {
	return errors.ErrUnsupported
}
