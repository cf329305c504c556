package main

import (
	"context"
	"sync"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"
)

// A table is what is migrated.
type table interface {
	// insert inserts the row, with the token of the run, unless it is there.
	insert(ctx context.Context, id string, token int64) error
}

// A collection is a table in MongoDB.
type collection struct{ c *mongo.Collection }

func (t *collection) insert(ctx context.Context, id string, token int64) error {
	_, err := t.c.UpdateOne(ctx, bson.D{{Key: "_id", Value: id}},
		bson.D{{Key: "$setOnInsert", Value: bson.D{{Key: "token", Value: token}}}},
		options.UpdateOne().SetUpsert(true))
	return err
}

// A memory is a table of this process.
type memory struct {
	mu   sync.Mutex
	rows map[string]int64
}

func (t *memory) insert(_ context.Context, id string, token int64) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	if _, there := t.rows[id]; !there {
		if t.rows == nil {
			t.rows = make(map[string]int64)
		}
		t.rows[id] = token
	}
	return nil
}
