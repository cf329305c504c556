package mongo

import (
	"context"
	"fmt"

	"github.com/leasehold-go/leasehold/dsync"
	"go.mongodb.org/mongo-driver/v2/bson"
)

// Observe implements [dsync.Store]. The keys stand in the session's record as they
// are, the list's number beside them. In change events they may show in parts, and
// nobody looks for them there: see decodeEvent.
func (s *Store) Observe(ctx context.Context, session string, seq int64, keys []string) error {
	newer := op("$gt", seq, op("$ifNull", "$list", int64(0)))
	var list any = "$$REMOVE"
	if len(keys) > 0 {
		list = literal(keys)
	}
	found, _, err := s.update(ctx, bson.D{
		e("q", notDead(sessionQuery(session))),
		e("u", bson.A{set(
			e("obs", op("$cond", newer, list, "$obs")),
			e("list", op("$cond", newer, seq, "$list")),
		)}),
	})
	switch {
	case err != nil:
		return failure("observe", err)
	case !found:
		return fmt.Errorf("mongo: observe: %w", dsync.ErrSessionDead)
	}
	return nil
}

// Observers implements [dsync.Store]. It passes over every session's record behind
// after, those of the dead included, until it has n: an index for it would be written
// with every heartbeat.
func (s *Store) Observers(ctx context.Context, key, after string, n int) ([]dsync.Member, error) {
	if n = min(n, maxShown); n < 1 {
		return nil, nil
	}
	behind := bson.D{e("$gt", sessionID(after)), e("$lt", successor(sessionID("")))}
	raw, err := s.run(ctx, s.read([]bson.D{
		{e("$match", append(bson.D{e("_id", behind), e("obs", key)}, living()...))},
		{e("$sort", bson.D{e("_id", 1)})},
		{e("$limit", n)},
		{e("$project", append(bson.D{e("at", 1), e("ttl", 1)}, shown()...))},
	}, bson.D{e("batchSize", n+1)}, false)) // all in one batch: what a session shows is some KiB at most
	var found []sessionRecord
	if err == nil {
		err = batch(raw, &found)
	}
	if err != nil {
		return nil, failure("observers", err)
	}
	return members(found), nil
}

// Line implements [dsync.Store]: 10,000 claims are about 1 MB.
func (s *Store) Line(ctx context.Context, key string) ([]dsync.Waiter, error) {
	st, err := s.load(ctx, keyID(key), key, maxLine)
	if err != nil {
		return nil, failure("line", err)
	}
	return st.Ahead, nil
}
