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

// A sessionRecord is a session's record, or the part of it that a reply contains.
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

	Settings settingsRecord `bson:"opt"`
	HostFile string         `bson:"file"`
}

// A settingsRecord is driver.Settings with durations in milliseconds.
type settingsRecord struct {
	Version   string `bson:"v,omitempty"`
	Heartbeat int64  `bson:"h,omitempty"`
	Poll      int64  `bson:"p,omitempty"`
	Margin    int64  `bson:"m,omitempty"`
	Grace     int64  `bson:"g,omitempty"`
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
		Name: r.Name, Host: r.Host, PID: r.PID, App: r.App, HostFile: r.HostFile, LastHeartbeat: r.At, Expired: r.Expired,
	}
	ms := func(n int64) time.Duration { return time.Duration(n) * time.Millisecond }
	o := r.Settings
	m.Settings = driver.Settings{Version: o.Version, Heartbeat: ms(o.Heartbeat), Poll: ms(o.Poll), Margin: ms(o.Margin), Grace: ms(o.Grace)}
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
func (s *store) Register(ctx context.Context, m driver.Member) (now time.Time, err error) {
	return s.register(urgent(ctx), sessionQuery(m.ID), m)
}

func (s *store) register(ctx context.Context, query bson.D, m driver.Member) (time.Time, error) {
	meta := make([]metaField, 0, len(m.Meta))
	for _, name := range slices.Sorted(maps.Keys(m.Meta)) {
		meta = append(meta, metaField{valid(name), valid(m.Meta[name])})
	}
	o := m.Settings
	settings := settingsRecord{valid(o.Version), o.Heartbeat.Milliseconds(), o.Poll.Milliseconds(), o.Margin.Milliseconds(), o.Grace.Milliseconds()}
	// If the session is known, expired or not, its record does not match. Then the upsert tries to insert a second
	// record with the same _id, which the server refuses. A record made by create matches, because it has no ttl
	// yet.
	query = append(query, e("ttl", bson.D{e("$exists", false)}), e("dead", bson.D{e("$ne", true)}))
	fields := bson.D{
		e("at", now),
		e("ttl", literal(m.TTL.Milliseconds())),
		e("name", literal(valid(m.Name))),
		e("host", literal(valid(m.Host))),
		e("pid", literal(m.PID)),
		e("app", literal(valid(m.App))),
		e("meta", literal(meta)),
		e("opt", literal(settings)),
	}
	if m.HostFile != "" {
		fields = append(fields, e("file", literal(m.HostFile)))
	}
	var r sessionRecord
	_, err := s.modify(ctx, modify{
		query:  query,
		update: bson.A{set(s.withAddress(fields, m.ID)...)},
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

// valid returns text as valid UTF-8. The text is only for display, so it must not make the server refuse the session.
func valid(text string) string { return strings.ToValidUTF8(text, "\uFFFD") }

// Expire implements [driver.Store]. If the session is alive and owner is false, Expire writes nothing.
func (s *store) Expire(ctx context.Context, session string, owner bool) (left time.Duration, err error) {
	if owner {
		return 0, s.unregister(ctx, session)
	}
	return s.expire(ctx, sessionQuery(session))
}

func (s *store) expire(ctx context.Context, query bson.D) (left time.Duration, err error) {
	end := op("$add", op("$ifNull", "$at", op("$toDate", int64(0))), op("$ifNull", "$ttl", 0))
	var r sessionRecord
	_, err = s.modify(ctx, modify{
		query: query,
		update: bson.A{set(
			e("dead", op("$cond", op("$or", op("$eq", "$dead", true), op("$lte", end, now)), true, "$$REMOVE")),
			e("at", op("$ifNull", "$at", now)), // decides when a sweep deletes the record of an unknown session
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
	ttl := time.Duration(r.TTL) * time.Millisecond
	left = r.At.Add(ttl).Sub(r.Now)
	if left <= 0 {
		return 0, errors.New("mongo: expire: the server did not expire a session that has lapsed by the server's own clock")
	}
	return min(left, ttl), nil
}

// unregister expires a session for its owner.
func (s *store) unregister(ctx context.Context, session string) error {
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

// Sessions implements [driver.Store]. Without IDs it scans the records of the sessions after q.After until it has
// found as many as it may return. The scan includes sessions that expired recently and are not swept yet. There is no
// index of the observed keys.
func (s *store) Sessions(ctx context.Context, q driver.SessionQuery) ([]driver.Member, time.Time, error) {
	find := []bson.D{named(q.IDs)}
	if len(q.IDs) == 0 {
		find = aliveSessions(q)
	}
	fields := life()
	if !q.Liveness {
		fields = append(fields, shown()...)
	}
	r, err := readFacet[sessionRecord](ctx, s, false, facet(fields, find...))
	if err != nil {
		return nil, time.Time{}, failure("sessions", err)
	}
	var m []driver.Member
	for _, f := range r.Found {
		m = append(m, f.member())
	}
	return m, r.Now, nil
}

// aliveSessions returns the stages that find the live sessions selected by q. A session's names and metadata are
// a few KiB at most, so one reply has room for all sessions.
func aliveSessions(q driver.SessionQuery) []bson.D {
	limit := q.Limit
	if limit <= 0 || limit > maxShown {
		limit = maxShown
	}
	match := bson.D{e("_id", bson.D{e("$gt", sessionID(q.After)), e("$lt", successor(sessionID("")))})}
	if q.Observing != "" {
		match = append(match, e("obs", q.Observing))
	}
	return []bson.D{
		{e("$match", append(match, living()...))},
		{e("$sort", bson.D{e("_id", 1)})},
		{e("$limit", limit)},
	}
}

// shown returns the fields for display and the fields for other processes on the same host.
func shown() bson.D {
	return bson.D{e("name", 1), e("host", 1), e("pid", 1), e("app", 1), e("meta", 1), e("opt", 1), e("file", 1)}
}

// life returns the fields that say whether a session is alive.
func life() bson.D { return bson.D{e("at", 1), e("ttl", 1), e("dead", 1)} }

// named returns the stage that finds the sessions with the given ids.
func named(ids []string) bson.D {
	in := make([]string, 0, len(ids))
	for _, id := range ids {
		in = append(in, sessionID(id))
	}
	return bson.D{e("$match", bson.D{e("_id", bson.D{e("$in", in)})})}
}

// living is the condition that a session is alive.
func living() bson.D {
	return bson.D{
		e("dead", bson.D{e("$ne", true)}),
		e("$expr", op("$gt", op("$add", "$at", "$ttl"), now)),
	}
}
