package mongo

import (
	"context"
	"time"

	"github.com/leasehold-go/leasehold/dsync/driver"
	"go.mongodb.org/mongo-driver/v2/bson"
)

const (
	// sweepSlice is how many records one Sweep scans.
	sweepSlice = 512

	// sweepEnd is greater than the _id of every record that is swept. sweepID is the _id of the record that says how
	// far sweeping has progressed.
	sweepEnd = "x/"
	sweepID  = sweepEnd + "sweep"

	// making is longer than any command lasts. A record made by create is swept later than other records, by this
	// time, because the command that needs it may still come.
	making = time.Hour
)

// A sweepRecord says how far sweeping has progressed.
type sweepRecord struct {
	Now       time.Time `bson:"now"`
	Turn      int64     `bson:"turn"`
	By        string    `bson:"by"`
	At        time.Time `bson:"at"`
	After     string    `bson:"after"`
	Seen      int64     `bson:"seen"`
	Deleted   int64     `bson:"deleted"`
	Round     int64     `bson:"round"`
	LastRound int64     `bson:"last"`
}

func (r sweepRecord) state() driver.SweepState {
	if r.Turn == 0 { // the record was only created, or is missing
		return driver.SweepState{Now: r.Now}
	}
	return driver.SweepState{
		Turn: r.Turn, By: r.By, At: r.At, Now: r.Now,
		After: r.After, Seen: r.Seen, Deleted: r.Deleted, Round: r.Round, LastRound: r.LastRound,
	}
}

// Sweep implements [driver.Store]. It sends up to three commands, but only the first if somebody else has swept since
// the given state. The first reads the state of sweeping, the server's clock and, from the index alone, the end of
// the slice. The second deletes the records that were idle at the time that the first has read. It uses this time
// because a delete on MongoDB 4.4 cannot use $$NOW. All conditions are in its filter, so it keeps records that have
// been used again in the meantime. The third advances the state. This comes last, so if the process dies earlier, the
// slice is merely swept again.
//
// A key is idle only if both its last token and its last change are old: the tokens of a busy semaphore run ahead of
// the clock, and could otherwise be granted twice. A record that was created for a command that never came is
// deleted an hour later than others.
func (s *store) Sweep(ctx context.Context, session string, last driver.SweepState, retention time.Duration) (driver.SweepState, error) {
	st, end, size, err := s.sweepSlice(ctx, last.After)
	if err != nil {
		return driver.SweepState{}, failure("sweep", err)
	}
	if st.Turn != last.Turn || st.After != last.After {
		return st, nil
	}
	next := driver.SweepState{Turn: st.Turn + 1, Seen: size, Round: st.Round + size, LastRound: st.LastRound}
	if size > 0 {
		if next.Deleted, err = s.deleteIdle(ctx, last.After, end, st.Now.Add(-retention)); err != nil {
			return driver.SweepState{}, failure("sweep", err)
		}
	}
	if size == sweepSlice {
		next.After = end
	} else {
		next.Round, next.LastRound = 0, next.Round
	}
	if st, err = s.sweepAdvance(ctx, session, next); err != nil {
		return driver.SweepState{}, failure("sweep", err)
	}
	return st, nil
}

// sweepSlice reads the state of sweeping, and the end and size of the slice that begins after the given
// _id.
func (s *store) sweepSlice(ctx context.Context, after string) (st driver.SweepState, end string, size int64, err error) {
	var rows []struct {
		Record sweepRecord `bson:",inline"`
		End    string      `bson:"end"`
		Size   int64       `bson:"size"`
	}
	err = s.aggregate(ctx, &rows, true,
		bson.D{e("$match", bson.D{e("_id", bson.D{e("$gt", after), e("$lt", sweepEnd)})})},
		bson.D{e("$sort", bson.D{e("_id", 1)})},
		bson.D{e("$limit", sweepSlice)},
		bson.D{e("$group", bson.D{e("_id", nil), e("end", op("$max", "$_id")), e("size", op("$sum", 1))})},
		bson.D{e("$unionWith", bson.D{e("coll", s.collection), e("pipeline", bson.A{
			bson.D{e("$match", bson.D{e("_id", sweepID)})},
		})})},
		set(e("now", now)),
	)
	var r sweepRecord
	for _, row := range rows {
		if row.Size > 0 {
			r.Now, end, size = row.Record.Now, row.End, row.Size
		} else {
			r = row.Record
		}
	}
	return r.state(), end, size, err
}

// deleteIdle deletes the records of a slice that have been idle since the given time. The slice has the records whose
// _id is greater than the argument after, but not greater than the argument end. Each kind of record has its own
// statement, limited to its part of the slice. If one statement had an $or of the kinds, the server might scan all
// records of each kind.
func (s *store) deleteIdle(ctx context.Context, after, end string, then time.Time) (deleted int64, err error) {
	var deletes bson.A
	for _, kind := range []struct {
		prefix string
		idle   bson.D
	}{
		{keyID(""), idleKeys(then)}, {probePrefix, leftProbes(then)}, {sessionID(""), idleSessions(then)},
	} {
		if part, ok := within(kind.prefix, after, end); ok {
			deletes = append(deletes, bson.D{e("q", append(bson.D{part}, kind.idle...)), e("limit", 0)})
		}
	}
	if len(deletes) == 0 {
		return 0, nil
	}
	raw, err := s.write(ctx, bson.D{e("delete", s.collection), e("deletes", deletes)})
	if err != nil {
		return 0, err
	}
	deleted, _ = raw.Lookup("n").AsInt64OK()
	return deleted, nil
}

// sweepAdvance replaces the state of sweeping by the given one, with the given session as the sweeper, unless somebody
// has advanced the state in the meantime. It returns the resulting state.
func (s *store) sweepAdvance(ctx context.Context, session string, next driver.SweepState) (driver.SweepState, error) {
	mine := op("$eq", op("$ifNull", "$turn", int64(0)), next.Turn-1)
	becomes := func(field string, v any) bson.E { return e(field, op("$cond", mine, v, "$"+field)) }
	var r sweepRecord
	_, err := s.modify(ctx, modify{
		query: bson.D{e("_id", sweepID)},
		update: bson.A{set(
			becomes("by", literal(valid(session))), becomes("at", now), becomes("after", literal(next.After)),
			becomes("seen", next.Seen), becomes("deleted", next.Deleted), becomes("round", next.Round), becomes("last", next.LastRound),
			becomes("turn", next.Turn),
		)},
		fields: bson.D{
			e("turn", 1), e("by", 1), e("at", 1), e("after", 1), e("seen", 1), e("deleted", 1), e("round", 1), e("last", 1),
			e("now", now),
		},
		upsert: true,
	}, &r)
	return r.state(), err
}

// behind returns the first string after all strings that begin with p, which must end with '/'.
func behind(p string) string { return p[:len(p)-1] + "0" } // '0' follows '/'

// within returns the condition that an _id begins with p and is in the slice: greater than the argument after, but
// not greater than the argument end. ok is false if no _id can meet the condition.
func within(p, after, end string) (part bson.E, ok bool) {
	from, to := e("$gte", p), e("$lt", behind(p))
	if after >= p {
		from = e("$gt", after)
	}
	if end < behind(p) {
		to = e("$lte", end)
	}
	return e("_id", bson.D{from, to}), p <= end && after < behind(p)
}

// idleKeys matches the records, in a known format, of keys that nobody holds or waits for. The last token and the
// last change must not be after the given time. A holder whose end is not after that time does not count. A record
// without h was created for a mark, or for a command that may still come.
func idleKeys(since time.Time) bson.D {
	holding := filter(list("$h"), op("$cond", op("$ifNull", "$$this.e", false), op("$gt", "$$this.e", since), true))
	return bson.D{
		e("f", bson.D{e("$not", bson.D{e("$gt", formatVersion)})}),
		e("t", bson.D{e("$not", bson.D{e("$gt", since.UnixMilli()*driver.TokenStep)})}),
		e("at", bson.D{e("$not", bson.D{e("$gt", since)})}), // also the time of a mark
		e("$or", bson.A{bson.D{e("h", bson.D{e("$exists", true)})}, bson.D{e("at", bson.D{e("$lte", since.Add(-making))})}}),
		e("q.0", bson.D{e("$exists", false)}),
		e("done", bson.D{e("$exists", false)}), // keep seals
		e("n", bson.D{e("$exists", false)}),    // keep terms; an election's value ends with its holder
		e("$expr", op("$eq", op("$size", holding), 0)),
	}
}

// idleSessions matches the records of sessions that have expired, or have lapsed without being expired. Deleting the
// record is safe, because an unknown session is treated like an expired one. A record without a TTL was created for a
// command that may still come.
func idleSessions(since time.Time) bson.D {
	ttl := op("$cond", op("$eq", "$dead", true), 0, op("$ifNull", "$ttl", making.Milliseconds()))
	end := op("$add", op("$ifNull", "$at", op("$toDate", int64(0))), ttl)
	return bson.D{e("$expr", op("$lte", end, since))}
}

// leftProbes matches records left by processes that died during a probe.
func leftProbes(since time.Time) bson.D {
	return bson.D{e("at", bson.D{e("$lte", since)})}
}
