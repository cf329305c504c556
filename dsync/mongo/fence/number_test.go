package fence_test

import (
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/leasehold-go/leasehold/dsync/mongo/fence"
	"go.mongodb.org/mongo-driver/v2/bson"
)

// A write is applied only if the fence's field is a number, null or missing. Anything else is refused, even an array:
// a plain comparison would match an array if just one of its elements were small enough.
func TestCollectionRefusesWhatIsNoNumber(t *testing.T) {
	cases := []struct {
		name   string
		was    bson.D // the fence's field
		passes bool
	}{
		{"no field", nil, true},
		{"null", bson.D{e("fence", nil)}, true},
		{"an older token", bson.D{e("fence", int64(41))}, true},
		{"the same token", bson.D{e("fence", int64(42))}, true},
		{"a 32-bit number", bson.D{e("fence", int32(7))}, true},
		{"a double", bson.D{e("fence", 41.5)}, true},
		{"a newer token", bson.D{e("fence", int64(43))}, false},
		{"text", bson.D{e("fence", "41")}, false},
		{"a date", bson.D{e("fence", time.UnixMilli(1))}, false},
		{"a document", bson.D{e("fence", bson.D{e("a", 1)})}, false},
		{"an empty array", bson.D{e("fence", bson.A{})}, false},
		{"an array of a small number", bson.D{e("fence", bson.A{int64(1)})}, false},
		{"an array with a small number", bson.D{e("fence", bson.A{int64(99), int64(1)})}, false},
		{"an array with null", bson.D{e("fence", bson.A{int64(99), nil})}, false},
	}
	for _, tc := range cases {
		for _, m := range writes {
			inBubble(t, tc.name+"/"+m.name, func(t *testing.T) {
				doc := mustMarshal(t, append(bson.D{e("_id", int32(7))}, tc.was...))
				f := newFake(t)
				orders := f.orders(nil, func(c call) bson.D {
					switch c.name {
					case "find":
						batch := bson.A{}
						if matches(t, doc, c.cmd.Lookup("filter").Document()) {
							batch = bson.A{doc}
						}
						return ok(e("cursor", bson.D{e("id", int64(0)), e("ns", "app.orders"), e("firstBatch", batch)}))
					case "delete":
						return ok(e("n", count(matches(t, doc, c.cmd.Lookup("deletes", "0", "q").Document()))))
					}
					return ok(e("n", count(matches(t, doc, c.cmd.Lookup("updates", "0", "q").Document()))))
				})
				n, err := m.call(t.Context(), orders, 42)
				if passed := n == 1 && err == nil; passed != tc.passes || !passed && !errors.Is(err, fence.ErrStale) {
					t.Errorf("got %d, %v; want it applied: %t, otherwise ErrStale", n, err, tc.passes)
				}
			})
		}
	}
}

func count(b bool) int {
	if b {
		return 1
	}
	return 0
}

// matches evaluates a fence's filter as a server does: an array meets a condition if one of its elements meets it,
// except with $not and with $type "array".
func matches(t *testing.T, doc, filter bson.Raw) bool {
	t.Helper()
	elements := must(filter.Elements())
	return !slices.ContainsFunc(elements, func(el bson.RawElement) bool {
		switch el.Key() {
		case "$and":
			return slices.ContainsFunc(documents(el), func(d bson.Raw) bool { return !matches(t, doc, d) })
		case "$or":
			return !slices.ContainsFunc(documents(el), func(d bson.Raw) bool { return matches(t, doc, d) })
		case "$nor":
			return slices.ContainsFunc(documents(el), func(d bson.Raw) bool { return matches(t, doc, d) })
		}
		return !meets(t, doc.Lookup(el.Key()), el.Value())
	})
}

func documents(el bson.RawElement) (list []bson.Raw) {
	for _, v := range must(el.Value().Array().Values()) {
		list = append(list, v.Document())
	}
	return list
}

// meets reports whether v meets the condition cond. A missing value has type 0.
func meets(t *testing.T, v, cond bson.RawValue) bool {
	t.Helper()
	operators, isDoc := cond.DocumentOK()
	if !isDoc {
		operators = mustMarshal(t, bson.D{e("$eq", cond)})
	}
	for _, op := range must(operators.Elements()) {
		arg := op.Value()
		some := func(ok func(bson.RawValue) bool) bool {
			if array, is := v.ArrayOK(); is && slices.ContainsFunc(must(array.Values()), ok) {
				return true
			}
			return ok(v)
		}
		var ok bool
		switch op.Key() {
		case "$eq":
			ok = some(func(v bson.RawValue) bool {
				number, isNumber := v.AsInt64OK()
				want, isWanted := arg.AsInt64OK()
				none := v.Type == 0 || v.Type == bson.TypeNull
				return none && arg.Type == bson.TypeNull || isNumber && isWanted && number == want
			})
		case "$lte":
			ok = some(func(v bson.RawValue) bool { return v.IsNumber() && v.AsFloat64() <= arg.AsFloat64() })
		case "$type":
			if arg.StringValue() != "array" {
				t.Fatalf("a type that the test does not know: %v", op)
			}
			ok = v.Type == bson.TypeArray
		case "$not":
			ok = !meets(t, v, arg)
		default:
			t.Fatalf("a condition that the test does not know: %v", fmt.Sprint(op))
		}
		if !ok {
			return false
		}
	}
	return true
}
