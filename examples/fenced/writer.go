package main

import (
	"context"
	"errors"
	"time"

	dsyncmongo "github.com/leasehold-go/leasehold/dsync/mongo"
)

// key is that of the lock, and the _id of the document that it guards.
const key = "account 7"

// A writer writes under the lock.
type writer struct {
	*process
	think time.Duration
	write func(ctx context.Context, token int64) error
}

// run locks, thinks and writes.
func (w *writer) run(ctx context.Context) error {
	mu := w.locks.Mutex(key)
	if err := mu.LockContext(ctx); err != nil {
		return err
	}
	defer mu.Unlock()
	token := mu.Token()
	w.log.Info("holds", "token", token)

	// A program would think, and write, under mu.Context, which ends when the lock is
	// lost. This one is frozen between its last check of that context and the write.
	select {
	case <-time.After(w.think):
	case <-ctx.Done():
		return ctx.Err()
	}

	err := w.write(ctx, token)
	switch {
	case errors.Is(err, dsyncmongo.ErrFenced):
		w.log.Warn("refused", "token", token, "err", err)
	case err == nil:
		w.log.Info("wrote", "token", token)
	}
	return err
}
