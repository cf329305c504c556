package mongo

import (
	"slices"
	"time"

	"github.com/leasehold-go/leasehold/dsync/driver"
	"go.mongodb.org/mongo-driver/v2/bson"
)

// These are the pipelines of the short commands. Each pipeline compares two lists, because this is a fast way to
// check most of its conditions at once. In these lists, a missing value counts as null. The conditions are not in the
// command's filter, because a filter by _id alone is the fastest, and a sharded cluster can route it.

// merged returns stages that evaluate the given expression. If its value is a document, they set the given fields to
// the values in that document; if it is null, they change nothing. On MongoDB a single stage is enough, and takes the
// server less time than a condition for each field. On FerretDB 2.7, that stage would give a record a second _id, and
// would count each record as modified.
func (s *store) merged(changes any, fields ...string) bson.A {
	if !s.server.portable {
		return bson.A{bson.D{e("$replaceWith", op("$mergeObjects", "$$ROOT", changes))}}
	}
	last := bson.D{e("_", "$$REMOVE")}
	for _, f := range fields {
		last = append(last, e(f, op("$ifNull", "$_."+f, "$"+f)))
	}
	return bson.A{set(e("_", changes)), set(last...)}
}

// These are the fields that acquiringShort compares, the same encoded, and their values if there is no record.
var (
	acquireFields   = bson.A{"$h", "$q", "$f", "$y", "$c", "$done", "$o", "$n", "$p"}
	acquireCompares = constant(acquireFields)
	noRecord        = constant(make(bson.A, len(acquireFields)))
)

// acquiringShort does what joining and settle do to a record without claims. It does so only if token is at least a
// step greater than the record's last token. claim is c's record, as joining would put it into the queue. The stages
// grant c only if the key has no record, or was last used with c's kind and limit. A record that has only an _id, and
// perhaps the time that create writes, counts as no record.
//
// On MongoDB the pipeline replaces the record with a literal, which takes the server less time than changing
// the existing record. So the record must not have fields that the literal lacks, such as an election's terms
// and former limits.
//
// If there is no record and the update can't grant the claim, it must not create one: the reply would not show that the
// claim was not granted. On MongoDB it then fails: see unmet.
func (s *store) acquiringShort(id string, c driver.Claim, claim bson.D, token int64, since, until time.Time) bson.A {
	free := bson.A{bson.A{}, bson.A{}, formatVersion, string(c.Kind), c.Limit, nil, nil, nil, nil}
	met := op("$and", op("$in", acquireCompares, literal(bson.A{free, noRecord})), op("$lte", "$t", token-driver.TokenStep), op("$lte", now, until))
	mine := append(claim, e("t", token), e("at", since))
	granted := bson.D{
		e("f", formatVersion), e("y", string(c.Kind)), e("c", c.Limit),
		e("h", bson.A{mine}), e("q", bson.A{}), e("t", token), e("at", since),
	}
	if s.server.portable {
		return s.merged(op("$cond", met, literal(granted), nil), "f", "y", "c", "h", "q", "t", "at")
	}
	granted = append(bson.D{e("_id", id)}, granted...)
	return bson.A{bson.D{e("$replaceWith", op("$cond", met, literal(granted), unmet))}}
}

// releaseCompares has the fields that releasingShort compares, and keepCompares those that it compares to keep a claim.
var (
	releaseCompares = constant(bson.A{"$h.a", "$t", "$f", "$c", "$q", "$o"})
	keepCompares    = constant(bson.A{"$h.a", "$t", "$f", "$c", "$q", "$o", "$h.e"})
)

// releasingShort removes c or, if keep is greater than 0 and c has no end, sets c's end to now + keep. It does so only
// if c is the only holder and has the key's last token, and nobody waits for the key or observes it.
func (s *store) releasingShort(c driver.Claim, keep time.Duration) bson.A {
	want := bson.A{bson.A{c.ID}, c.Token, formatVersion, c.Limit, bson.A{}, nil}
	compares, holders, otherwise := releaseCompares, bson.A{}, unmet
	if keep > 0 {
		compares, want = keepCompares, append(want, bson.A{})
		holders = bson.A{op("$mergeObjects", op("$arrayElemAt", "$h", 0), bson.D{e("e", op("$add", now, millis(keep)))})}
	}
	if s.server.portable {
		otherwise = "$h"
	}
	return bson.A{set(e("h", op("$cond", op("$eq", compares, literal(want)), holders, otherwise)))}
}

// handingOver removes c and grants the key, with the given token, to the first waiter, if there is one. It does so only
// if c is the only holder and has the key's last token, and the first waiter is simple. If j is not nil, j first joins
// the queue, so there is always a waiter.
func (s *store) handingOver(c driver.Claim, token int64, j *joiner) bson.A {
	is := bson.A{"$h.a", "$t", "$f", "$c", "$$first.d", "$$first.l"}
	want := bson.A{bson.A{c.ID}, c.Token, formatVersion, c.Limit, nil, nil}
	grant := bson.D{e("t", token), e("at", now)}
	counted := c.Kind == driver.KindElection
	if counted {
		grant = append(grant, e("n", "$$term"))
	}
	queue, met := "$q", op("$eq", is, literal(want))
	if j != nil {
		queue = "$$queue"
		met = op("$and", met, op("$lte", now, j.notAfter), op("$lt", op("$size", "$q"), driver.MaxQueue))
	}
	next := slices.Concat(grant, bson.D{ // the record also has these fields, for its last grant
		e("h", bson.A{op("$mergeObjects", "$$first", grant)}),
		e("q", op("$slice", queue, 1, driver.MaxQueue)),
	})
	if counted {
		next = let("term", op("$add", op("$ifNull", "$n", int64(0)), 1), next)
	}
	free := literal(bson.D{e("h", bson.A{}), e("q", bson.A{})})
	becomes := let("first", op("$arrayElemAt", queue, 0), op("$cond", met, op("$cond", "$$first", next, free), nil))
	if j != nil {
		becomes = let("queue", op("$concatArrays", "$q", literal(bson.A{j.record})), becomes)
	}
	return s.merged(becomes, "h", "q", "t", "at", "n")
}

// handedOver returns the fields that the conditions of handingOver need, and the waiter that was granted the key.
// Both are from the record as it was before the command. If j is not nil, it also returns the claims nearest ahead of
// j.
func handedOver(c driver.Claim, j *joiner) bson.D {
	fields := bson.D{
		e("_id", 0), e("h.a", 1), e("t", 1), e("f", 1), e("c", 1), e("o", 1), e("n", 1),
		e("first", op("$arrayElemAt", "$q", 0)), e("waiting", waiting()), e("now", now),
	}
	if j != nil {
		// At the top of a projection, $slice would be a different operator.
		fields = append(fields, e("ahead", op("$ifNull", op("$slice", "$q", -maxAhead), bson.A{})))
	}
	return fields
}
