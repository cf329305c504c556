package mongo

import (
	"slices"

	"github.com/leasehold-go/leasehold/dsync"
	"go.mongodb.org/mongo-driver/v2/bson"
)

// The short commands are updates with two stages. The first puts what is to become of
// the record into "_", or null if its conditions are not met: they are one comparison of
// lists, since that is quick, in which what is missing is null. They are not in the
// command's filter, since a filter by _id alone is quicker than any other. The second
// stage makes it so.
type shortCommands struct {
	acquire, release, resign *template
}

// The holes: five that all templates have, then those of acquire alone, and the one of
// release and resign.
var (
	keyHole     = hole{bson.TypeString, 0}
	claimHole   = hole{bson.TypeString, 1}
	tokenHole   = hole{bson.TypeInt64, 2} // of the grant
	toldHole    = hole{bson.TypeString, 3}
	withinHole  = hole{bson.TypeInt64, 4} // ms
	sessionHole = hole{bson.TypeString, 5}
	kindHole    = hole{bson.TypeString, 6}
	beforeHole  = hole{bson.TypeInt64, 7}
	sinceHole   = hole{bson.TypeDateTime, 8}
	voidHole    = hole{bson.TypeDateTime, 9} // after that

	lastHole = hole{bson.TypeInt64, 5}
)

func newShortCommands(collection string) shortCommands {
	command := func(stages ...bson.D) *template {
		return newTemplate(bson.D{
			e("update", collection),
			e("updates", bson.A{bson.D{e("q", bson.D{e("_id", keyHole)}), e("u", stages)}}),
			e("writeConcern", majority(withinHole)),
		})
	}
	return shortCommands{
		acquire: command(acquiringShort(), becoming("h", "t", "at")),
		release: command(releasingShort(dsync.KindMutex), becoming("h", "t", "at", "q")),
		resign:  command(releasingShort(dsync.KindElection), becoming("h", "t", "at", "q", "n")),
	}
}

// becoming is the second stage, for what may become of those fields. A value that
// its holder published goes with the term.
func becoming(fields ...string) bson.D {
	var as bson.D
	for _, f := range fields {
		as = append(as, e(f, op("$ifNull", "$_."+f, "$"+f)))
	}
	if slices.Contains(fields, "n") {
		as = append(as, e("v", op("$cond", "$_", "$$REMOVE", "$v")))
	}
	return set(append(as, e("g", op("$cond", "$_", "$_.g", "$g")), e("_", "$$REMOVE"))...)
}

// acquiringShort is as joining and settle of a record without claims, for a token that is
// at least a step ahead of its last.
func acquiringShort() bson.D {
	is := bson.A{"$h", "$q", "$f", "$y", "$c", "$done"}
	want := bson.A{bson.A{}, bson.A{}, formatVersion, kindHole, int64(1), nil}
	mine := bson.D{e("a", claimHole), e("s", sessionHole), e("w", int64(1)), e("t", tokenHole), e("at", sinceHole)}
	return set(e("_", op("$cond",
		op("$and", op("$eq", is, literal(want)), op("$lte", "$t", beforeHole), op("$lte", now, voidHole)),
		literal(bson.D{e("h", bson.A{mine}), e("t", tokenHole), e("at", sinceHole), e("g", toldHole)}), nil)))
}

// releasingShort is as settle of a record whose one holder is taken out, and had the
// key's last token.
func releasingShort(kind dsync.Kind) bson.D {
	is := bson.A{"$h.a", "$t", "$f", "$c", "$r", "$$first.d", "$$first.l"}
	want := bson.A{bson.A{claimHole}, lastHole, formatVersion, int64(1), nil, nil, nil}
	grant := bson.D{e("t", tokenHole), e("at", now)}
	told := bson.A{"$$first.a", literal(toldHole)}
	if kind == dsync.KindElection {
		grant = append(grant, e("n", "$$term"))
		told = append(told, ":", op("$toString", "$$term"), ",")
	}
	next := slices.Concat(grant, bson.D{ // which has the same of the last grant
		e("h", bson.A{op("$mergeObjects", "$$first", grant)}),
		e("q", op("$slice", "$q", 1, maxLine)),
		e("g", op("$concat", told...)),
	})
	if kind == dsync.KindElection {
		next = let("term", op("$add", op("$ifNull", "$n", int64(0)), 1), next)
	} else {
		is, want = append(is, "$v"), append(want, nil)
	}
	free := literal(bson.D{e("h", bson.A{}), e("q", bson.A{})})
	return set(e("_", let("first", op("$arrayElemAt", "$q", 0), op("$cond",
		op("$eq", is, literal(want)),
		op("$cond", "$$first", next, free), nil))))
}
