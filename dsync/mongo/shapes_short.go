package mongo

import (
	"slices"

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

// These are the fields that acquiring compares, the same encoded, and their values if there is no record.
var (
	acquireFields   = bson.A{"$h", "$q", "$f", "$y", "$c", "$done", "$o", "$n", "$p"}
	acquireCompares = constant(acquireFields)
	noRecord        = constant(make(bson.A, len(acquireFields)))
)

// acquiring returns the statement that does what joining and settle do to a record without claims. It does so only if the
// claim's token is at least a step greater than the record's last token. The stages grant the claim only if the key has no
// record, or was last used with the claim's kind and limit. A record that has only an _id, and perhaps the time that create
// writes, counts as no record.
//
// On MongoDB the pipeline replaces the record with a literal, which takes the server less time than changing
// the existing record. So the record must not have fields that the literal lacks, such as an election's terms
// and former limits.
//
// If there is no record and the update can't grant the claim, it must not create one: the reply would not show that the
// claim was not granted. On MongoDB it then fails: see unmet.
func (s *store) acquiring(a shortEdit) bson.D {
	c, granted := a.claim, s.granted(a)
	free := bson.A{bson.A{}, bson.A{}, formatVersion, string(c.Kind), c.Limit, nil, nil, nil, nil}
	met := op("$and", op("$in", acquireCompares, literal(bson.A{free, noRecord})), op("$lte", "$t", c.Token-driver.TokenStep), op("$lte", now, a.until))
	statement := bson.D{e("q", bson.D{e("_id", a.id)})}
	if s.server.portable {
		return append(statement, e("u", s.merged(op("$cond", met, literal(granted[1:]), nil), "f", "y", "c", "h", "q", "t", "at")))
	}
	return append(statement, e("u", bson.A{bson.D{e("$replaceWith", op("$cond", met, literal(granted), unmet))}}), e("upsert", true))
}

// making returns the statement that does what acquiring does if there is no record. All records but empty ones have a
// format, or the mark of observers. The server compares lists value by value, so one comparison is enough.
func (s *store) making(a shortEdit) bson.D {
	met := op("$lte", makeCompares, literal(bson.A{nil, nil, a.until}))
	return bson.D{
		e("q", bson.D{e("_id", a.id)}), e("upsert", true),
		e("u", bson.A{bson.D{e("$replaceWith", op("$cond", met, literal(s.granted(a)), unmet))}}),
	}
}

var makeCompares = constant(bson.A{"$f", "$o", now})

// granted returns the record of a's key after the grant.
func (s *store) granted(a shortEdit) bson.D {
	c := a.claim
	return bson.D{
		e("_id", a.id), e("f", formatVersion), e("y", string(c.Kind)), e("c", c.Limit),
		e("h", bson.A{append(s.claimRecord(c), e("t", c.Token), e("at", a.since))}), e("q", bson.A{}), e("t", c.Token), e("at", a.since),
	}
}

// freeRecord is met by a record with a limit of 1 that has no claims, and no fields that a short Acquire would remove.
var freeRecord = constant(op("$eq", bson.A{"$h", "$q", "$f", "$c", "$done", "$o", "$n", "$p"},
	literal(bson.A{bson.A{}, bson.A{}, formatVersion, int64(1), nil, nil, nil, nil})))

// acquiringTogether does what acquiring does to each of the records, if they exist. It leaves a record as it is if it does
// not meet the conditions. Unlike acquiring, it must not fail, because the server would then leave the next records as they
// are.
func (s *store) acquiringTogether(sts []*statement) bson.A {
	ids, granted, until := make(bson.A, len(sts)), make(bson.A, len(sts)), sts[0].edit.until
	for i, st := range sts {
		ids[i], granted[i] = st.edit.id, s.granted(st.edit)
		if st.edit.until.Before(until) {
			until = st.edit.until
		}
	}
	met := op("$and", freeRecord, op("$eq", "$y", "$$new.y"), op("$lte", "$t", op("$subtract", "$$new.t", driver.TokenStep)), op("$lte", now, until))
	own := op("$arrayElemAt", literal(granted), op("$indexOfArray", literal(ids), "$_id"))
	return bson.A{bson.D{e("$replaceWith", let("new", own, op("$cond", met, "$$new", "$$ROOT")))}}
}

// releaseCompares has the fields that releasing compares, and keepCompares those that it compares to keep a claim.
var (
	releaseCompares = constant(bson.A{"$h.a", "$t", "$f", "$c", "$q", "$o"})
	keepCompares    = constant(bson.A{"$h.a", "$t", "$f", "$c", "$q", "$o", "$h.e"})
)

// releasing returns the statement that removes the claim or, if keep is greater than 0 and the claim has no end, sets its
// end to now + keep. It does so only if the claim is the only holder and has the key's last token, and nobody waits for
// the key or observes it.
func (s *store) releasing(l shortEdit) bson.D {
	c := l.claim
	want := bson.A{bson.A{c.ID}, c.Token, formatVersion, c.Limit, bson.A{}, nil}
	compares, holders, otherwise := releaseCompares, bson.A{}, unmet
	if l.keep > 0 {
		compares, want = keepCompares, append(want, bson.A{})
		holders = bson.A{op("$mergeObjects", op("$arrayElemAt", "$h", 0), bson.D{e("e", op("$add", now, millis(l.keep)))})}
	}
	if s.server.portable {
		otherwise = "$h"
	}
	return bson.D{e("q", bson.D{e("_id", l.id)}), e("u", bson.A{set(e("h", op("$cond", op("$eq", compares, literal(want)), holders, otherwise)))})}
}

// usedAlone is met by a record with a limit of 1 that no claim waits for or observes.
var usedAlone = constant(op("$eq", bson.A{"$f", "$c", "$q", "$o"}, literal(bson.A{formatVersion, int64(1), bson.A{}, nil})))

// holdCompares has the fields that releasingTogether compares with each hold.
var holdCompares = constant(bson.A{"$h.a", "$t"})

// releasingTogether does what releasing does to each record that one of the claims alone uses. It leaves other
// records as they are. The claims need not be compared with the keys, because a claim's ID is never used for two keys.
func releasingTogether(sts []*statement) bson.A {
	held := make(bson.A, len(sts))
	for i, st := range sts {
		held[i] = bson.A{bson.A{st.edit.claim.ID}, st.edit.claim.Token} // the values of holdCompares
	}
	met := op("$and", usedAlone, op("$in", holdCompares, literal(held)))
	return bson.A{set(e("h", op("$cond", met, bson.A{}, "$h")))}
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
