package mongo

import "go.mongodb.org/mongo-driver/v2/bson"

// Edits: what a command does to a key's record between clean and settle.

// joining puts mine at the end of the line, or at its head, if it may and is not
// there. It is void after "until", so that a request that arrives late, after the
// claim was given up, leaves nothing behind. The kind and the limit of the record
// win while anybody holds or waits; a former limit is as good as the present one.
func joining() []bson.D {
	known := op("$and",
		op("$eq", "$y", "$_.y"),
		op("$or", op("$eq", "$c", "$_.c"), op("$in", "$_.c", list("$p"))))
	return []bson.D{
		set(
			cleaned(),
			e("_.empty", op("$eq", op("$size", "$q"), 0)),
			e("_.known", known),
			e("_.free", op("$eq", size("$h", "$q"), 0)),
		),
		set(e("_.join", op("$and",
			op("$lte", now, "$_.until"),
			op("$not", op("$ifNull", "$done", false)),
			op("$not", op("$in", "$_.mine", "$h.a")),
			op("$not", op("$in", "$_.mine", "$q.a")),
			op("$lt", op("$size", "$q"), maxLine),
			op("$cond", "$_.known", op("$lte", "$_.claim.w", "$c"), "$_.free"),
		))),
		set(
			e("q", op("$cond", "$_.join", op("$cond", "$_.first",
				op("$concatArrays", bson.A{"$_.claim"}, "$q"),
				op("$concatArrays", "$q", bson.A{"$_.claim"})), "$q")),
			e("y", op("$cond", "$_.join", "$_.y", "$y")),
			e("c", op("$cond", op("$and", "$_.join", op("$not", "$_.known")), "$_.c", "$c")),
			e("p", op("$cond", op("$and", "$_.join", op("$not", "$_.known")), "$$REMOVE", "$p")),
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

// firstInLine is whom a keep wakes. The same claim may have been woken by the
// write before: the end that was set stands in front, since of a string that does
// not change there is no event.
func firstInLine() bson.D {
	first := let("x", op("$arrayElemAt", "$q", "$_.n"), "$$x.a")
	mine := op("$indexOfArray", "$h.a", "$_.mine")
	end := let("x", op("$arrayElemAt", "$h", mine), op("$toString", op("$toLong", "$$x.e")))
	return op("$cond", op("$and", "$_.moved", op("$gt", op("$size", "$q"), "$_.n")),
		op("$concat", ":", "$_.mine", ":", end, ",", first, ":0,"), "")
}

// sealing takes mine out, seals the key if mine held it and its end has not come,
// which clean has seen to, and then empties the line. The first seal stays.
func sealing() []bson.D {
	token := op("$sum", let("held", filter("$h", op("$not", other())), "$$held.t")) // 0 if mine does not hold
	woken := op("$reduce", bson.D{
		e("input", op("$slice", "$q", maxGrants)), e("initialValue", ""),
		e("in", op("$concat", "$$value", "$$this.a", ":0,")),
	})
	return []bson.D{
		set(e("_.t", op("$cond", op("$ifNull", "$done", false), int64(0), token))),
		set(
			e("h", filter("$h", other())),
			e("q", op("$cond", op("$gt", "$_.t", 0), bson.A{}, "$q")),
			e("done", op("$cond", op("$gt", "$_.t", 0), bson.D{e("t", "$_.t"), e("b", "$_.result")}, "$done")),
			e("_.woken", op("$cond", op("$gt", "$_.t", 0), woken, "")),
		),
	}
}

// resizing makes the limit that of the key, and keeps the one it had and "from"
// as former ones, the latest last, unless the key is in use as another kind or a
// claim in line needs more.
func resizing() []bson.D {
	same := op("$eq", "$y", "$_.y")
	free := op("$and", op("$eq", size("$h", "$q"), 0), op("$not", op("$ifNull", "$done", false)))
	from := op("$cond", op("$or", op("$lt", "$_.from", 1), op("$in", "$_.from", bson.A{"$_.c", "$_.was.c"})),
		bson.A{}, bson.A{"$_.from"})
	had := op("$cond", op("$and", op("$ne", "$_.was.c", nil), op("$ne", "$_.was.c", "$_.c")), bson.A{"$_.was.c"}, bson.A{})
	former := let("more", op("$concatArrays", from, had), op("$cond",
		// What is known already stays where it is, or repeating would write.
		op("$and", op("$eq", "$_.was.c", "$_.c"), op("$setIsSubset", "$$more", "$_.was.p")),
		"$_.was.p",
		op("$slice", op("$concatArrays",
			filter("$_.was.p", op("$not", op("$or", op("$eq", "$$x", "$_.c"), op("$in", "$$x", "$$more")))),
			"$$more"), -maxFormer)))
	record := bson.D{e("y", "$y"), e("c", "$c"), e("p", list("$p"))}
	return []bson.D{
		set(
			cleaned(),
			e("_.ok", op("$and", op("$or", same, free),
				op("$lte", op("$ifNull", op("$max", "$q.w"), int64(0)), "$_.c"))),
			e("_.old", record),
			// What the limit of another kind was is of no use to this one.
			e("_.was.c", op("$cond", same, op("$ifNull", "$c", nil), nil)),
			e("_.was.p", op("$cond", same, list("$p"), bson.A{})),
		),
		set(
			e("y", op("$cond", "$_.ok", "$_.y", "$y")),
			e("c", op("$cond", "$_.ok", "$_.c", "$c")),
			e("p", op("$cond", "$_.ok", let("former", former,
				op("$cond", op("$eq", "$$former", bson.A{}), "$$REMOVE", "$$former")), "$p")),
			e("f", op("$cond", "$_.ok", formatVersion, "$f")),
		),
		set(e("_.resized", op("$ne", "$_.old", record))),
		set(e("at", op("$cond", "$_.resized", now, "$at"))), // a record without a token is swept by it
	}
}
