package mongo

import (
	"context"
	"fmt"
	"time"

	"github.com/leasehold-go/leasehold/dsync/driver"
	"go.mongodb.org/mongo-driver/v2/bson"
)

// Observe implements [driver.Store]. It writes the keys and seq into the session's record, where Sessions finds
// them. It does not make the session receive notices of changes; Listen does that.
func (s *store) Observe(ctx context.Context, session string, seq int64, keys []string) error {
	newer := op("$gt", seq, op("$ifNull", "$list", int64(0)))
	var list any = "$$REMOVE"
	if len(keys) > 0 {
		list = literal(keys)
	}
	found, _, err := s.update(ctx, bson.D{
		e("q", registered(sessionQuery(session))),
		e("u", bson.A{set(
			e("obs", op("$cond", newer, list, "$obs")),
			e("list", op("$cond", newer, seq, "$list")),
		)}),
	})
	switch {
	case err != nil:
		return failure("observe", err)
	case !found:
		return fmt.Errorf("mongo: observe: %w", driver.ErrSessionExpired)
	}
	return nil
}

const (
	// observedFor is how long a mark lasts. When a listener opens a cursor, it marks its keys again if it last marked
	// them more than markAgain ago. The command renews only marks that have less than half of observedFor left.
	// markAgain plus the age of a cursor is less than half of observedFor, so marks are renewed in time.
	observedFor = 10 * time.Minute
	markAgain   = 3 * time.Minute

	// maxMarks is the maximum number of keys that one command marks.
	maxMarks = 1_000
)

// mark marks the tail's keys as observed, unless it has done so recently. The mark is a time, in the field "o".
// Commands that change the record before that time return a notice of the change. Short commands whose reply does not
// contain the record do nothing if the record has a mark. The first command that settles the key after the mark's
// time removes the mark. All sessions that observe a key share one mark, and renew it only after half of its time.
//
// If there is no record, mark creates one, with a time that tells a sweep when to delete the record.
func (t *tail) mark(ctx context.Context) error {
	if len(t.keys) == 0 || !t.marked.IsZero() && time.Since(t.marked) < markAgain {
		return nil
	}
	sent := time.Now()
	for begin := 0; begin < len(t.keys); begin += maxMarks {
		if err := t.s.mark(ctx, t.keys[begin:min(begin+maxMarks, len(t.keys))]); err != nil {
			return err
		}
	}
	t.marked = sent
	return nil
}

func (s *store) mark(ctx context.Context, keys []string) error {
	var marks bson.A
	for _, key := range keys {
		marks = append(marks, bson.D{
			e("q", bson.D{e("_id", keyID(key))}), e("u", theShapes().mark), e("upsert", true),
		})
	}
	cmd := bson.D{e("update", s.collection), e("updates", marks), e("ordered", false)}
	_, err := s.write(ctx, cmd)
	if hasCode(err, codeDuplicateKey) { // upserts raced: see modify
		_, err = s.write(ctx, cmd)
	}
	return err
}

// marking returns the pipeline that sets the mark. It does not change a record in a later format, where "o" may mean
// something else.
func marking() []bson.D {
	due := op("$and",
		op("$lt", "$o", op("$add", now, (observedFor/2).Milliseconds())),
		op("$not", op("$gt", "$f", formatVersion)))
	return []bson.D{set(
		e("o", op("$cond", due, op("$add", now, observedFor.Milliseconds()), "$o")),
		e("at", op("$cond", due, now, "$at")),
	)}
}
