package mongo

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/leasehold-go/leasehold/dsync/driver"
	"go.mongodb.org/mongo-driver/v2/bson"
)

// A sessionRecord is a session's record, or what replies have of it.
type sessionRecord struct {
	ID      string    `bson:"_id"`
	Now     time.Time `bson:"now"`
	At      time.Time `bson:"at"`
	TTL     int64     `bson:"ttl"` // ms
	Expired bool      `bson:"dead"`

	Revoked []revocationRecord `bson:"rev"`
	Address int                `bson:"p"` // 0 if it does not listen

	Name string      `bson:"name"`
	Host string      `bson:"host"`
	PID  int         `bson:"pid"`
	App  string      `bson:"app"`
	Meta []metaField `bson:"meta"`
}

// A metaField is one entry of Meta. Meta is kept as a list, because some names, such as "$x"
// and "a.b", cannot be field names.
type metaField struct {
	Name  string `bson:"k"`
	Value string `bson:"v"`
}

func (r *sessionRecord) member() driver.Member {
	m := driver.Member{
		ID: strings.TrimPrefix(r.ID, sessionID("")), TTL: time.Duration(r.TTL) * time.Millisecond,
		Name: r.Name, Host: r.Host, PID: r.PID, App: r.App, LastHeartbeat: r.At, Expired: r.Expired,
	}
	if len(r.Meta) > 0 {
		m.Meta = make(map[string]string, len(r.Meta))
		for _, f := range r.Meta {
			m.Meta[f.Name] = f.Value
		}
	}
	return m
}

func sessionQuery(session string) bson.D { return bson.D{e("_id", sessionID(session))} }

// Register implements [driver.Store].
func (s *Store) Register(ctx context.Context, m driver.Member) (now time.Time, err error) {
	return s.register(ctx, sessionQuery(m.ID), m)
}

func (s *Store) register(ctx context.Context, query bson.D, m driver.Member) (time.Time, error) {
	meta := make([]metaField, 0, len(m.Meta))
	for _, name := range slices.Sorted(maps.Keys(m.Meta)) {
		meta = append(meta, metaField{valid(name), valid(m.Meta[name])})
	}
	// A known session, expired or not, does not match. The upsert then inserts a second
	// record with its _id, which the server refuses. A record from create has no ttl yet.
	query = append(query, e("ttl", bson.D{e("$exists", false)}), e("dead", bson.D{e("$ne", true)}))
	var r sessionRecord
	_, err := s.modify(ctx, modify{
		query: query,
		update: bson.A{set(s.withAddress(bson.D{
			e("at", now),
			e("ttl", literal(m.TTL.Milliseconds())),
			e("name", literal(valid(m.Name))),
			e("host", literal(valid(m.Host))),
			e("pid", literal(m.PID)),
			e("app", literal(valid(m.App))),
			e("meta", literal(meta)),
		}, m.ID)...)},
		fields: bson.D{e("at", 1)},
		upsert: true,
	}, &r)
	switch {
	case hasCode(err, codeDuplicateKey), errors.Is(err, errNoMatch):
		return time.Time{}, fmt.Errorf("mongo: register: %w: %s", driver.ErrSessionExists, m.ID)
	case err != nil:
		return time.Time{}, failure("register", err)
	}
	s.clock.set(r.At)
	return r.At, nil
}

// valid makes text that is only for display encodable, so that the server does not refuse the
// session for it.
func valid(text string) string { return strings.ToValidUTF8(text, "\uFFFD") }

// Expire implements [driver.Store]. It writes nothing if the session is alive.
func (s *Store) Expire(ctx context.Context, session string) (left time.Duration, err error) {
	return s.expire(ctx, sessionQuery(session))
}

func (s *Store) expire(ctx context.Context, query bson.D) (left time.Duration, err error) {
	end := op("$add", op("$ifNull", "$at", op("$toDate", int64(0))), op("$ifNull", "$ttl", 0))
	var r sessionRecord
	_, err = s.modify(ctx, modify{
		query: query,
		update: bson.A{set(
			e("dead", op("$cond", op("$or", op("$eq", "$dead", true), op("$lte", end, now)), true, "$$REMOVE")),
			e("at", op("$ifNull", "$at", now)), // decides when an unknown session's record is swept
		)},
		fields: bson.D{e("at", 1), e("ttl", 1), e("dead", 1), e("now", now)},
		upsert: true,
	}, &r)
	if err != nil {
		return 0, failure("expire", err)
	}
	if r.Expired {
		return 0, nil
	}
	left = r.At.Add(time.Duration(r.TTL) * time.Millisecond).Sub(r.Now)
	if left <= 0 {
		return 0, errors.New("mongo: expire: the server did not expire a session that has lapsed by its own clock")
	}
	return left, nil
}

// Unregister implements [driver.Store].
func (s *Store) Unregister(ctx context.Context, session string) error {
	var r sessionRecord
	_, err := s.modify(ctx, modify{
		query:  sessionQuery(session),
		update: bson.A{set(e("dead", true), e("at", op("$ifNull", "$at", now)))},
		fields: bson.D{e("dead", 1)},
		upsert: true,
	}, &r)
	if err != nil {
		return failure("unregister", err)
	}
	return nil
}

// Members implements [driver.Store]. Without ids it scans the records of all sessions,
// including those that expired in the last days: it is for lists, not for a loop.
func (s *Store) Members(ctx context.Context, ids ...string) ([]driver.Member, time.Time, error) {
	find := []bson.D{
		{e("$match", append(bson.D{prefixed(sessionID(""))}, living()...))},
		{e("$sort", bson.D{e("_id", 1)})},
		{e("$limit", maxShown)},
	}
	if len(ids) > 0 {
		find = []bson.D{named(ids)}
	}
	return s.sessions(ctx, "members", find, append(life(), shown()...))
}

// Liveness implements [driver.Store].
func (s *Store) Liveness(ctx context.Context, ids ...string) ([]driver.Member, time.Time, error) {
	return s.sessions(ctx, "liveness", []bson.D{named(ids)}, life())
}

// shown are the fields that only people read.
func shown() bson.D {
	return bson.D{e("name", 1), e("host", 1), e("pid", 1), e("app", 1), e("meta", 1)}
}

// members returns the members in the records.
func members(records []sessionRecord) (m []driver.Member) {
	for _, r := range records {
		m = append(m, r.member())
	}
	return m
}

// life are the fields that say whether a session is alive.
func life() bson.D { return bson.D{e("at", 1), e("ttl", 1), e("dead", 1)} }

// named returns the stage that finds the sessions with those ids.
func named(ids []string) bson.D {
	in := make([]string, 0, len(ids))
	for _, id := range ids {
		in = append(in, sessionID(id))
	}
	return bson.D{e("$match", bson.D{e("_id", bson.D{e("$in", in)})})}
}

func (s *Store) sessions(ctx context.Context, op string, find []bson.D, project bson.D) ([]driver.Member, time.Time, error) {
	r, err := readFacet[sessionRecord](ctx, s, false, facet(project, find...))
	if err != nil {
		return nil, time.Time{}, failure(op, err)
	}
	return members(r.Found), r.Now, nil
}

// living is the condition that a session is alive.
func living() bson.D {
	return bson.D{
		e("dead", bson.D{e("$ne", true)}),
		e("$expr", op("$gt", op("$add", "$at", "$ttl"), now)),
	}
}
