package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/leasehold-go/leasehold/dsync"
	dsyncmongo "github.com/leasehold-go/leasehold/dsync/mongo"
	"go.mongodb.org/mongo-driver/v2/bson"
)

// pushed asks whether grants are pushed.
func (b *bench) pushed(ctx context.Context) (yes bool, err error) {
	store, err := dsyncmongo.NewStore(ctx, b.scratch.Database(), &dsyncmongo.Options{Collection: b.scratch.Name(), ReadOnly: true})
	if err != nil {
		return false, err
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	err = store.Watch(ctx, watching, nil, func(dsync.Event) {
		yes = true
		cancel()
	})
	if yes || errors.Is(err, errors.ErrUnsupported) {
		err = nil
	}
	return yes, err
}

// write is one majority write: what everything is made of.
func (b *bench) write(ctx context.Context) (time.Duration, error) {
	begin := time.Now()
	var r struct {
		WriteErrors       []bson.Raw `bson:"writeErrors"`
		WriteConcernError bson.Raw   `bson:"writeConcernError"`
	}
	err := b.scratch.Database().RunCommand(ctx, bson.D{
		{Key: "update", Value: b.scratch.Name()},
		{Key: "updates", Value: bson.A{bson.D{
			{Key: "q", Value: bson.D{{Key: "_id", Value: "bench"}}},
			{Key: "u", Value: bson.D{{Key: "$inc", Value: bson.D{{Key: "n", Value: int64(1)}}}}},
			{Key: "upsert", Value: true},
		}}},
		{Key: "writeConcern", Value: bson.D{{Key: "w", Value: "majority"}}},
	}).Decode(&r)
	if err == nil && len(r.WriteErrors)+len(r.WriteConcernError) > 0 {
		err = fmt.Errorf("majority write: %v %v", r.WriteErrors, r.WriteConcernError)
	}
	return time.Since(begin), err
}

// handOver is the time from the Unlock of one session to the Lock of the other, which
// stands in line.
func handOver(ctx context.Context, from, to *dsync.Session) (time.Duration, error) {
	const key = "hand-over"
	mu, next := from.Mutex(key), to.Mutex(key)
	if err := mu.LockContext(ctx); err != nil {
		return 0, err
	}
	type result struct {
		at  time.Time
		err error
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	locked := make(chan result, 1)
	go func() {
		err := next.LockContext(ctx)
		locked <- result{time.Now(), err}
	}()
	err := inLine(ctx, from, key)
	begin := time.Now()
	if bad := mu.UnlockContext(ctx); err == nil {
		err = bad
	}
	if err != nil {
		cancel()
	}
	r := <-locked
	if r.err == nil {
		r.err = next.UnlockContext(ctx)
	}
	return r.at.Sub(begin), errors.Join(err, r.err)
}

// inLine waits until somebody waits for the key. A reading that fails, as one may where
// the TTL leaves it little time, is made again.
func inLine(ctx context.Context, s *dsync.Session, key string) error {
	for {
		if st, err := s.Status(ctx, key); err == nil && st.Waiting > 0 {
			return nil
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(5 * time.Millisecond):
		}
	}
}
