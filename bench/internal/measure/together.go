package measure

import (
	"context"
	"sync"

	"go.mongodb.org/mongo-driver/v2/bson"
)

// A group sends writes together: one update at a time carries all writes that came while the last one was under way.
type group struct {
	mu      sync.Mutex
	busy    bool // an update is under way
	waiting []grouped
}

// grouped is a write that waits for its result.
type grouped struct {
	statement bson.D
	done      chan error
}

// WriteTogether writes twice to the document with that id, as [Raw.WriteEach] does with the write concern "majority", but
// together with the writes of other goroutines. This is the least that many keys can cost if each write is a statement of
// its own.
func (r *Raw) WriteTogether(ctx context.Context, id string) error {
	for range 2 {
		if err := r.together.write(ctx, r, statement(id)); err != nil {
			return err
		}
	}
	return nil
}

func (g *group) write(ctx context.Context, r *Raw, statement bson.D) error {
	w := grouped{statement, make(chan error, 1)}
	g.mu.Lock()
	g.waiting = append(g.waiting, w)
	if !g.busy {
		g.busy = true
		go g.send(ctx, r)
	}
	g.mu.Unlock()
	return <-w.done
}

// send sends updates until no write waits.
func (g *group) send(ctx context.Context, r *Raw) {
	for {
		g.mu.Lock()
		all := g.waiting
		g.waiting = nil
		g.busy = len(all) > 0
		g.mu.Unlock()
		if len(all) == 0 {
			return
		}
		err := r.updateAll(ctx, all)
		for _, w := range all {
			w.done <- err
		}
	}
}

func (r *Raw) updateAll(ctx context.Context, all []grouped) error {
	statements := make([]bson.D, len(all))
	for i, w := range all {
		statements[i] = w.statement
	}
	cmd, err := updateOf("majority", statements...)
	if err != nil {
		return err
	}
	return r.run(ctx, cmd, len(all))
}
