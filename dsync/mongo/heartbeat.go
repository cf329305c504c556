package mongo

import (
	"context"
	"fmt"

	"github.com/leasehold-go/leasehold/dsync/driver"
	"go.mongodb.org/mongo-driver/v2/bson"
)

// A revocationRecord is one revocation in the list "rev" of a session's record.
type revocationRecord struct {
	Key   string `bson:"k"`
	Claim string `bson:"a"`
}

// revoked returns an expression: the record's list of revocations.
func revoked() bson.D { return list("$rev") }

// registered adds to query the conditions that the session was registered and has not expired. A record without a ttl
// is one that create has made for a command that never came. Others would expire its session at once.
func registered(query bson.D) bson.D {
	return append(query, e("ttl", bson.D{e("$exists", true)}), e("dead", bson.D{e("$ne", true)}))
}

// Heartbeat implements [driver.Store]. After an early release it also sends hello, until the release is known to be
// committed.
func (s *store) Heartbeat(ctx context.Context, session string, given []driver.Revocation) (driver.HeartbeatReply, error) {
	defer s.heartbeats.send()
	ctx = urgent(ctx)
	reply, err := s.heartbeat(ctx, sessionQuery(session), given)
	if err == nil {
		reply.Committed = s.committed(ctx)
	}
	return reply, err
}

func (s *store) heartbeat(ctx context.Context, query bson.D, given []driver.Revocation) (driver.HeartbeatReply, error) {
	update := set(e("at", now))
	if len(given) > 0 {
		var off []revocationRecord
		for _, r := range given {
			off = append(off, revocationRecord(r))
		}
		left := filter(revoked(), op("$not", op("$in", "$$this", literal(off))))
		update = set(e("at", now), e("rev", let("left", left, op("$cond", op("$eq", "$$left", bson.A{}), "$$REMOVE", "$$left"))))
	}
	var r sessionRecord
	found, err := s.modify(ctx, modify{
		query:  registered(query),
		update: bson.A{update},
		fields: bson.D{e("at", 1), e("rev", 1)},
	}, &r)
	switch {
	case err != nil:
		return driver.HeartbeatReply{}, failure("heartbeat", err)
	case !found:
		return driver.HeartbeatReply{}, fmt.Errorf("mongo: heartbeat: %w", driver.ErrSessionExpired)
	}
	s.clock.set(r.At)
	reply := driver.HeartbeatReply{Now: r.At}
	for _, stands := range r.Revoked {
		reply.Revoked = append(reply.Revoked, driver.Revocation(stands))
	}
	return reply, nil
}

// Revoke implements [driver.Store].
func (s *store) Revoke(ctx context.Context, session string, r driver.Revocation) ([]driver.Notice, error) {
	address, err := s.revoke(ctx, sessionQuery(session), r)
	if err != nil || address == 0 {
		return nil, err
	}
	return s.sendable([]driver.Notice{{Type: driver.NoticeRevoke, Session: session, Key: r.Key, Claim: r.Claim, Address: address}}), nil
}

// revoke returns the session's address, or 0 if the session does not listen.
func (s *store) revoke(ctx context.Context, query bson.D, r driver.Revocation) (address int, err error) {
	entry := literal(revocationRecord(r))
	var record sessionRecord
	found, err := s.modify(ctx, modify{
		query: registered(query),
		update: bson.A{set(e("rev", op("$cond", op("$in", entry, revoked()), "$rev",
			op("$concatArrays", revoked(), bson.A{entry}))))},
		fields: bson.D{e("p", 1)},
	}, &record)
	switch {
	case err != nil:
		return 0, failure("revoke", err)
	case !found:
		return 0, fmt.Errorf("mongo: revoke: %w", driver.ErrSessionExpired)
	}
	return record.Address, nil
}
