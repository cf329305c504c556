package mongo

import "go.mongodb.org/mongo-driver/v2/bson"

// Edits: what a command does to a key's record between clean and settle.

// joining puts the claim at the end of the queue, or at its head, if it may join and is not
// there. It has no effect after "until", so that a request that arrives after its claim was
// given up leaves nothing behind. While anybody holds or waits, the record's kind and limit
// apply; a former limit is as good as the present one.
func joining() []bson.D {
	known := op("$and",
		op("$eq", "$y", "$_.y"),
		op("$or", op("$eq", "$c", "$_.c"), op("$in", "$_.c", list("$p"))))
	return []bson.D{
		set(
			cleaned(),
			e("_.known", known),
			e("_.free", op("$eq", size("$h", "$q"), 0)),
		),
		set(e("_.join", op("$and",
			op("$lte", now, "$_.until"),
			op("$not", op("$ifNull", "$done", false)),
			op("$not", op("$in", "$_.mine", "$h.a")),
			op("$not", op("$in", "$_.mine", "$q.a")),
			op("$lt", op("$size", "$q"), maxQueue),
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

// keeping sets the end of the claim to now + keep, unless its end is earlier.
func keeping() []bson.D {
	end := op("$min", "$$x.e", op("$add", now, "$_.keep")) // $min ignores missing values
	return []bson.D{
		set(cleaned(), e("_.h", op("$map", bson.D{
			e("input", "$h"), e("as", "x"),
			e("in", op("$cond", other(), "$$x", op("$mergeObjects", "$$x", bson.D{e("e", end)}))),
		}))),
		set(e("_.moved", op("$ne", "$_.h", "$h")), e("h", "$_.h")),
	}
}

// succeeding removes the claim and moves its successor to the head of the queue, if the claim
// holds the key and the successor waits for it.
func succeeding() []bson.D {
	successor := op("$eq", "$$x.a", "$_.next")
	return []bson.D{
		set(cleaned(), e("_.moved", op("$and", op("$in", "$_.mine", "$h.a"), op("$in", "$_.next", "$q.a")))),
		set(
			e("h", op("$cond", "$_.moved", filter("$h", other()), "$h")),
			e("q", op("$cond", "$_.moved",
				op("$concatArrays", filter("$q", successor), filter("$q", op("$not", successor))), "$q")),
		),
	}
}

// sealing removes the claim. If it held the key, and clean has not dropped it because its end
// has come, sealing also seals the key and empties the queue. The first seal stays.
func sealing() []bson.D {
	token := op("$sum", let("held", filter("$h", op("$not", other())), "$$held.t")) // 0 if mine does not hold
	return []bson.D{
		set(e("_.t", op("$cond", op("$ifNull", "$done", false), int64(0), token))),
		set(
			e("h", filter("$h", other())),
			e("q", op("$cond", op("$gt", "$_.t", 0), bson.A{}, "$q")),
			e("done", op("$cond", op("$gt", "$_.t", 0), bson.D{e("t", "$_.t"), e("b", "$_.result")}, "$done")),
		),
	}
}
