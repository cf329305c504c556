package mongo

import (
	"context"
	"encoding/base64"
	"fmt"
	"strings"

	"github.com/leasehold-go/leasehold/dsync"
	"go.mongodb.org/mongo-driver/v2/bson"
)

// The revocations that stand for a session are one string in its record, "rev",
// a list of what revocation returns, each with a comma: a string shows whole in
// every event that changes it, a list does not. See decodeEvent.
func revocation(r dsync.Revocation) string {
	return r.Claim + ":" + base64.RawURLEncoding.EncodeToString([]byte(r.Key))
}

// revocations reads such a list.
func revocations(rev string) ([]dsync.Revocation, error) {
	var list []dsync.Revocation
	for entry := range strings.SplitSeq(rev, ",") {
		if entry == "" {
			continue
		}
		claim, name, ok := strings.Cut(entry, ":")
		key, err := base64.RawURLEncoding.DecodeString(name)
		if err != nil || !ok {
			return nil, fmt.Errorf("revocation %q is none: was the record edited?", entry)
		}
		list = append(list, dsync.Revocation{Key: string(key), Claim: claim})
	}
	return list, nil
}

// entries is the list in the record as an array, the last of which is "".
func entries() bson.D { return op("$split", op("$ifNull", "$rev", ""), ",") }

// notDead is the query with the condition that the session is not dead.
func notDead(query bson.D) bson.D { return append(query, e("dead", bson.D{e("$ne", true)})) }

// Heartbeat implements [dsync.Store].
func (s *Store) Heartbeat(ctx context.Context, session string, given []dsync.Revocation) (dsync.Pulse, error) {
	return s.heartbeat(ctx, sessionQuery(session), given)
}

func (s *Store) heartbeat(ctx context.Context, query bson.D, given []dsync.Revocation) (dsync.Pulse, error) {
	beat := set(e("at", now))
	if len(given) > 0 {
		off := bson.A{""}
		for _, r := range given {
			off = append(off, revocation(r))
		}
		left := op("$reduce", bson.D{
			e("input", filter(entries(), op("$not", op("$in", "$$x", literal(off))))), e("initialValue", ""),
			e("in", op("$concat", "$$value", "$$this", ",")),
		})
		beat = set(e("at", now), e("rev", let("left", left, op("$cond", op("$eq", "$$left", ""), "$$REMOVE", "$$left"))))
	}
	var r sessionRecord
	found, err := s.modify(ctx, modify{
		query:  notDead(query),
		update: bson.A{beat},
		fields: bson.D{e("at", 1), e("rev", 1)},
	}, &r)
	switch {
	case err != nil:
		return dsync.Pulse{}, failure("heartbeat", err)
	case !found:
		return dsync.Pulse{}, fmt.Errorf("mongo: heartbeat: %w", dsync.ErrSessionDead)
	}
	s.clock.told(r.At)
	revoked, err := revocations(r.Rev)
	if err != nil {
		return dsync.Pulse{}, failure("heartbeat", err)
	}
	return dsync.Pulse{Now: r.At, Revoked: revoked}, nil
}

// Revoke implements [dsync.Store].
func (s *Store) Revoke(ctx context.Context, session string, r dsync.Revocation) error {
	return s.revoke(ctx, sessionQuery(session), r)
}

func (s *Store) revoke(ctx context.Context, query bson.D, r dsync.Revocation) error {
	entry := revocation(r)
	found, _, err := s.update(ctx, bson.D{
		e("q", notDead(query)),
		e("u", bson.A{set(e("rev", op("$cond", op("$in", literal(entry), entries()), "$rev",
			op("$concat", op("$ifNull", "$rev", ""), literal(entry), ",")))),
		}),
	})
	switch {
	case err != nil:
		return failure("revoke", err)
	case !found:
		return fmt.Errorf("mongo: revoke: %w", dsync.ErrSessionDead)
	}
	return nil
}
