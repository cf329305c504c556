package mongo

import (
	"github.com/leasehold-go/leasehold/dsync/driver"
	"go.mongodb.org/mongo-driver/v2/bson"
)

// An edit is what a command does to a key's record before it settles the key. Its first stage is clean.

// joining puts the claim into the queue, if the claim may join and neither holds nor waits. The claim goes to the
// head of the queue, or to its end, but ahead of claims with later ticks. joining adds no claim after the time
// "until", so a request that arrives later leaves no claim behind. While the key is sealed, or has holders or
// waiters, a claim must have the record's kind, and either the record's limit or one of its former limits.
func joining(a acquiring) []bson.D {
	h, q := list("$h"), list("$q")
	if a.expired {
		h, q = filter(h, alive()), filter(q, waits())
	} else {
		h = filter(h, holds())
	}
	if a.poll {
		return []bson.D{clean(h, q, was(claims()))}
	}
	known := op("$and",
		op("$eq", "$y", "$_.y"),
		op("$or", op("$eq", "$c", "$_.c"), op("$in", "$_.c", list("$p"))))
	joined := op("$concatArrays", "$q", bson.A{"$_.claim"})
	switch later := op("$gt", "$$this.k", "$_.claim.k"); {
	case a.first:
		joined = op("$concatArrays", bson.A{"$_.claim"}, "$q")
	case a.tick:
		joined = op("$concatArrays", filter("$q", op("$not", later)), bson.A{"$_.claim"}, filter("$q", later))
	}
	var over, free any = "$done", op("$eq", claims(), bson.A{bson.A{}, bson.A{}})
	if a.tick {
		over = op("$gte", "$done.k", "$_.claim.k")
		free = op("$eq", append(claims(), "$done.k"), bson.A{bson.A{}, bson.A{}, nil}) // nil: missing
	}
	return []bson.D{
		clean(h, q, was(claims()), e("_.known", known)),
		set(e("_.join", op("$and",
			op("$lte", now, "$_.until"),
			op("$not", op("$or", over, op("$in", "$_.claim.a", op("$concatArrays", "$h.a", "$q.a")))),
			op("$lt", op("$size", "$q"), driver.MaxQueue),
			op("$cond", "$_.known",
				op("$lte", "$_.claim.w", "$c"),
				free),
		))),
		set(
			e("q", op("$cond", "$_.join", joined, "$q")),
			e("y", op("$cond", "$_.join", "$_.y", "$y")), // no change while the record's kind is in use
			e("c", op("$cond", op("$and", "$_.join", op("$not", "$_.known")), "$_.c", "$c")),
			e("p", op("$cond", op("$and", "$_.join", op("$not", "$_.known")), "$$REMOVE", "$p")),
		),
	}
}

// releasing removes the claim.
func releasing() []bson.D {
	return []bson.D{clean(filter("$h", op("$and", other(), holds())), filter("$q", other()))}
}

// keeping sets the claim's end to now + keep, unless the claim ends earlier anyway. If the claim waits, keeping
// removes it from the queue.
func keeping() []bson.D {
	end := op("$min", "$$this.e", op("$add", now, "$_.keep"))
	return []bson.D{clean(
		each(filter("$h", holds()), op("$cond", mine(), op("$mergeObjects", "$$this", bson.D{e("e", end)}), "$$this")),
		filter("$q", other()),
		was(claims()),
	)}
}

// succeeding removes the claim and moves its successor to the head of the queue, if the successor waits for the
// key. The command's filter ensures that the claim holds the key.
func succeeding() []bson.D {
	stays := op("$not", op("$in", "$_.next", "$q.a"))
	return []bson.D{clean(
		filter("$h", op("$cond", mine(), stays, holds())),
		op("$concatArrays",
			filter("$q", op("$eq", "$$this.a", "$_.next")),
			filter("$q", op("$ne", "$$this.a", "$_.next"))),
		was(claims()),
	)}
}

// sealing removes the claim. If the claim still held the key, and the key is not yet sealed up to the given tick,
// sealing also seals the key. It then removes from the queue the claims whose ticks are over.
func sealing() []bson.D {
	return []bson.D{
		clean(filter("$h", op("$and", other(), holds())), filter("$q", other()),
			e("_.seals", op("$and",
				op("$gt", "$_.done.k", "$done.k"),
				op("$in", "$_.mine", each(filter("$h", holds()), "$$this.a"))))),
		set(
			e("q", op("$cond", "$_.seals", filter("$q", op("$gt", "$$this.k", "$_.done.k")), "$q")),
			e("done", op("$cond", "$_.seals", "$_.done", "$done")),
		),
	}
}
