package mongo

import (
	"fmt"
	"slices"

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

	// maxYields is how many holders are told that others are in line: they are
	// listed in r as grants are in g.
	maxYields = 1_000

	// maxFormer is how many former limits of a key are known.
	maxFormer = 16

	// tokenStep is what is left between the tokens of two grants for hand-overs
	// within a process. Tokens are at least the server's clock in ms times
	// tokenStep: so they keep growing when an idle record was deleted.
	tokenStep = 1024

	// tokenRoom is what is left behind the token of a claim that has all of the key
	// and yields it when asked to: its process may hand it over many times.
	tokenRoom = 65_536
)

// shapes are the update pipelines for key records, encoded once. They are static:
// what differs between calls comes as one literal document, which the first stage
// puts into the field "_", the scratch of all stages, which the last one removes.
// (The command's own "let" exists only from MongoDB 5.0 on.)
//
// Every pipeline is "edit, then settle":
//
//	clean   drop the claims of the dead, and holders whose end has come
//	edit    put mine into the line, or take it out, move its end, seal, resize
//	settle  while the first in line fits, grant it
type shapes struct {
	acquireWait, acquireTry []bson.Raw
	release, keep, seal     []bson.Raw
	extend, publish, resize []bson.Raw

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
		acquireWait: encode(clean(alive(), waits()), joining(), settle(settling{changed: op("$or", "$_.cleaned", "$_.join")})),
		acquireTry:  encode(clean(alive(), waits()), joining(), settle(settling{changed: "$_.cleaned", leave: true})),
		release:     encode(clean(op("$and", alive(), other()), other()), settle(settling{changed: true})),
		keep:        encode(clean(alive(), other()), keeping(), settle(settling{changed: op("$or", "$_.cleaned", "$_.moved"), wake: firstInLine()})),
		seal:        encode(clean(alive(), other()), sealing(), settle(settling{changed: true, wake: "$_.woken"})),
		extend:      encode(extending()),
		publish:     encode(publishing()),
		resize:      encode(clean(alive(), waits()), resizing(), settle(settling{changed: op("$or", "$_.cleaned", "$_.resized")})),
		ahead:       encode([]bson.D{ahead()})[0],
	}
	return sh, err
}

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

func ahead() bson.D {
	return op("$cond", op("$lt", "$$place", 0),
		op("$slice", "$q", maxAhead),
		op("$cond", op("$eq", "$$place", 0), bson.A{},
			op("$slice", "$q", op("$max", 0, op("$subtract", "$$place", maxAhead)), op("$min", maxAhead, "$$place"))))
}
