package mongo

import (
	"github.com/leasehold-go/leasehold/dsync/driver"
	"go.mongodb.org/mongo-driver/v2/bson"
)

// settle grants claims from the head of the queue as long as they fit, each with a new token and, for an election,
// the next term. It also removes a mark that has expired, sets the time of the change, and removes the scratch
// field. If a command changes nothing, the record must stay identical bit for bit, so that the server writes
// nothing.
//
// The argument fields lists the record's fields whose original values are in "_.was". If fields is nil, the command
// always changes the record. If the argument rest is not nil, it is a condition: claims that are not granted and do
// not meet it are removed from the queue.
func settle(fields bson.A, rest any) []bson.D {
	// "$$this" is the first claim that still waits. This claim gets the next token. The token is based on the clock,
	// so it is also greater than any token from before the record was swept and created again.
	grant := op("$mergeObjects", "$$this", bson.D{
		e("t", op("$max",
			op("$add", "$$value.t", int64(driver.TokenStep)),
			op("$multiply", op("$toLong", now), int64(driver.TokenStep)))),
		e("at", now),
		e("n", op("$cond", op("$eq", "$y", string(driver.KindElection)),
			op("$sum", "$$value.n", int64(1)), "$$REMOVE")), // $sum ignores missing values
	})
	// A claim that takes the whole key may need room for hand-offs. No other claim is granted in the same
	// command.
	room := op("$cond", op("$and", "$$this.l", op("$gte", "$$this.w", "$c")),
		int64(driver.TokenRoom-driver.TokenStep), int64(0))
	granted := let("x", grant, bson.D{
		e("h", op("$concatArrays", "$$value.h", bson.A{"$$x"})),
		e("t", op("$add", "$$x.t", room)),
		e("n", "$$x.n"), // if missing, the record's n does not change
		e("k", op("$add", "$$value.k", 1)),
		e("free", op("$subtract", "$$value.free", "$$this.w")),
	})
	// Claims are granted in order. The first claim that does not fit also blocks those behind it. Each claim
	// takes at least one unit, so at most as many fit as there are free units.
	grants := let("free", op("$subtract", "$c", op("$sum", "$h.w")), op("$reduce", bson.D{
		e("input", op("$slice", "$q", op("$max", 1, op("$min", maxGrants, "$$free")))),
		e("initialValue", bson.D{e("h", "$h"), e("t", "$t"), e("n", "$n"), e("k", 0), e("free", "$$free")}),
		e("in", op("$mergeObjects", "$$value",
			op("$cond", op("$lte", "$$this.w", "$$value.free"), granted, bson.D{e("free", 0)}))),
	}))
	q := op("$slice", "$q", "$_.new.k", driver.MaxQueue)
	if rest != nil {
		q = filter(q, rest)
	}
	settled := []bson.E{
		e("h", "$_.new.h"),
		e("q", q),
		e("t", "$_.new.t"),
		e("n", "$_.new.n"),
		e("o", op("$cond", op("$gt", "$o", now), "$o", "$$REMOVE")),
	}
	last := []bson.E{e("at", now), e("_", "$$REMOVE")}
	if fields == nil {
		return []bson.D{set(e("_.new", grants)), set(append(settled, last...)...)}
	}
	last[0].Value = op("$cond", op("$eq", "$_.was", fields), "$at", now)
	return []bson.D{set(e("_.new", grants)), set(settled...), set(last...)}
}
