package fence_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/leasehold-go/leasehold/dsync/mongo/fence"
	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"
	"go.mongodb.org/mongo-driver/v2/mongo/readconcern"
	"go.mongodb.org/mongo-driver/v2/mongo/readpref"
	"go.mongodb.org/mongo-driver/v2/mongo/writeconcern"
)

var (
	seven  = bson.D{e("_id", 7)}
	paying = bson.D{e("$set", bson.D{e("paid", true)})}
)

// writes has calls of each method that writes only existing documents. A call returns how many documents were found.
var writes = []struct {
	name string
	call func(context.Context, *fence.Collection, int64) (int64, error)
}{
	{"UpdateOne", updateOne(seven, paying)},
	{"UpdateOnePipeline", updateOne(seven, mongo.Pipeline{{e("$set", bson.D{e("paid", true)})}})},
	{"ReplaceOne", func(ctx context.Context, f *fence.Collection, token int64) (int64, error) {
		res, err := f.ReplaceOne(ctx, token, seven, bson.D{e("paid", true)})
		return matched(res), err
	}},
	{"RaiseToken", func(ctx context.Context, f *fence.Collection, token int64) (int64, error) {
		res, err := f.RaiseToken(ctx, token, seven)
		return matched(res), err
	}},
	{"DeleteOne", func(ctx context.Context, f *fence.Collection, token int64) (int64, error) {
		res, err := f.DeleteOne(ctx, token, seven)
		if res == nil {
			return 0, err
		}
		return res.DeletedCount, err
	}},
}

func updateOne(filter, update any) func(context.Context, *fence.Collection, int64) (int64, error) {
	return func(ctx context.Context, f *fence.Collection, token int64) (int64, error) {
		res, err := f.UpdateOne(ctx, token, filter, update)
		return matched(res), err
	}
}

func matched(res *mongo.UpdateResult) int64 {
	if res == nil {
		return 0
	}
	return res.MatchedCount
}

// orders returns a Collection on f. The concerns and the read preference of the driver's collection are too weak
// for a fence.
func (f *fake) orders(opt *fence.Options, answer func(call) bson.D, opts ...*options.ClientOptions) *fence.Collection {
	f.t.Helper()
	coll := f.client(opts...).Database("app").Collection("orders", options.Collection().
		SetWriteConcern(writeconcern.W1()).SetReadConcern(readconcern.Available()).
		SetReadPreference(readpref.SecondaryPreferred()))
	f.script(answer)
	return fence.New(coll, opt)
}

// found answers a find with the documents, and every write with n.
func found(n int, documents ...bson.D) func(call) bson.D {
	batch := append([]bson.D{}, documents...)
	return func(c call) bson.D {
		if c.name == "find" {
			return ok(e("cursor", bson.D{e("id", int64(0)), e("ns", "app.orders"), e("firstBatch", batch)}))
		}
		return ok(e("n", n), e("nModified", n))
	}
}

// Each write is one command, which has a condition on the document's token and, unless it deletes the document, the new
// token. It waits for a majority, whatever the collection's own write concern.
func TestCollectionOneCommand(t *testing.T) {
	guard := func(field string) string {
		return fmt.Sprintf(`{"$or": [{"%[1]s": {"$eq": null,"$not": {"$type": "array"}}},{"%[1]s": {"$lte": {"$numberLong":"42"},"$not": {"$type": "array"}}}]}`, field)
	}
	stage := `{"$set": {"turn": {"$numberLong":"42"}}}`
	operator := `"$max": {"turn": {"$numberLong":"42"}}`
	stamps := map[string]string{
		"UpdateOne": operator, "UpdateOnePipeline": stage, "ReplaceOne": stage, "RaiseToken": operator, "DeleteOne": "",
	}
	for _, m := range writes {
		inBubble(t, m.name, func(t *testing.T) {
			f := newFake(t)
			orders := f.orders(&fence.Options{Field: "turn"}, found(1))
			if n, err := m.call(t.Context(), orders, 42); n != 1 || err != nil {
				t.Errorf("got %d, %v, want 1, nil", n, err)
			}
			if n := len(f.took()); n != 1 {
				t.Fatalf("%d commands were sent, want 1", n)
			}
			cmd := f.took()[0].cmd
			statement := cmd.Lookup("updates", "0")
			if m.name == "DeleteOne" {
				statement = cmd.Lookup("deletes", "0")
			}
			q := statement.Document().Lookup("q")
			if want := guard("turn"); !strings.Contains(q.String(), want) || !strings.Contains(q.String(), `{"_id": {"$numberInt":"7"}}`) {
				t.Errorf("the filter is %v, want both %s and the caller's", q, want)
			}
			if got := statement.String(); !strings.Contains(got, stamps[m.name]) {
				t.Errorf("the statement is %s, want %s in it", got, stamps[m.name])
			}
			if w, _ := cmd.Lookup("writeConcern", "w").StringValueOK(); w != "majority" {
				t.Errorf("w is %q, want majority: %v", w, cmd)
			}
		})
	}
}

// If a write matches nothing, a read finds out whether the document has seen a greater token or does not exist.
func TestCollectionTellsWhy(t *testing.T) {
	cases := []struct {
		name string
		doc  []bson.D // what is found
		want fence.StaleError
		text string
	}{
		{"no document", nil, fence.StaleError{}, ""},
		{"fenced", []bson.D{{e("_id", int32(7)), e("fence", int64(43))}}, fence.StaleError{Seen: 43}, "has seen token 43, which is greater than 42"},
		{"no number", []bson.D{{e("_id", int32(7)), e("fence", "x")}}, fence.StaleError{}, "is not a number"},
	}
	for _, tc := range cases {
		for _, m := range writes {
			inBubble(t, tc.name+"/"+m.name, func(t *testing.T) {
				f := newFake(t)
				n, err := m.call(t.Context(), f.orders(nil, found(0, tc.doc...)), 42)
				if n != 0 {
					t.Errorf("%d documents were written, want none", n)
				}
				calls := f.took()
				if len(calls) != 2 || calls[1].name != "find" {
					t.Fatalf("the commands were %v, want a write and a find", calls)
				}
				find := calls[1].cmd
				want := `{"$and": [{"_id": {"$numberInt":"7"}},{"$nor": [{"fence": {"$eq": null,"$not": {"$type": "array"}}},{"fence": {"$lte": {"$numberLong":"42"},"$not": {"$type": "array"}}}]}]}`
				if got := find.Lookup("filter").String(); got != want {
					t.Errorf("the read's filter is %s, want %s", got, want)
				}
				if level := find.Lookup("readConcern", "level").StringValue(); level != "local" {
					t.Errorf("the read concern is %q, want local", level)
				}
				if mode := find.Lookup("$readPreference", "mode"); !mode.IsZero() && mode.StringValue() != "primaryPreferred" {
					t.Errorf("the read preference is %v, want the primary", mode)
				}
				if tc.doc == nil {
					if err != nil {
						t.Errorf("got %v, want no error, like the driver", err)
					}
					return
				}
				var got *fence.StaleError
				if !errors.Is(err, fence.ErrStale) || !errors.As(err, &got) {
					t.Fatalf("got %v, want ErrStale", err)
				}
				if got.Token != 42 || got.Seen != tc.want.Seen || got.Collection != "orders" || got.ID.AsInt64() != 7 {
					t.Errorf("got %+v, want the token, the one seen, the collection and the _id", got)
				}
				if !strings.Contains(err.Error(), tc.text) || !strings.Contains(err.Error(), "orders") {
					t.Errorf("got %q, want %q in it", err, tc.text)
				}
			})
		}
	}
}

// After a loss Token returns 0. A write with a token that is not positive sends nothing and returns ErrStale.
func TestCollectionWithoutToken(t *testing.T) {
	for _, token := range []int64{0, -1} {
		synctest.Test(t, func(t *testing.T) {
			f := newFake(t)
			orders := f.orders(nil, found(1))
			check := func(name string, err error) {
				t.Helper()
				var got *fence.StaleError
				if !errors.Is(err, fence.ErrStale) || !errors.As(err, &got) || got.Token != token {
					t.Errorf("%s: got %v, want ErrStale", name, err)
				}
			}
			for _, m := range writes {
				_, err := m.call(t.Context(), orders, token)
				check(m.name, err)
			}
			_, err := orders.InsertOne(t.Context(), token, bson.D{})
			check("InsertOne", err)
			_, err = orders.Upsert(t.Context(), token, 7, paying)
			check("Upsert", err)
			if n := len(f.took()); n != 0 {
				t.Errorf("%d commands were sent, want none", n)
			}
		})
	}
}

func TestCollectionRefusesNonsense(t *testing.T) {
	type doc struct {
		Fence int64 `bson:"fence"`
	}
	raw := func(d bson.D) bson.Raw { return mustMarshal(t, d) }
	touch := bson.D{e("fence", 1)}
	updates := map[string]any{
		"$set":               bson.D{e("$set", touch)},
		"$set of a map":      bson.M{"$set": bson.M{"fence": 1}},
		"$set of a struct":   bson.D{e("$set", doc{})},
		"$set, encoded":      raw(bson.D{e("$set", touch)}),
		"$set in bytes":      []byte(raw(bson.D{e("$set", touch)})),
		"$max":               bson.D{e("$max", touch)},
		"$inc of a part":     bson.D{e("$inc", bson.D{e("fence.x", 1)})},
		"$unset":             bson.D{e("$set", bson.D{e("a", 1)}), e("$unset", bson.D{e("fence", "")})},
		"$rename":            bson.D{e("$rename", bson.D{e("fence", "x")})},
		"$rename to it":      bson.D{e("$rename", bson.D{e("x", "fence")})},
		"$rename to it, raw": raw(bson.D{e("$rename", bson.D{e("x", "fence")})}),
		"stage $set":         mongo.Pipeline{{e("$set", bson.D{e("a", 1)})}, {e("$set", touch)}},
		"stage $addFields":   bson.A{bson.M{"$addFields": touch}},
		"stage $unset":       []bson.D{{e("$unset", "fence")}},
		"stage $unset, list": []bson.M{{"$unset": bson.A{"a", "fence"}}},
		"stage, encoded":     []bson.Raw{raw(bson.D{e("$unset", bson.A{"a", "fence"})})},
	}
	synctest.Test(t, func(t *testing.T) {
		f := newFake(t)
		orders := f.orders(nil, found(1))
		ctx := t.Context()
		wants := func(name, want string, err error) {
			t.Helper()
			if err == nil || errors.Is(err, fence.ErrStale) || !strings.Contains(err.Error(), want) {
				t.Errorf("%s: got %v, want an error with %q", name, err, want)
			}
		}
		for name, update := range updates {
			_, err := orders.UpdateOne(ctx, 42, seven, update)
			wants(name, `"fence"`, err)
			_, err = orders.Upsert(ctx, 42, 7, update)
			wants(name, `"fence"`, err)
		}
		_, err := orders.InsertOne(ctx, 42, touch)
		wants("InsertOne", `"fence"`, err)
		_, err = orders.InsertOne(ctx, 42, doc{})
		wants("InsertOne of a struct", "bson.Marshal", err)
		_, err = orders.InsertOne(ctx, 42, nil)
		wants("InsertOne of nil", "nil", err)
		_, err = orders.ReplaceOne(ctx, 42, seven, paying)
		wants("ReplaceOne by an update", "UpdateOne", err)
		_, err = orders.ReplaceOne(ctx, 42, seven, (*doc)(nil))
		wants("ReplaceOne by nil", "nil", err)
		_, err = orders.UpdateOne(ctx, 42, nil, paying)
		wants("no filter", "bson.D{}", err)
		_, err = orders.UpdateOne(ctx, 42, bson.D(nil), paying)
		wants("nil filter", "bson.D{}", err)
		_, err = orders.UpdateOne(ctx, 42, seven, nil)
		wants("no update", "nil", err)
		_, err = orders.UpdateOne(ctx, 42, seven, doc{})
		wants("a struct", "bson.D", err)
		_, err = orders.UpdateOne(ctx, 42, seven, bson.D{e("paid", true)})
		wants("not an update", "$", err)
		_, err = orders.UpdateOne(ctx, 42, seven, bson.D{e("$max", doc{})})
		wants("a struct as $max", "", err)
		if n := len(f.took()); n != 0 {
			t.Errorf("%d commands were sent, want none: %v", n, f.took())
		}
	})
	for name, field := range map[string]string{"_id": "_id", "a dot": "a.b", "a dollar": "$a", "NUL": "a\x00"} {
		inBubble(t, "field with "+name, func(t *testing.T) {
			f := newFake(t)
			coll := f.client().Database("app").Collection("orders")
			defer func() {
				if recover() == nil {
					t.Error("no panic")
				}
			}()
			fence.New(coll, &fence.Options{Field: field})
		})
	}
	defer func() {
		if recover() == nil {
			t.Error("New did not panic without a collection")
		}
	}()
	fence.New(nil, nil)
}

// A Collection adds its token to an update and keeps all of the caller's operators and stages.
func TestCollectionKeepsUpdates(t *testing.T) {
	const token = `{"$numberLong":"42"}`
	cases := []struct {
		name   string
		update any
		want   string
	}{
		{"operators", bson.D{e("$set", bson.D{e("a", "x")}), e("$inc", bson.M{"n": "y"})},
			`{"$set": {"a": "x"},"$inc": {"n": "y"},"$max": {"fence": ` + token + `}}`},
		{"a $max", bson.D{e("$max", bson.D{e("n", "x")}), e("$set", bson.D{e("fenced", "y")})},
			`{"$max": {"n": "x","fence": ` + token + `},"$set": {"fenced": "y"}}`},
		{"a $max in maps", bson.M{"$max": bson.M{"n": "x"}}, `{"$max": {"n": "x","fence": ` + token + `}}`},
		{"a $max, encoded", mustMarshal(t, bson.D{e("$max", bson.D{e("n", "x")})}), `{"$max": {"n": "x","fence": ` + token + `}}`},
		{"stages", bson.A{bson.D{e("$replaceWith", "$new")}, bson.M{"$unset": "a"}},
			`[{"$replaceWith": "$new"},{"$unset": "a"},{"$set": {"fence": ` + token + `}}]`},
	}
	for _, tc := range cases {
		inBubble(t, tc.name, func(t *testing.T) {
			f := newFake(t)
			if _, err := f.orders(nil, found(1)).UpdateOne(t.Context(), 42, seven, tc.update); err != nil {
				t.Fatal(err)
			}
			if got := f.took()[0].cmd.Lookup("updates", "0", "u").String(); got != tc.want {
				t.Errorf("got %s, want %s", got, tc.want)
			}
		})
	}
}

// Filters, updates and replacements are encoded with the registry and the options of the client.
func TestCollectionEncodesLikeTheClient(t *testing.T) {
	type order struct {
		Paid bool `json:"jsonPaid"`
	}
	synctest.Test(t, func(t *testing.T) {
		f := newFake(t)
		orders := f.orders(nil, found(1), options.Client().SetBSONOptions(&options.BSONOptions{UseJSONStructTags: true}))
		if _, err := orders.ReplaceOne(t.Context(), 42, order{}, order{Paid: true}); err != nil {
			t.Fatal(err)
		}
		if _, err := orders.UpdateOne(t.Context(), 42, []byte(mustMarshal(t, seven)), bson.M{"$set": order{Paid: true}}); err != nil {
			t.Fatal(err)
		}
		for i, want := range []string{
			`[{"$replaceWith": {"$literal": {"jsonPaid": true}}},{"$set": {"fence": {"$numberLong":"42"}}}]`,
			`{"$set": {"jsonPaid": true},"$max": {"fence": {"$numberLong":"42"}}}`,
		} {
			cmd := f.took()[i].cmd
			if got := cmd.Lookup("updates", "0", "u").String(); got != want {
				t.Errorf("got %s, want %s", got, want)
			}
			want = []string{`{"jsonPaid": false}`, `{"_id": {"$numberInt":"7"}}`}[i]
			if got := cmd.Lookup("updates", "0", "q", "$and", "0").String(); got != want {
				t.Errorf("got the filter %s, want %s", got, want)
			}
		}
	})
}

func TestCollectionInserts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake(t)
		orders := f.orders(nil, found(1))
		if _, err := orders.InsertOne(t.Context(), 42, bson.M{"_id": 7, "a": "x"}); err != nil {
			t.Fatal(err)
		}
		cmd := f.took()[0].cmd
		want := `{"_id": {"$numberInt":"7"},"a": "x","fence": {"$numberLong":"42"}}`
		if got := cmd.Lookup("documents", "0").String(); got != want {
			t.Errorf("got %s, want %s", got, want)
		}
		if w, _ := cmd.Lookup("writeConcern", "w").StringValueOK(); w != "majority" {
			t.Errorf("w is %q, want majority", w)
		}
	})
}

// If Upsert gets a duplicate key, it finds out why. If the document has seen a greater token, it returns ErrStale. If
// somebody else has just inserted the document, it tries again. If another index refuses the document, it returns the
// driver's error.
func TestCollectionUpsert(t *testing.T) {
	duplicate := ok(e("n", 0), e("writeErrors", bson.A{bson.D{e("index", 0), e("code", 11000), e("errmsg", "E11000")}}))
	fenced := bson.D{e("_id", 7), e("fence", int64(43))}
	cases := []struct {
		name  string
		fails int      // how many updates fail with a duplicate key
		doc   []bson.D // what the read finds
		sent  string
		check func(error) bool
	}{
		{"done", 0, nil, "update", func(err error) bool { return err == nil }},
		{"fenced", 9, []bson.D{fenced}, "update find", func(err error) bool { return errors.Is(err, fence.ErrStale) }},
		{"raced", 2, nil, "update find update find update", func(err error) bool { return err == nil }},
		{"another index", 9, nil, "update find update find update find", func(err error) bool {
			return mongo.IsDuplicateKeyError(err) && !errors.Is(err, fence.ErrStale)
		}},
	}
	for _, tc := range cases {
		inBubble(t, tc.name, func(t *testing.T) {
			f := newFake(t)
			orders := f.orders(nil, func(c call) bson.D {
				if c.name == "update" {
					if tc.fails--; tc.fails >= 0 {
						return duplicate
					}
				}
				return found(1, tc.doc...)(c)
			})
			if _, err := orders.Upsert(t.Context(), 42, 7, paying); !tc.check(err) {
				t.Errorf("got %v", err)
			}
			var sent []string
			for _, c := range f.took() {
				sent = append(sent, c.name)
				if up, _ := c.cmd.Lookup("updates", "0", "upsert").BooleanOK(); c.name == "update" && !up {
					t.Errorf("no upsert: %v", c.cmd)
				}
			}
			if got := strings.Join(sent, " "); got != tc.sent {
				t.Errorf("sent %s, want %s", got, tc.sent)
			}
		})
	}
}

// If a write is refused, or it is unknown whether it was applied, the caller gets the driver's error, not ErrStale.
func TestCollectionUnknownOutcome(t *testing.T) {
	unconfirmed := ok(e("n", 0), e("writeConcernError", bson.D{e("code", 64), e("errmsg", "waiting for replication timed out")}))
	for name, answer := range map[string]bson.D{"lost": lost, "not confirmed": unconfirmed, "refused": refusal(13, "Unauthorized")} {
		for _, m := range writes {
			inBubble(t, name+"/"+m.name, func(t *testing.T) {
				f := newFake(t)
				n, err := m.call(t.Context(), f.orders(nil, func(c call) bson.D {
					if c.name == "find" {
						t.Errorf("a find after an unknown outcome")
					}
					return answer
				}), 42)
				if n != 0 || err == nil || errors.Is(err, fence.ErrStale) {
					t.Errorf("got %d, %v, want the driver's error", n, err)
				}
			})
		}
	}
	inBubble(t, "unread", func(t *testing.T) {
		f := newFake(t)
		_, err := f.orders(nil, func(c call) bson.D {
			if c.name == "find" {
				return refusal(13, "Unauthorized")
			}
			return ok(e("n", 0))
		}).UpdateOne(t.Context(), 42, seven, paying)
		if err == nil || errors.Is(err, fence.ErrStale) || !strings.Contains(err.Error(), "nothing was written") {
			t.Errorf("got %v, want an error that says that nothing was written", err)
		}
	})
}
