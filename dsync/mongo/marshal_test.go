package mongo

import (
	"bytes"
	"math"
	"testing"
	"time"

	"github.com/leasehold-go/leasehold/dsync/driver"
	"go.mongodb.org/mongo-driver/v2/bson"
)

// marshal encodes every value as the driver would, even a value of a type that no command contains.
func TestMarshalAsTheDriverDoes(t *testing.T) {
	type named string
	inner := bson.D{e("text", "a\x00é"), e("again", bson.D{})}
	raw, err := bson.Marshal(inner)
	if err != nil {
		t.Fatal(err)
	}
	many := make(bson.A, 120) // indexes have up to three digits
	for i := range many {
		many[i] = i
	}
	for _, v := range []any{
		nil, true, false, "", "text", 0, math.MaxInt32, math.MaxInt32 + 1, math.MinInt32, math.MinInt32 - 1, int64(1), int64(math.MinInt64),
		time.UnixMilli(1_700_000_000_123), time.Unix(-1, 999_999_999), time.Time{}, never,
		inner, bson.D(nil), bson.Raw(raw), bson.A{}, bson.A(nil), bson.A{1, "x", nil, inner, bson.A{bson.Raw(raw)}}, many,
		[]bson.D{inner, nil}, []bson.D(nil), []bson.Raw{raw}, []bson.Raw(nil),
		int32(1), 1.5, named("named"), []string{"a", "b"}, map[string]string{"a": "b"}, []byte("bytes"), bson.Binary{Data: []byte{1}},
		bson.Timestamp{T: 1, I: 2}, bson.Regex{Pattern: "^a"}, bson.NewObjectID(), noticeRecord{Key: "k", Token: 1}, &noticeRecord{}, time.Second,
		bson.RawValue{Type: bson.TypeEmbeddedDocument, Value: raw}, constant(bson.A{1, "x", inner}), constant(nil),
	} {
		cmd := bson.D{e("command", 1), e("value", v), e("last", true)}
		want, err := bson.Marshal(cmd)
		if err != nil {
			t.Fatalf("%T: %v", v, err)
		}
		if got, err := marshal(cmd); err != nil || !bytes.Equal(got, want) {
			t.Errorf("%T: got %v, %v, want %v", v, got, err, bson.Raw(want))
		}
	}
	for _, v := range []any{make(chan int), bson.D{e("in", make(chan int))}, bson.A{make(chan int)}} {
		if got, err := marshal(bson.D{e("value", v)}); got != nil || err == nil {
			t.Errorf("%T: got %v, want an error", v, got)
		}
	}
}

// BenchmarkMarshal encodes the command of a hand-over, as this package does and as the driver would.
func BenchmarkMarshal(b *testing.B) {
	c := driver.Claim{Key: "key", Kind: driver.KindMutex, ID: "claim", Session: "session", Weight: 1, Limit: 1, Token: 1}
	s := &store{collection: "leasehold"}
	cmd := bson.D{
		e("findAndModify", s.collection), e("query", bson.D{e("_id", keyID(c.Key))}), e("update", s.handingOver(c, 2, nil)),
		e("fields", handedOver(c, nil)), e("writeConcern", majority(int64(1000))),
	}
	b.Run("here", func(b *testing.B) {
		for b.Loop() {
			marshal(cmd)
		}
	})
	b.Run("driver", func(b *testing.B) {
		for b.Loop() {
			bson.Marshal(cmd)
		}
	})
}
