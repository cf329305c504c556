package measure

import (
	"context"
	"fmt"
	"sync"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
)

// An Application makes majority writes to the target's server at a fixed rate, like an application
// that uses the server for more than locks.
type Application struct {
	raw    *Raw
	writes []bson.Raw // one write for each document
	cancel context.CancelFunc
	done   chan struct{}
	err    error // the error of the first failed write; read it after done is closed
}

const (
	// writers is the maximum number of concurrent writes.
	writers = 64

	// documents is how many documents an application writes to, in turn.
	documents = 100
)

// NewApplication starts an application that writes perSecond times per second.
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

// Close stops the application and returns the error of the first failed write.
func (a *Application) Close() error {
	a.cancel()
	<-a.done
	a.raw.Close()
	return a.err
}
