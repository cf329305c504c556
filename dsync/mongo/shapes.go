package mongo

import (
	"fmt"
	"slices"

	"github.com/leasehold-go/leasehold/dsync"
	"go.mongodb.org/mongo-driver/v2/bson"
)

const (
	// formatVersion is the version of key records that this code writes and knows.
	formatVersion = 1

	// maxLine is how many claims may stand in line for a key.
	maxLine = 10_000

	// maxAhead is how many of those ahead in line a reply carries. Whole lines in
	// replies would make joining a line of n cost n². maxShown is how many Load
	// reads, and how many sessions Members does.
	maxAhead = 8
	maxShown = 1_000

	// maxGrants is how many claims one write grants at the most, since they are
	// listed in g, and building that string costs the square of their number. More
	// than that many can fit at once only where a writer or a large semaphore gives
	// way to as many sessions; the rest is granted by the next write to the key.
	maxGrants = 1_000

	// tokenStep is what is left between the tokens of two grants for hand-overs
	// within a process. Tokens are at least the server's clock in ms times
	// tokenStep: so they keep growing when an idle record was deleted.
	tokenStep = 1024
)

// shapes are the update pipelines for key records, encoded once. They are static:
// what differs between calls comes as one literal document, which the first stage
// puts into the field "_", the scratch of all stages, which the last one removes.
// (The command's own "let" exists only from MongoDB 5.0 on.)
//
// Every pipeline is "edit, then settle":
//
//	clean   drop the claims of the dead, and holders whose end has come
//	edit    put mine into the line, or take it out, or move its end
//	settle  while the first in line fits, grant it
type shapes struct {
	acquireWait, acquireTry []bson.Raw
	release, keep           []bson.Raw
	extend, publish         []bson.Raw

	// ahead is the expression for the nearest ahead in line of "$$place", which
	// counts from 0; of the line's head where that is negative.
	ahead bson.Raw
}

func newShapes() (*shapes, error) {
	var err error
	encode := func(parts ...[]bson.D) []bson.Raw {
		var raw []bson.Raw
		for _, stage := range slices.Concat(parts...) {
			b, bad := bson.Marshal(stage)
			if bad != nil {
				err = fmt.Errorf("mongo: encode %v: %w", stage, bad)
			}
			raw = append(raw, b)
		}
		return raw
	}
	// A try that was not granted leaves the line again: it has changed nothing.
	sh := &shapes{
		acquireWait: encode(clean(alive(), waits()), joining(), settle(stay, op("$or", "$_.cleaned", "$_.join"))),
		acquireTry:  encode(clean(alive(), waits()), joining(), settle(leave, "$_.cleaned")),
		release:     encode(clean(op("$and", alive(), other()), other()), settle(stay, true)),
		keep:        encode(clean(alive(), other()), keeping(), settle(stay, op("$or", "$_.cleaned", "$_.moved"))),
		extend:      encode(extending()),
		publish:     encode(publishing()),
		ahead:       encode([]bson.D{ahead()})[0],
	}
	return sh, err
}

// What settle does with mine if it was not granted.
const (
	stay  = false
	leave = true
)

// pipeline is a shape with what differs between calls.
func pipeline(shape []bson.Raw, scratch bson.D) bson.A {
	a := make(bson.A, 0, 1+len(shape))
	a = append(a, set(e("_", literal(scratch))))
	for _, stage := range shape {
		a = append(a, stage)
	}
	return a
}

// Conditions on a claim $$x. The scratch has mine, the id of the claim that the
// command is about, and dead, the ids of sessions known to be dead.

func other() bson.D { return op("$ne", "$$x.a", "$_.mine") }

func waits() bson.D { return op("$not", op("$in", "$$x.s", "$_.dead")) }

// alive: a holder with an end of its own lives until then, whatever became of its
// session, since UnlockAfter must outlive its process.
func alive() bson.D {
	return op("$cond", op("$ifNull", "$$x.e", false), op("$gt", "$$x.e", now), waits())
}

// size is the number of claims in the record.
func size(h, q any) bson.D { return op("$add", op("$size", h), op("$size", q)) }

// cleaned says whether the stage before it, which must be clean, left fewer claims
// than there were.
func cleaned() bson.E { return e("_.cleaned", op("$ne", "$_.size", size("$h", "$q"))) }

// clean keeps those holders and those in line that satisfy the conditions.
func clean(holder, waiter any) []bson.D {
	return []bson.D{set(
		e("h", filter(list("$h"), holder)),
		e("q", filter(list("$q"), waiter)),
		e("_.size", guard(size(list("$h"), list("$q")))),
	)}
}

// guard is v, or an error that undoes the whole command if a later version of
// this library wrote the record. A filter can't do it: an upsert whose filter
// does not match would try to insert a second record, and fail with a duplicate
// key, which means something else.
func guard(v any) bson.D {
	return op("$cond", op("$gt", "$f", formatVersion),
		op("$toInt", op("$concat", "record format ", op("$toString", "$f"))), v)
}

// joining puts mine at the end of the line, if it may and is not there. It is
// void after "until", so that a request that arrives late, after the claim was
// given up, leaves nothing behind. The kind and the limit of the record win while
// anybody holds or waits.
func joining() []bson.D {
	return []bson.D{
		set(cleaned(), e("_.join", op("$and",
			op("$lte", now, "$_.until"),
			op("$not", op("$in", "$_.mine", "$h.a")),
			op("$not", op("$in", "$_.mine", "$q.a")),
			op("$lt", op("$size", "$q"), maxLine),
			op("$or",
				op("$eq", size("$h", "$q"), 0),
				op("$and", op("$eq", "$y", "$_.y"), op("$eq", "$c", "$_.c"))),
		))),
		set(
			e("q", op("$cond", "$_.join", op("$concatArrays", "$q", bson.A{"$_.claim"}), "$q")),
			e("y", op("$cond", "$_.join", "$_.y", "$y")),
			e("c", op("$cond", "$_.join", "$_.c", "$c")),
			e("f", op("$cond", "$_.join", formatVersion, "$f")),
		),
	}
}

// keeping gives mine an end at now + keep, or leaves an earlier one.
func keeping() []bson.D {
	end := op("$min", "$$x.e", op("$add", now, "$_.keep")) // $min passes over what is missing
	return []bson.D{
		set(cleaned(), e("_.h", op("$map", bson.D{
			e("input", "$h"), e("as", "x"),
			e("in", op("$cond", other(), "$$x", op("$mergeObjects", "$$x", bson.D{e("e", end)}))),
		}))),
		set(e("_.moved", op("$ne", "$_.h", "$h")), e("h", "$_.h")),
	}
}

// extending moves the end of mine to now + lease, or leaves a later one, if it
// has an end and that has not come.
func extending() []bson.D {
	end := op("$max", "$$x.e", op("$add", now, "$_.lease"))
	mine := op("$and", op("$eq", "$$x.a", "$_.mine"),
		op("$gt", op("$ifNull", "$$x.e", op("$toDate", int64(0))), now))
	return []bson.D{
		set(e("_.h", guard(op("$map", bson.D{
			e("input", list("$h")), e("as", "x"),
			e("in", op("$cond", mine, op("$mergeObjects", "$$x", bson.D{e("e", end)}), "$$x")),
		})))),
		set(
			// What was granted earlier is not granted by this write.
			e("g", op("$cond", op("$eq", "$_.h", "$h"), "$g", "$$REMOVE")),
			e("h", "$_.h"),
			e("_", "$$REMOVE"),
		),
	}
}

// publishing makes the value that of mine, if it holds and its end has not come.
func publishing() []bson.D {
	mine := op("$and", op("$eq", "$$x.a", "$_.mine"),
		op("$or", op("$not", op("$ifNull", "$$x.e", false)), op("$gt", "$$x.e", now)))
	published := bson.D{e("t", "$_.t"), e("b", "$_.value")}
	return []bson.D{
		// The token of mine, 0 if it does not hold.
		set(e("_.t", guard(op("$sum", let("held", filter(list("$h"), mine), "$$held.t"))))),
		set(e("_.new", op("$and", op("$gt", "$_.t", 0), op("$ne", "$v", published)))),
		set(
			e("g", op("$cond", "$_.new", "$$REMOVE", "$g")), // as in extending
			e("v", op("$cond", "$_.new", published, "$v")),
			e("_", "$$REMOVE"),
		),
	}
}

func ahead() bson.D {
	return op("$cond", op("$lt", "$$place", 0),
		op("$slice", "$q", maxAhead),
		op("$cond", op("$eq", "$$place", 0), bson.A{},
			op("$slice", "$q", op("$max", 0, op("$subtract", "$$place", maxAhead)), op("$min", maxAhead, "$$place"))))
}

// election says whether the key's grants are counted.
func election() bson.D { return op("$eq", "$y", string(dsync.KindElection)) }

// settle grants from the head of the line whatever fits, each with a fresh token
// and, of an election, the next term, removes what a holder published that is
// gone, and removes the scratch. leaving takes mine out of what is left of the
// line; changed is whether the edit changed anything. What changes nothing must
// leave the record as it is, bit by bit: then nothing is written.
func settle(leaving bool, changed any) []bson.D {
	limit := op("$ifNull", "$c", 1)

	// Claims fit in order, the first that does not ends it: it takes what is left.
	fits := op("$reduce", bson.D{
		e("input", op("$slice", "$q", op("$max", 1, op("$min", maxGrants, op("$subtract", limit, "$$used"))))),
		e("initialValue", bson.D{e("n", 0), e("used", "$$used")}),
		e("in", op("$cond", op("$lte", op("$add", "$$value.used", "$$this.w"), limit),
			bson.D{e("n", op("$add", "$$value.n", 1)), e("used", op("$add", "$$value.used", "$$this.w"))},
			bson.D{e("n", "$$value.n"), e("used", limit)})),
	})

	token := op("$max",
		op("$add", op("$ifNull", "$t", int64(0)), int64(tokenStep)),
		op("$multiply", op("$toLong", now), int64(tokenStep)))
	term := op("$add", op("$ifNull", "$n", int64(0)), "$$i", 1)
	grant := op("$mergeObjects", "$$x",
		bson.D{e("t", op("$add", "$$token", op("$multiply", "$$i", int64(tokenStep)))), e("at", now)},
		op("$cond", election(), bson.D{e("n", term)}, nil),
		op("$cond", op("$ifNull", "$$x.d", false), bson.D{e("e", op("$add", now, "$$x.d"))}, nil))
	grants := let("token", token, op("$map", bson.D{
		e("input", op("$range", 0, "$_.n")), e("as", "i"),
		e("in", let("x", op("$arrayElemAt", "$q", "$$i"), grant)),
	}))
	listed := op("$reduce", bson.D{
		e("input", "$_.grants"),
		e("initialValue", ""),
		e("in", op("$concat", "$$value", "$$this.a", ":", op("$toString", "$$this.t"),
			op("$cond", election(), op("$concat", ":", op("$toString", "$$this.n")), ""), ",")),
	})

	granted := op("$gt", "$_.n", 0)
	rest := op("$slice", "$q", "$_.n", op("$max", 1, op("$size", "$q")))
	if leaving {
		rest = filter(rest, other())
	}
	return []bson.D{
		set(
			e("_.n", let("used", op("$sum", "$h.w"), let("fits", fits, "$$fits.n"))),
			e("_.changed", changed),
		),
		set(e("_.grants", grants)),
		set(
			e("h", op("$concatArrays", "$h", "$_.grants")),
			e("q", rest),
			e("t", op("$ifNull", op("$max", "$_.grants.t"), "$t")),
			e("n", op("$ifNull", op("$max", "$_.grants.n"), "$n")),
			e("v", op("$cond", op("$in", "$v.t", "$h.t"), "$v", "$$REMOVE")),
			e("g", op("$cond", granted, listed, op("$cond", "$_.changed", "$$REMOVE", "$g"))),
			e("at", op("$cond", granted, now, "$at")),
			e("_", "$$REMOVE"),
		),
	}
}
