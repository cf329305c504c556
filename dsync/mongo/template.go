package mongo

import (
	"encoding/binary"
	"fmt"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
)

// A template is a document that is encoded once, with holes for what differs between
// its uses. To encode a short command each time takes some 4 µs in a loop, but ten
// times that in a program that does little else, since the encoder is not in the
// processor's caches then: as long as the server takes for it.
type template struct {
	raw   []byte
	holes []place // in the order of raw
}

// A place is where a hole is.
type place struct {
	hole
	at, size int // of its marker
	within   []enclosing
}

// An enclosing is a document or an array around a hole: where it begins, with its
// length, and how many holes are before it.
type enclosing struct{ at, after int }

// A hole stands in a template for the nth argument, a value of that type: a string,
// an int64, or a time.Time for a date.
type hole struct {
	kind bson.Type
	n    int
}

const (
	textMarker   = "\x00hole\x00"
	numberMarker = 0x686f6c65 << 32
)

// MarshalBSONValue implements [bson.ValueMarshaler]: a marker, which fits nothing else.
func (h hole) MarshalBSONValue() (byte, []byte, error) {
	if h.kind != bson.TypeString {
		return byte(h.kind), binary.LittleEndian.AppendUint64(nil, numberMarker|uint64(h.n)), nil
	}
	kind, data, err := bson.MarshalValue(textMarker + string(rune(h.n)))
	return byte(kind), data, err
}

// marked returns the hole that v is the marker of.
func marked(v bson.RawValue) (h hole, ok bool) {
	switch v.Type {
	case bson.TypeString:
		s := v.StringValue()
		if len(s) == len(textMarker)+1 && s[:len(textMarker)] == textMarker {
			return hole{v.Type, int(s[len(textMarker)])}, true
		}
	case bson.TypeInt64, bson.TypeDateTime:
		if n := binary.LittleEndian.Uint64(v.Value); n&^0xff == numberMarker {
			return hole{v.Type, int(n & 0xff)}, true
		}
	}
	return hole{}, false
}

// newTemplate panics if the document, which is this package's own, can't be encoded.
func newTemplate(doc bson.D) *template {
	raw, err := bson.Marshal(doc)
	if err != nil {
		panic(fmt.Sprintf("mongo: encode %v: %v", doc, err))
	}
	t := &template{raw: raw}
	t.find(raw, 0, nil)
	return t
}

// find notes the holes of the document at that offset.
func (t *template) find(doc bson.Raw, at int, within []enclosing) {
	elements, _ := doc.Elements() // what was encoded a moment ago can be read
	within = append(within[:len(within):len(within)], enclosing{at, len(t.holes)})
	at += 4 // the length
	for _, element := range elements {
		v := element.Value()
		at += len(element)
		if h, ok := marked(v); ok {
			t.holes = append(t.holes, place{h, at - len(v.Value), len(v.Value), within})
		} else if v.Type == bson.TypeEmbeddedDocument || v.Type == bson.TypeArray {
			t.find(v.Value, at-len(v.Value), within)
		}
	}
}

// fill returns the document with the arguments in its holes.
func (t *template) fill(args ...any) bson.Raw {
	doc := make([]byte, 0, len(t.raw)+128)
	grown := make([]int, 1, 16) // by how much the document is longer after so many holes
	end := 0
	for i, p := range t.holes {
		doc = append(doc, t.raw[end:p.at]...)
		end = p.at + p.size
		size := len(doc)
		switch v := args[p.n].(type) {
		case string:
			doc = binary.LittleEndian.AppendUint32(doc, uint32(len(v)+1))
			doc = append(append(doc, v...), 0)
		case int64:
			doc = binary.LittleEndian.AppendUint64(doc, uint64(v))
		case time.Time:
			doc = binary.LittleEndian.AppendUint64(doc, uint64(v.UnixMilli()))
		}
		more := len(doc) - size - p.size
		grown = append(grown, grown[i]+more)
		for _, around := range p.within {
			length := doc[around.at+grown[around.after]:]
			binary.LittleEndian.PutUint32(length, uint32(int(binary.LittleEndian.Uint32(length))+more))
		}
	}
	return append(doc, t.raw[end:]...)
}
