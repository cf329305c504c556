package main

import (
	"context"
	"fmt"
	"math/rand/v2"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/leasehold-go/leasehold/bench/internal/measure"
	"github.com/leasehold-go/leasehold/dsync"
)

// keys measures Lock and Unlock of keys chosen at random from many, relative to keys chosen from
// ten.
func (r *report) keys(ctx context.Context) ([]row, error) {
	const few = 10
	line := row{
		name: fmt.Sprintf("Lock and Unlock of a random key of %d", r.effort.keys),
		unit: fmt.Sprintf("of a random key of %d", few),
	}
	if !r.lab.here[one] {
		return []row{line}, nil
	}
	var ops [2]measure.Op
	for i, n := range []int{r.effort.keys, few} {
		t, err := r.lab.target(one)
		if err != nil {
			return nil, err
		}
		defer t.Close(context.WithoutCancel(ctx))
		s, err := t.Session(ctx, dsync.Options{})
		if err != nil {
			return nil, err
		}
		defer s.Close(context.WithoutCancel(ctx))
		if err := makeKeys(ctx, t, s, n); err != nil {
			return nil, err
		}
		ops[i] = measure.Timed(func(ctx context.Context) error {
			h, err := s.Mutex(keyName(rand.IntN(n))).Hold(ctx)
			if err != nil {
				return err
			}
			return h.Release(ctx)
		})
	}
	line, err := r.compare(ctx, line, r.effort.turns, units{}, contender{column: one, op: ops[0], unit: ops[1]})
	return []row{line}, err
}

func keyName(i int) string { return fmt.Sprintf("key %d", i) }

// makeKeys makes the records of n keys that were used before: it locks and unlocks the first key,
// and copies its record for the others.
func makeKeys(ctx context.Context, t *measure.Target, s *dsync.Session, n int) error {
	h, err := s.Mutex(keyName(0)).Hold(ctx)
	if err != nil {
		return err
	}
	if err := h.Release(ctx); err != nil {
		return err
	}
	c := t.DB.Collection("leasehold")
	var record bson.D
	if err := c.FindOne(ctx, bson.D{{Key: "_id", Value: "k/" + keyName(0)}}).Decode(&record); err != nil {
		return err
	}
	var copies []any
	for i := 1; i < n; i++ {
		doc := append(bson.D(nil), record...)
		for j := range doc {
			if doc[j].Key == "_id" {
				doc[j].Value = "k/" + keyName(i)
			}
		}
		copies = append(copies, doc)
	}
	_, err = c.InsertMany(ctx, copies, options.InsertMany().SetOrdered(false))
	return err
}
