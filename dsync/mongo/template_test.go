package mongo

import (
	"bytes"
	"strings"
	"testing"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
)

// A filled template is what the encoder makes of the same document, whatever the
// lengths of the texts in it.
func TestTemplate(t *testing.T) {
	document := func(text, other, number, date any) bson.D {
		return bson.D{
			e("update", "c"),
			e("", text),
			e("list", bson.A{1, other, bson.A{text, number}, bson.D{e("deep", bson.D{e("x", date), e("y", text)}), e("n", number)}}),
			e("last", bson.D{e("a", other), e("none", nil)}),
			e("binary", bson.Binary{Data: []byte(textMarker)}),
		}
	}
	tmpl := newTemplate(document(hole{bson.TypeString, 0}, hole{bson.TypeString, 3}, hole{bson.TypeInt64, 1}, hole{bson.TypeDateTime, 2}))
	texts := []string{"", "x", "k/invoices", "$$NOW", "\x00", textMarker, strings.Repeat("ä", 5000)}
	date := time.UnixMilli(1_800_000_005_123)
	for _, text := range texts {
		for _, other := range texts {
			for _, number := range []int64{0, -1, 1 << 62} {
				want, err := bson.Marshal(document(text, other, number, date))
				if err != nil {
					t.Fatal(err)
				}
				if got := tmpl.fill(text, number, date, other); !bytes.Equal(got, want) {
					t.Fatalf("filled with %.20q, %.20q and %d: got %v, want %v", text, other, number, got, bson.Raw(want))
				}
			}
		}
	}
}

// Both have all arguments that they are filled with.
func TestShortCommandsHaveNoHoles(t *testing.T) {
	sc := newShortCommands("c")
	now := time.UnixMilli(1)
	acquire := sc.acquire.fill("k/k", "s.1", int64(2048), "s.1:2048,", int64(5000), "s", "mutex", int64(1024), now, now)
	release := sc.release.fill("k/k", "s.1", int64(2048), ":2048,", int64(5000), int64(1024))
	resign := sc.resign.fill("k/k", "s.1", int64(2048), ":2048", int64(5000), int64(1024))
	for _, cmd := range []bson.Raw{acquire, release, resign} {
		if err := cmd.Validate(); err != nil || bytes.Contains(cmd, []byte(textMarker)) || bytes.Contains(cmd, []byte("eloh")) {
			t.Errorf("%v: %v", cmd, err)
		}
	}
}
