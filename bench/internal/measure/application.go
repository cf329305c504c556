package measure

import (
	"context"
	"fmt"
	"sync"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
)

// An Application writes to the target's server as an application does that has it for
// something else than locks: so often a second, each time acknowledged by a majority, by
// as many requests at a time as it takes, up to a bound.
type Application struct {
	raw    *Raw
	writes []bson.Raw // each of a document of its own
	cancel context.CancelFunc
	done   chan struct{}
	err    error // of the first write that failed, to be read when done is closed
}

const (
	// writers is how many of an application's requests are under way at the most.
	writers = 64

	// documents is how many it writes to by turns.
	documents = 100
)

// NewApplication starts an application.
func NewApplication(ctx context.Context, t *Target, perSecond int) (*Application, error) {
	raw, err := NewRaw(t, "application")
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithCancel(ctx)
	a := &Application{raw: raw, cancel: cancel, done: make(chan struct{})}
	for i := range documents {
		write, err := increment(fmt.Sprint("application ", i), "majority")
		if err != nil {
			cancel()
			raw.Close()
			return nil, err
		}
		a.writes = append(a.writes, write)
	}
	go a.run(ctx, perSecond)
	return a, nil
}

func (a *Application) run(ctx context.Context, perSecond int) {
	defer close(a.done)
	if perSecond == 0 {
		return
	}
	var (
		writes sync.WaitGroup
		room   = make(chan struct{}, writers)
		turn   = time.NewTicker(time.Second / time.Duration(perSecond))
		first  sync.Once
	)
	defer writes.Wait()
	defer turn.Stop()
	for i := 0; ; i++ {
		select {
		case <-turn.C:
		case <-ctx.Done():
			return
		}
		select {
		case room <- struct{}{}:
		case <-ctx.Done():
			return
		}
		writes.Go(func() {
			defer func() { <-room }()
			if err := a.raw.run(context.WithoutCancel(ctx), a.writes[i%documents]); err != nil {
				first.Do(func() { a.err = err })
			}
		})
	}
}

// Close ends it, and returns the error of the first write that failed.
func (a *Application) Close() error {
	a.cancel()
	<-a.done
	a.raw.Close()
	return a.err
}
