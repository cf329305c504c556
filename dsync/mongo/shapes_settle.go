package mongo

import (
	"github.com/leasehold-go/leasehold/dsync"
	"go.mongodb.org/mongo-driver/v2/bson"
)

// election says whether the key's grants are counted.
func election() bson.D { return op("$eq", "$y", string(dsync.KindElection)) }

// nextToken is the token of the next grant: greater than the record's last, and
// than any from before the record was swept and made anew.
func nextToken() bson.D {
	return op("$max",
		op("$add", op("$ifNull", "$t", int64(0)), int64(tokenStep)),
		op("$multiply", op("$toLong", now), int64(tokenStep)))
}

// settling is what differs between the settles of commands.
type settling struct {
	changed any  // whether the edit changed anything
	leave   bool // takes mine out of what is left of the line
	wake    any  // the claims to be woken as a string for g, if any
}

// settle grants from the head of the line whatever fits, each with a fresh token
// and, of an election, the next term, removes what a holder published that is
// gone, says whom this concerns, and removes the scratch. What changes nothing
// must leave the record as it is, bit by bit: then nothing is written.
func settle(s settling) []bson.D {
	limit := op("$ifNull", "$c", 1)

	// Claims fit in order, the first that does not ends it: it takes what is left.
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
	listed := op("$reduce", bson.D{
		e("input", "$_.grants"),
		e("initialValue", ""),
		e("in", op("$concat", "$$value", "$$this.a", ":", op("$toString", "$$this.t"),
			op("$cond", election(), op("$concat", ":", op("$toString", "$$this.n")), ""), ",")),
	})

	// A claim that has all of the key was granted last, and alone.
	room := let("last", op("$arrayElemAt", "$_.grants", -1), op("$cond",
		op("$and", op("$eq", "$$last.l", true), op("$gte", "$$last.w", limit)),
		int64(tokenRoom-tokenStep), int64(0)))

	var told any = listed
	if s.wake != nil {
		told = op("$concat", listed, s.wake)
	}

	// Of holders that yield, r has those that held when the line came to be, and
	// whoever was granted since; as a string, like g.
	yields := op("$reduce", bson.D{
		e("input", op("$slice", filter("$h", op("$eq", "$$x.l", true)), maxYields)), e("initialValue", ""),
		e("in", op("$concat", "$$value", "$$this.a", ",")),
	})

	granted := op("$gt", "$_.n", 0)
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
			e("t", op("$cond", granted, op("$add", op("$max", "$_.grants.t"), room), "$t")),
			e("n", op("$ifNull", op("$max", "$_.grants.n"), "$n")),
			e("v", op("$cond", op("$in", "$v.t", "$h.t"), "$v", "$$REMOVE")),
			e("g", let("told", told,
				op("$cond", op("$ne", "$$told", ""), "$$told", op("$cond", "$_.changed", "$$REMOVE", "$g")))),
			e("at", op("$cond", granted, now, "$at")),
		),
		set(
			e("r", op("$cond", op("$eq", op("$size", "$q"), 0), "$$REMOVE",
				op("$cond", op("$or", granted, "$_.empty"),
					let("yields", yields, op("$cond", op("$ne", "$$yields", ""), "$$yields", "$$REMOVE")),
					"$r"))),
			e("_", "$$REMOVE"),
		),
	}
}
