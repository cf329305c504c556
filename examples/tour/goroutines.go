package main

import (
	"context"
	"log/slog"
	"sync"

	"github.com/leasehold-go/leasehold/dsync"
	"github.com/leasehold-go/leasehold/dsync/dsynctest"
)

// goroutines is a crew whose workers are goroutines of this process, on a store in memory.
type goroutines struct {
	store  *dsynctest.Memory
	ctx    context.Context
	cancel context.CancelFunc
	wg     sync.WaitGroup
	killed string // the killed worker; its session's errors are ignored

	links    map[string]*dsynctest.Faulty // each worker's connection to the store
	sessions map[string]*dsync.Session
}

func newGoroutines() *goroutines {
	ctx, cancel := context.WithCancel(context.Background())
	return &goroutines{
		store: dsynctest.NewMemory(), ctx: ctx, cancel: cancel,
		links: map[string]*dsynctest.Faulty{}, sessions: map[string]*dsync.Session{},
	}
}

func (g *goroutines) start(name string, p part, tell func(event)) error {
	link := dsynctest.NewFaulty(g.store, nil)
	// Unlike a killed process, a worker that is cut off from the store would go on logging warnings.
	silent := slog.New(slog.DiscardHandler)
	s, err := dsync.New(link, &dsync.Options{TTL: ttl, Host: name, Logger: silent})
	if err != nil {
		return err
	}
	g.links[name], g.sessions[name] = link, s
	g.wg.Go(func() {
		p.work(g.ctx, s, func(e event) {
			e.worker = name
			tell(e)
		})
	})
	return nil
}

// kill cuts the worker off from the store. To the other workers, it seems to have been killed.
func (g *goroutines) kill(name string) error {
	g.killed = name
	g.links[name].Cut()
	return nil
}

func (g *goroutines) stop() error {
	g.cancel()
	g.wg.Wait()
	var first error
	for name, s := range g.sessions {
		g.links[name].Heal()
		if err := s.Close(context.Background()); err != nil && first == nil && name != g.killed {
			first = err
		}
		g.links[name].Close()
	}
	return first
}
