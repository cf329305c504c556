package mongo

import (
	"fmt"
	"slices"
	"sync"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
)

const (
	// formatVersion is the version of key records that this code writes, and the latest that it knows.
	formatVersion = 2

	// The reply to an Acquire contains at most maxAhead of the claims ahead in the queue, the nearest ones. If replies
	// contained the whole queue, the cost of n joins would grow as n².
	maxAhead = 8
	maxShown = 1_000

	// One write grants at most maxGrants claims, and one seal wakes at most maxGrants waiters, because the reply names
	// them all. More claims can fit when an RWMutex's writer or a semaphore's large hold ends, or when a semaphore
	// grows. The next commands that settle the key then grant the rest.
	maxGrants = 1_000

	// maxFormer is how many former limits of a key are remembered.
	maxFormer = 16
)

// shapes are the update pipelines for key records, encoded once. They are static. If a call has arguments, it adds a
// first stage that puts them, as one literal document, into the field "_". All stages use this field as scratch space,
// and the last stage removes it. (The "let" option of commands exists only since MongoDB 5.0.)
//
// Every pipeline that may grant claims cleans the record, makes the edit, and then settles the key:
//
//	clean   drop the claims of expired sessions, and holders whose end has come
//	edit    queue or remove the command's own claim, move its end, seal, resize, forget
//	settle  while the first claim in the queue fits, grant it
//
// The server takes longer to parse and free a pipeline than to run it, so a pipeline's cost depends on its number
// of expressions. Three things save many expressions:
//
//   - Options that the client knows select the pipeline instead of being conditions in it.
//   - Every write that queues or grants a claim writes both h and q. So the pipelines replace a missing list with an
//     empty one only where the record may be new.
//   - A missing value is less than any other, counts as false in a condition, and is ignored by $min and
//     $max.
type shapes struct {
	acquire                 map[acquiring][]bson.Raw
	release, keep, seal     []bson.Raw
	succeed                 []bson.Raw
	extend, publish, resize []bson.Raw
	forget, mark            []bson.Raw

	// released, sealed and resized are projections: the fields that the replies contain.
	released, sealed, resized bson.Raw
}

// An acquiring selects the pipeline for an Acquire.
type acquiring struct {
	expired bool // the Acquire names expired sessions
	first   bool // the claim joins at the head of the queue
	try     bool // if the claim is not granted, it is removed from the queue again, so nothing changes
	tick    bool // the claim has a tick
	poll    bool // the claim usually waits already; if it does not, it does not join
}

// theShapes returns the shapes. They are encoded when they are first needed, because that takes longer than a majority
// write. A short program whose keys are free sends only short commands and needs none.
var theShapes = sync.OnceValue(newShapes)

func newShapes() *shapes {
	encode := func(parts ...[]bson.D) []bson.Raw {
		var raw []bson.Raw
		for _, stage := range slices.Concat(parts...) {
			b, err := bson.Marshal(stage)
			if err != nil {
				panic(fmt.Sprintf("mongo: encode %v: %v", stage, err)) // can't happen: the stages are constant
			}
			raw = append(raw, b)
		}
		return raw
	}
	sh := &shapes{
		acquire:  make(map[acquiring][]bson.Raw),
		release:  encode(releasing(), settle(nil, nil)),
		keep:     encode(keeping(), settle(claims(), nil)),
		seal:     encode(sealing(), settle(nil, nil)),
		succeed:  encode(succeeding(), settle(claims(), nil)),
		extend:   encode(extending()),
		publish:  encode(publishing()),
		resize:   encode(resizing(), settle(limits(), nil)),
		forget:   encode(forgetting(), settle(append(claims(), "$done", "$n", "$p"), nil)),
		mark:     encode(marking()),
		released: encode([]bson.D{whom(granted())})[0],
		sealed:   encode([]bson.D{whomSealed()})[0],
		resized:  encode([]bson.D{append(whom(granted()), e("y", 1), e("c", 1), e("p", 1))})[0],
	}
	for i := range 32 {
		a := acquiring{expired: i&1 > 0, first: i&2 > 0, try: i&4 > 0, poll: i&8 > 0, tick: i&16 > 0}
		if a.poll && (a.first || a.try || a.tick) {
			continue
		}
		var rest any
		if a.try {
			rest = op("$ne", "$$this.a", "$_.claim.a")
		}
		sh.acquire[a] = encode(joining(a), settle(claims(), rest))
	}
	return sh
}

// pipeline returns the pipeline with the arguments of a call, if there are any.
func pipeline(shape []bson.Raw, scratch bson.D) bson.A {
	a := make(bson.A, 0, 1+len(shape))
	if len(scratch) > 0 {
		a = append(a, set(e("_", literal(scratch))))
	}
	for _, stage := range shape {
		a = append(a, stage)
	}
	return a
}

// Conditions on a claim "$$this". In the scratch field, mine is the id of the command's own
// claim, and dead has the ids of sessions that are known to have expired.

func mine() bson.D  { return op("$eq", "$$this.a", "$_.mine") }
func other() bson.D { return op("$ne", "$$this.a", "$_.mine") }

func waits() bson.D { return op("$not", op("$in", "$$this.s", "$_.dead")) }

// holds is true of a holder unless it has an end of its own and that end has come.
func holds() bson.D { return op("$gt", op("$ifNull", "$$this.e", never), now) }

// never is later than any time of the server's clock. It stands for the end of a claim without an end of its own.
var never = time.Date(9999, 1, 1, 0, 0, 0, 0, time.UTC)

// If a holder has an end of its own, alive is true until that end, even if the session expires. So a hold kept by
// ReleaseAfter outlives its process. For any other holder, alive is true until the session expires.
func alive() bson.D { return op("$cond", "$$this.e", op("$gt", "$$this.e", now), waits()) }

// claims returns the fields that show whether a command has changed the record. limits also returns the fields of the
// limit, for a command that may change the limit.
func claims() bson.A { return bson.A{"$h", "$q"} }
func limits() bson.A { return append(claims(), "$y", "$c", "$p") }

// clean is the first stage of a pipeline that settles. It keeps only the given holders and waiters, and gives a new
// record its format.
func clean(h, q any, scratch ...bson.E) bson.D {
	return set(append([]bson.E{e("f", guard(formatVersion)), e("h", h), e("q", q)}, scratch...)...)
}

// was saves the original fields of the record for settle.
func was(fields bson.A) bson.E { return e("_.was", fields) }

// guard returns v. If a later version of this library wrote the record, guard makes the whole command fail instead (see
// failure). A filter cannot do that. If it did not match, an upsert would try to insert a second record. It would then
// fail with a duplicate key, which has another meaning.
func guard(v any) bson.D { return op("$cond", op("$gt", "$f", formatVersion), unmet, v) }

// unmet makes a statement whose conditions are not met fail with codeConversion, because the _id is never a number. The
// reply to a bulk lists the statements that failed. If they left their records as they are, the reply would only have
// the number of records that were changed.
var unmet = constant(op("$toInt", "$_id"))

// now is the server's clock, read once per command. On a sharded cluster $$NOW comes from the mongos, while
// $currentDate would use the shard's clock, so we use only $$NOW.
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

// literal keeps callers' values from being evaluated as expressions: a key may be "$$NOW".
func literal(v any) bson.D { return op("$literal", v) }

// list returns the array at path, or an empty one if it is missing.
func list(path string) bson.D { return op("$ifNull", path, bson.A{}) }

// each returns the array input with each element, "$$this", replaced by in.
func each(input, in any) bson.D {
	return op("$map", bson.D{e("input", input), e("in", in)})
}

func filter(input, cond any) bson.D {
	return op("$filter", bson.D{e("input", input), e("cond", cond)}) // cond is about "$$this"
}

func let(name string, value, in any) bson.D {
	return op("$let", bson.D{e("vars", bson.D{e(name, value)}), e("in", in)})
}
