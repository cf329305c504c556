package mongo

import (
	"github.com/leasehold-go/leasehold/dsync/driver"
	"go.mongodb.org/mongo-driver/v2/bson"
)

// election says whether the key's grants are counted.
func election() bson.D { return op("$eq", "$y", string(driver.KindElection)) }

// nextToken is the token of the next grant: greater than the record's last token, and than any
// token from before the record was swept and created again.
func nextToken() bson.D {
	return op("$max",
		op("$add", op("$ifNull", "$t", int64(0)), int64(tokenStep)),
		op("$multiply", op("$toLong", now), int64(tokenStep)))
}

// settling are the differences between the settles of commands.
type settling struct {
	changed any  // whether the edit changed anything
	leave   bool // remove the command's own claim from the rest of the queue
}

// settle grants from the head of the queue whatever fits, each claim with a new token and, for
// an election, the next term. It also removes the value of a holder that is gone, sets the time
// of the change, and removes the scratch. A command that changes nothing must leave the record
// bit by bit as it is: then nothing is written.
func settle(s settling) []bson.D {
	limit := op("$ifNull", "$c", 1)

	// Claims fit in order. The first that does not fit takes all the rest, so none after it does.
	fits := op("$reduce", bson.D{
		e("input", op("$slice", "$q", op("$max", 1, op("$min", maxGrants, op("$subtract", limit, "$$used"))))),
		e("initialValue", bson.D{e("n", 0), e("used", "$$used")}),
		e("in", op("$cond", op("$lte", op("$add", "$$value.used", "$$this.w"), limit),
			bson.D{e("n", op("$add", "$$value.n", 1)), e("used", op("$add", "$$value.used", "$$this.w"))},
			bson.D{e("n", "$$value.n"), e("used", limit)})),
	})

	term := op("$add", op("$ifNull", "$n", int64(0)), "$$i", 1)
	grant := op("$mergeObjects", "$$x",
		bson.D{e("t", op("$add", "$$token", op("$multiply", "$$i", int64(tokenStep)))), e("at", now)},
		op("$cond", election(), bson.D{e("n", term)}, nil),
		op("$cond", op("$ifNull", "$$x.d", false), bson.D{e("e", op("$add", now, "$$x.d"))}, nil))
	grants := let("token", nextToken(), op("$map", bson.D{
		e("input", op("$range", 0, "$_.n")), e("as", "i"),
		e("in", let("x", op("$arrayElemAt", "$q", "$$i"), grant)),
	}))
	// A claim that takes all of the key is the last, and the only one, to be granted.
	room := let("last", op("$arrayElemAt", "$_.grants", -1), op("$cond",
		op("$and", op("$eq", "$$last.l", true), op("$gte", "$$last.w", limit)),
		int64(tokenRoom-tokenStep), int64(0)))

	grown := op("$gt", "$_.n", 0)
	written := op("$or", grown, "$_.changed")
	rest := op("$slice", "$q", "$_.n", op("$max", 1, op("$size", "$q")))
	if s.leave {
		rest = filter(rest, other())
	}
	return []bson.D{
		set(
			e("_.n", let("used", op("$sum", "$h.w"), let("fits", fits, "$$fits.n"))),
			e("_.changed", s.changed),
		),
		set(e("_.grants", grants)),
		set(
			e("h", op("$concatArrays", "$h", "$_.grants")),
			e("q", rest),
			e("t", op("$cond", grown, op("$add", op("$max", "$_.grants.t"), room), "$t")),
			e("n", op("$ifNull", op("$max", "$_.grants.n"), "$n")),
			e("v", op("$cond", op("$in", "$v.t", "$h.t"), "$v", "$$REMOVE")),
			e("at", op("$cond", written, now, "$at")),
			e("o", op("$cond", op("$gt", "$o", now), "$o", op("$cond", written, "$$REMOVE", "$o"))),
			e("_", "$$REMOVE"),
		),
	}
}
