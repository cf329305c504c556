package mongo

import "go.mongodb.org/mongo-driver/v2/bson"

// now is the server's clock, read once per command. On a sharded cluster mongos
// supplies it, whereas $currentDate is the shard's: so nothing else is ever used
// for a time.
const now = "$$NOW"

// e is one element of a document.
func e(key string, value any) bson.E { return bson.E{Key: key, Value: value} }

// op is the expression {name: args}, or {name: arg} if there is one.
func op(name string, args ...any) bson.D {
	if len(args) == 1 {
		return bson.D{e(name, args[0])}
	}
	return bson.D{e(name, bson.A(args))}
}

// set is the stage {$set: {…}}. All its expressions see the document as it was
// before the stage.
func set(fields ...bson.E) bson.D { return bson.D{e("$set", bson.D(fields))} }

// literal keeps what comes from callers from being read as an expression: a key
// may be named "$$NOW".
func literal(v any) bson.D { return op("$literal", v) }

// list is the array at path, empty if it is missing.
func list(path string) bson.D { return op("$ifNull", path, bson.A{}) }

func filter(input, cond any) bson.D {
	return op("$filter", bson.D{e("input", input), e("as", "x"), e("cond", cond)})
}

func let(name string, value, in any) bson.D {
	return op("$let", bson.D{e("vars", bson.D{e(name, value)}), e("in", in)})
}
