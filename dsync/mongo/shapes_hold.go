package mongo

import "go.mongodb.org/mongo-driver/v2/bson"

// What holders do to their own hold. It lets nobody in, so nothing is settled.

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

// publishing makes the value that of mine, if it holds and its end has not come,
// and has not published a later one.
func publishing() []bson.D {
	mine := op("$and", op("$eq", "$$x.a", "$_.mine"),
		op("$or", op("$not", op("$ifNull", "$$x.e", false)), op("$gt", "$$x.e", now)))
	published := bson.D{e("t", "$_.t"), e("s", "$_.seq"), e("b", "$_.value")}
	overtaken := op("$and", op("$eq", "$v.t", "$_.t"), op("$gt", "$v.s", "$_.seq"))
	return []bson.D{
		// The token of mine, 0 if it does not hold.
		set(e("_.t", guard(op("$sum", let("held", filter(list("$h"), mine), "$$held.t"))))),
		set(e("_.new", op("$and", op("$gt", "$_.t", 0), op("$ne", "$v", published), op("$not", overtaken)))),
		set(
			e("g", op("$cond", "$_.new", "$$REMOVE", "$g")), // as in extending
			e("v", op("$cond", "$_.new", published, "$v")),
			e("_", "$$REMOVE"),
		),
	}
}
