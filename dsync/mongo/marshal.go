package mongo

import (
	"math"
	"strconv"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/x/bsonx/bsoncore"
)

// marshal encodes a command as [bson.Marshal] does, in a third of the time (BenchmarkMarshal). Unlike bson.Marshal, it
// does not look up an encoder for each of a command's hundred values. It leaves values of rare types to bson.Marshal.
// The keys must not contain a zero byte.
func marshal(cmd bson.D) (bson.Raw, error) {
	size := 1024
	for _, e := range cmd {
		if statements, ok := e.Value.([]bson.D); ok { // of a bulk
			size += 1024 * (len(statements) - 1)
		}
	}
	return appendDocument(make([]byte, 0, size), cmd)
}

// constant encodes a value that is the same in many commands, so that marshal need only copy it. It panics if that fails.
func constant(value any) any {
	t, b, err := appendValue(nil, value)
	if err != nil {
		panic(err)
	}
	return bson.RawValue{Type: bson.Type(t), Value: b}
}

func appendDocument(dst []byte, d bson.D) (_ []byte, err error) {
	start, dst := bsoncore.AppendDocumentStart(dst)
	for _, e := range d {
		if dst, err = appendElement(dst, e.Key, e.Value); err != nil {
			return nil, err
		}
	}
	return bsoncore.AppendDocumentEnd(dst, start)
}

// appendElement is not bsoncore.AppendHeader and the value, because AppendHeader looks for zero bytes in the key.
func appendElement(dst []byte, key string, value any) ([]byte, error) {
	start := len(dst)
	dst = append(append(append(dst, 0), key...), 0)
	t, dst, err := appendValue(dst, value)
	if err != nil {
		return nil, err
	}
	dst[start] = byte(t)
	return dst, nil
}

func appendValue(dst []byte, value any) (t bsoncore.Type, _ []byte, err error) {
	switch v := value.(type) {
	case nil:
		return bsoncore.TypeNull, dst, nil
	case bool:
		return bsoncore.TypeBoolean, bsoncore.AppendBoolean(dst, v), nil
	case string:
		return bsoncore.TypeString, bsoncore.AppendString(dst, v), nil
	case int:
		if math.MinInt32 <= v && v <= math.MaxInt32 {
			return bsoncore.TypeInt32, bsoncore.AppendInt32(dst, int32(v)), nil
		}
		return bsoncore.TypeInt64, bsoncore.AppendInt64(dst, int64(v)), nil
	case int64:
		return bsoncore.TypeInt64, bsoncore.AppendInt64(dst, v), nil
	case time.Time:
		return bsoncore.TypeDateTime, bsoncore.AppendDateTime(dst, v.UnixMilli()), nil
	case bson.Raw:
		return bsoncore.TypeEmbeddedDocument, append(dst, v...), nil
	case bson.RawValue:
		return bsoncore.Type(v.Type), append(dst, v.Value...), nil
	case bson.D:
		if v == nil {
			return bsoncore.TypeNull, dst, nil
		}
		dst, err = appendDocument(dst, v)
		return bsoncore.TypeEmbeddedDocument, dst, err
	case bson.A:
		return appendArray(dst, v)
	case []bson.D:
		return appendArray(dst, v)
	case []string:
		return appendArray(dst, v)
	case []bson.Raw:
		return appendArray(dst, v)
	}
	vt, b, err := bson.MarshalValue(value)
	return bsoncore.Type(vt), append(dst, b...), err
}

func appendArray[T any](dst []byte, values []T) (t bsoncore.Type, _ []byte, err error) {
	if values == nil {
		return bsoncore.TypeNull, dst, nil
	}
	start, dst := bsoncore.AppendArrayStart(dst)
	for i, v := range values {
		if dst, err = appendElement(dst, strconv.Itoa(i), v); err != nil {
			return 0, nil, err
		}
	}
	dst, err = bsoncore.AppendArrayEnd(dst, start)
	return bsoncore.TypeArray, dst, err
}
