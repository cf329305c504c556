package mongo

import (
	"fmt"
	"slices"

	"go.mongodb.org/mongo-driver/v2/bson"
)

const (
	// formatVersion is the version of key records that this code writes and knows.
	formatVersion = 1

	// maxQueue is the maximum number of claims that may wait for a key.
	maxQueue = 10_000

	// maxAhead is how many of the nearest claims ahead a reply has. With whole queues in
	// replies, n joins would cost n². maxShown is how many waiters Load reads, and how many
	// sessions Members.
	maxAhead = 8
	maxShown = 1_000

	// maxGrants is the maximum number of claims that one write grants, and of waiters that a
	// seal wakes, since the reply names them all. More can fit at once only when a writer or a
	// large semaphore makes room for as many sessions; the next write to the key grants the
	// rest.
	maxGrants = 1_000

	// maxFormer is how many former limits of a key are known.
	maxFormer = 16

	// tokenStep is the distance between the tokens of two grants, for hand-offs within a
	// process. Tokens are at least the server's clock in ms times tokenStep, so they keep
	// growing after an idle record was deleted.
	tokenStep = 1024

	// tokenRoom is the distance after the token of a claim that takes all of the key and yields
	// it: its process may hand it off many times.
	tokenRoom = 65_536
)

// shapes are the update pipelines for key records, encoded once. They are static: the arguments
// of a call come as one literal document. The first stage puts it into the field "_", which all
// stages use as scratch space and the last one removes. (The "let" of commands exists only from
// MongoDB 5.0 on.)
//
// Every pipeline that can let claims in edits the record, then settles it:
//
//	clean   drop the claims of expired sessions, and holders whose end has come
//	edit    queue or remove the command's own claim, move its end, seal, resize
//	settle  while the first claim in the queue fits, grant it
type shapes struct {
	acquireWait, acquireTry []bson.Raw
	release, keep, seal     []bson.Raw
	succeed                 []bson.Raw
	extend, publish, resize []bson.Raw
	mark                    []bson.Raw

	// released, sealed and resized are the fields of the record in the replies.
	released, sealed, resized bson.Raw

	// ahead is the expression for the claims nearest ahead of position "$$position" in the queue,
	// which counts from 0. If that is negative, they are the head of the queue.
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
	// A try that is not granted leaves the queue again, and so changes nothing.
	sh := &shapes{
		acquireWait: encode(clean(alive(), waits()), joining(), settle(settling{changed: op("$or", "$_.cleaned", "$_.join")})),
		acquireTry:  encode(clean(alive(), waits()), joining(), settle(settling{changed: "$_.cleaned", leave: true})),
		release:     encode(clean(op("$and", alive(), other()), other()), settle(settling{changed: true})),
		keep:        encode(clean(alive(), other()), keeping(), settle(settling{changed: op("$or", "$_.cleaned", "$_.moved")})),
		seal:        encode(clean(alive(), other()), sealing(), settle(settling{changed: true})),
		succeed:     encode(clean(op("$or", alive(), op("$not", other())), true), succeeding(), settle(settling{changed: op("$or", "$_.cleaned", "$_.moved")})),
		extend:      encode(extending()),
		publish:     encode(publishing()),
		resize:      encode(clean(alive(), waits()), resizing(), settle(settling{changed: op("$or", "$_.cleaned", "$_.resized")})),
		mark:        encode(marking()),
		ahead:       encode([]bson.D{ahead()})[0],
		released:    encode([]bson.D{whom(granted())})[0],
		sealed:      encode([]bson.D{whomSealed()})[0],
		resized:     encode([]bson.D{append(whom(granted()), e("y", 1), e("c", 1), e("p", 1))})[0],
	}
	return sh, err
}

// pipeline returns the pipeline with the arguments of a call.
func pipeline(shape []bson.Raw, scratch bson.D) bson.A {
	a := make(bson.A, 0, 1+len(shape))
	a = append(a, set(e("_", literal(scratch))))
	for _, stage := range shape {
		a = append(a, stage)
	}
	return a
}

// Conditions on a claim $$x. The scratch has mine, the id of the command's own claim, and
// dead, the ids of sessions that are known to have expired.

func other() bson.D { return op("$ne", "$$x.a", "$_.mine") }

func waits() bson.D { return op("$not", op("$in", "$$x.s", "$_.dead")) }

// alive is true of a holder with an end of its own until that end, whatever happens to its
// session, since UnlockAfter must outlive its process.
func alive() bson.D {
	return op("$cond", op("$ifNull", "$$x.e", false), op("$gt", "$$x.e", now), waits())
}

// size returns the number of claims in the record.
func size(h, q any) bson.D { return op("$add", op("$size", h), op("$size", q)) }

// cleaned says whether the stage before, which must be clean, dropped any claims.
func cleaned() bson.E { return e("_.cleaned", op("$ne", "$_.size", size("$h", "$q"))) }

// clean keeps the holders and the waiters that satisfy the conditions.
func clean(holder, waiter any) []bson.D {
	return []bson.D{set(
		e("h", filter(list("$h"), holder)),
		e("q", filter(list("$q"), waiter)),
		e("_.size", guard(size(list("$h"), list("$q")))),
	)}
}

// guard returns v, or an error that undoes the whole command if a later version of this library
// wrote the record. A filter cannot do that: if it does not match, an upsert tries to insert a
// second record, and fails with a duplicate key, which means something else.
func guard(v any) bson.D {
	return op("$cond", op("$gt", "$f", formatVersion),
		op("$toInt", op("$concat", "record format ", op("$toString", "$f"))), v)
}

// now is the server's clock, read once per command. On a sharded cluster mongos supplies it,
// while $currentDate is the shard's; so nothing else is used for a time.
const now = "$$NOW"

// e returns one element of a document.
func e(key string, value any) bson.E { return bson.E{Key: key, Value: value} }

// op returns the expression {name: args}, or {name: arg} if there is only one.
func op(name string, args ...any) bson.D {
	if len(args) == 1 {
		return bson.D{e(name, args[0])}
	}
	return bson.D{e(name, bson.A(args))}
}

// set returns the stage {$set: {…}}. All its expressions see the document as it was before the
// stage.
func set(fields ...bson.E) bson.D { return bson.D{e("$set", bson.D(fields))} }

// literal keeps values from callers from being read as expressions: a key may be "$$NOW".
func literal(v any) bson.D { return op("$literal", v) }

// list returns the array at path, or an empty one if it is missing.
func list(path string) bson.D { return op("$ifNull", path, bson.A{}) }

func filter(input, cond any) bson.D {
	return op("$filter", bson.D{e("input", input), e("as", "x"), e("cond", cond)})
}

func let(name string, value, in any) bson.D {
	return op("$let", bson.D{e("vars", bson.D{e(name, value)}), e("in", in)})
}
