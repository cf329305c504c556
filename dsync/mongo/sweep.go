package mongo

import (
	"context"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
)

const (
	// sweepSlice is how many records one Sweep looks at.
	sweepSlice = 256

	// maxAlive is how far living sessions are counted, and maxCounted how many
	// records are looked at for it, newest ids first: a fleet of short-lived
	// processes leaves many tombstones.
	maxAlive   = 1_000
	maxCounted = 10_000

	// making is for how long at least a record is left that was made for a command that
	// has not come yet (see create): longer than any is under way.
	making = time.Hour
)

// Sweep implements [dsync.Store]. It sends two commands: one finds the slice's
// end, counts the living and reads the server's clock; one deletes what was idle by
// that reading (delete has no $$NOW on 4.4), with all conditions in its filter, so
// that a record that comes to life in between is left alone. A key's record goes
// by its last token, not by its last use: the tokens of a busy semaphore run ahead
// of the clock, and would be given a second time. What was made for a command that never
// came goes an hour later than the rest.
func (s *Store) Sweep(ctx context.Context, after string, retention time.Duration) (next string, alive int, err error) {
	var r []struct {
		Now   time.Time `bson:"now"`
		Last  string    `bson:"last"`
		Size  int       `bson:"size"`
		Alive int       `bson:"alive"`
	}
	counted := bson.A{
		bson.D{e("$match", bson.D{prefixed(sessionID(""))})},
		bson.D{e("$sort", bson.D{e("_id", -1)})},
		bson.D{e("$limit", maxCounted)},
		bson.D{e("$match", living())},
		bson.D{e("$limit", maxAlive)},
		bson.D{e("$count", "alive")},
	}
	err = s.aggregate(ctx, &r, false,
		bson.D{e("$match", bson.D{e("_id", bson.D{e("$gt", after)})})},
		bson.D{e("$sort", bson.D{e("_id", 1)})},
		bson.D{e("$limit", sweepSlice)},
		bson.D{e("$group", bson.D{e("_id", nil), e("last", op("$max", "$_id")), e("size", op("$sum", 1))})},
		set(e("now", now)),
		bson.D{e("$unionWith", bson.D{e("coll", s.collection), e("pipeline", counted)})},
	)
	if err != nil {
		return "", 0, failure("sweep", err)
	}
	var last string
	var past time.Time
	for _, d := range r {
		alive += d.Alive
		if d.Size > 0 {
			last, past = d.Last, d.Now.Add(-retention)
		}
		if d.Size == sweepSlice {
			next = d.Last
		}
	}
	if last == "" {
		return "", alive, nil
	}
	_, err = s.write(ctx, bson.D{
		e("delete", s.collection),
		e("deletes", bson.A{bson.D{
			e("q", bson.D{
				e("_id", bson.D{e("$gt", after), e("$lte", last)}),
				e("$or", bson.A{idleKeys(past), idleSessions(past), leftProbes(past)}),
			}),
			e("limit", 0),
		}}),
	})
	if err != nil {
		return "", 0, failure("sweep", err)
	}
	return next, alive, nil
}

// prefixed is the condition that the _id begins with p, which ends in '/'.
func prefixed(p string) bson.E {
	return e("_id", bson.D{e("$gte", p), e("$lt", p[:len(p)-1]+"0")}) // '0' follows '/'
}

// idleKeys are records of keys in a format we know that nobody held or waited for
// since then. A holder whose end has come holds no longer. One without h waits for
// the command that it was made for.
func idleKeys(since time.Time) bson.D {
	holding := filter(list("$h"), op("$cond", op("$ifNull", "$$x.e", false), op("$gt", "$$x.e", since), true))
	return bson.D{
		prefixed(keyID("")),
		e("f", bson.D{e("$not", bson.D{e("$gt", formatVersion)})}),
		e("t", bson.D{e("$not", bson.D{e("$gt", since.UnixMilli()*tokenStep)})}),
		e("at", bson.D{e("$not", bson.D{e("$gt", since)})}), // a new limit of a key without a token
		e("$or", bson.A{bson.D{e("h", bson.D{e("$exists", true)})}, bson.D{e("at", bson.D{e("$lte", since.Add(-making))})}}),
		e("q.0", bson.D{e("$exists", false)}),
		e("done", bson.D{e("$exists", false)}), // a seal
		e("n", bson.D{e("$exists", false)}),    // and a term are to be kept; a value is the holder's
		e("$expr", op("$eq", op("$size", holding), 0)),
	}
}

// idleSessions are tombstones, and sessions that lapsed without being buried:
// gone, they are unknown, and so as dead as before. One without a TTL waits for
// the command that it was made for.
func idleSessions(since time.Time) bson.D {
	ttl := op("$cond", op("$eq", "$dead", true), 0, op("$ifNull", "$ttl", making.Milliseconds()))
	end := op("$add", op("$ifNull", "$at", op("$toDate", int64(0))), ttl)
	return bson.D{
		prefixed(sessionID("")),
		e("$expr", op("$lte", end, since)),
	}
}

// leftProbes are what a process left that died while it made a store.
func leftProbes(since time.Time) bson.D {
	return bson.D{prefixed(probePrefix), e("at", bson.D{e("$lte", since)})}
}
