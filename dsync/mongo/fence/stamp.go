package fence

import (
	"errors"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"

	"go.mongodb.org/mongo-driver/v2/bson"
)

// Decode callers' documents no further than needed. Only the driver can encode them again, because this package
// cannot read the registry and the options of the caller's client.

func e(key string, value any) bson.E { return bson.E{Key: key, Value: value} }

// inside returns doc in a form that can be embedded in another document; a []byte would be embedded as binary data.
func inside(doc any) any {
	if raw, ok := doc.([]byte); ok {
		return bson.Raw(raw)
	}
	return doc
}

// stamp returns the last stage of a pipeline update. It sets the fence's field to the token, whatever earlier stages
// did to the field. The filter has checked that the previous token was not greater.
func (c *Collection) stamp(token int64) bson.D { return bson.D{e("$set", bson.D{e(c.field, token)})} }

// stampUpdate returns the update with the token added.
func (c *Collection) stampUpdate(update any, token int64) (any, error) {
	if isNil(update) {
		return nil, errors.New("fence: the update is nil")
	}
	if operators, ok := shallow(update); ok {
		return c.stampOperators(operators, token)
	}
	v := reflect.ValueOf(update)
	if v.Kind() != reflect.Slice && v.Kind() != reflect.Array {
		return nil, fmt.Errorf("fence: the update is a %T; pass a bson.D, a bson.Raw, a map or a pipeline", update)
	}
	var pipeline bson.A
	for i := range v.Len() {
		stage := v.Index(i).Interface()
		if operators, ok := shallow(stage); ok {
			for _, el := range operators {
				if err := c.checkUntouched(el); err != nil {
					return nil, err
				}
			}
		}
		pipeline = append(pipeline, stage)
	}
	return append(pipeline, c.stamp(token)), nil
}

func (c *Collection) stampOperators(operators bson.D, token int64) (any, error) {
	mine := e(c.field, token)
	stamped := make(bson.D, 0, len(operators)+1)
	merged := false
	for _, el := range operators {
		if err := c.checkUntouched(el); err != nil {
			return nil, err
		}
		if el.Key == "$max" {
			fields, ok := shallow(el.Value)
			if !ok {
				return nil, fmt.Errorf("fence: the update's $max is a %T; pass a bson.D, a bson.Raw or a map", el.Value)
			}
			el.Value, merged = append(slices.Clone(fields), mine), true
		}
		stamped = append(stamped, el)
	}
	if !merged {
		// Add $max last, so that the driver still notices if the caller's first key is not an operator.
		stamped = append(stamped, e("$max", bson.D{mine}))
	}
	return stamped, nil
}

// checkUntouched returns an error if an operator or a stage names the fence's field. The check serves only to make
// mistakes easier to understand. Without this check, the server would report two operators on the same field as a
// conflict. In a pipeline, the fence's own last stage would win.
func (c *Collection) checkUntouched(operator bson.E) error {
	touches := func(path string) bool { return path == c.field || strings.HasPrefix(path, c.field+".") }
	names := func(v any) (list []string) {
		fields, ok := shallow(v)
		if !ok { // it may be a struct, or the names in a $unset stage
			if raw, err := bson.Marshal(v); err == nil {
				fields, _ = shallow(bson.Raw(raw))
			}
		}
		for _, field := range fields {
			list = append(list, field.Key)
			if to, isText := str(field.Value); isText && operator.Key == "$rename" {
				list = append(list, to)
			}
		}
		return list
	}
	var list []string
	switch operator.Key {
	case "$replaceWith", "$replaceRoot":
		return nil // not checked: the new document may come from the old one, and the last stage sets the field anyway
	case "$unset":
		list = append(names(operator.Value), texts(operator.Value)...)
	default:
		list = names(operator.Value)
	}
	if slices.ContainsFunc(list, touches) {
		return fmt.Errorf("fence: the update's %s names the field %q, which belongs to the fence; leave it out, or choose another with Options.Field",
			operator.Key, c.field)
	}
	return nil
}

// stampDocument returns a document to insert, with the token added.
func (c *Collection) stampDocument(document any, token int64) (bson.D, error) {
	if isNil(document) {
		return nil, errors.New("fence: the document is nil")
	}
	fields, ok := shallow(document)
	if !ok {
		return nil, fmt.Errorf("fence: the document is a %T; pass a bson.D, a bson.Raw or a map; bson.Marshal makes a bson.Raw", document)
	}
	for _, field := range fields {
		if field.Key == c.field {
			return nil, fmt.Errorf("fence: the document has a field %q, which belongs to the fence; leave it out, or choose another with Options.Field", c.field)
		}
	}
	return append(slices.Clone(fields), e(c.field, token)), nil
}

// checkReplacement returns an error if the replacement looks like an update, because the server would store the
// update itself as the document.
func checkReplacement(replacement any) error {
	if isNil(replacement) {
		return errors.New("fence: the replacement is nil")
	}
	fields, ok := shallow(replacement)
	if !ok {
		if raw, err := bson.Marshal(replacement); err == nil {
			fields, _ = shallow(bson.Raw(raw))
		}
	}
	for _, field := range fields {
		if strings.HasPrefix(field.Key, "$") {
			return fmt.Errorf("fence: the replacement has a field %q; for an update there is UpdateOne", field.Key)
		}
	}
	return nil
}

// shallow returns a document's fields, with their values unchanged. ok is false if the document's type cannot be
// decoded without a codec.
func shallow(doc any) (fields bson.D, ok bool) {
	switch doc := doc.(type) {
	case bson.D:
		return doc, true
	case bson.Raw:
		return shallowRaw(doc)
	case []byte:
		return shallowRaw(doc)
	case bson.RawValue:
		raw, isDoc := doc.DocumentOK()
		if !isDoc {
			return nil, false
		}
		return shallowRaw(raw)
	case bson.Marshaler, bson.ValueMarshaler:
		return nil, false
	}
	v := reflect.ValueOf(doc)
	if v.Kind() != reflect.Map || v.Type().Key().Kind() != reflect.String {
		return nil, false
	}
	values := make(map[string]any, v.Len())
	for _, key := range v.MapKeys() {
		values[key.String()] = v.MapIndex(key).Interface()
	}
	for _, key := range slices.Sorted(maps.Keys(values)) {
		fields = append(fields, e(key, values[key]))
	}
	return fields, true
}

func shallowRaw(raw bson.Raw) (fields bson.D, ok bool) {
	elements, err := raw.Elements()
	if err != nil {
		return nil, false
	}
	for _, el := range elements {
		fields = append(fields, e(el.Key(), el.Value()))
	}
	return fields, true
}

// texts returns the field names in a $unset stage, which has a single name or a list of names.
func texts(v any) (list []string) {
	if s, isText := str(v); isText {
		return []string{s}
	}
	if raw, isRaw := v.(bson.RawValue); isRaw {
		array, _ := raw.ArrayOK()
		values, _ := array.Values()
		for _, v := range values {
			list = append(list, v.StringValue())
		}
		return list
	}
	if r := reflect.ValueOf(v); r.Kind() == reflect.Slice {
		for i := range r.Len() {
			if s, isText := str(r.Index(i).Interface()); isText {
				list = append(list, s)
			}
		}
	}
	return list
}

// str returns v as a string if it is one, encoded or not.
func str(v any) (s string, isText bool) {
	switch v := v.(type) {
	case string:
		return v, true
	case bson.RawValue:
		return v.StringValueOK()
	}
	return "", false
}

// isNil reports whether v is nil, or a nil pointer, map or slice, which would be encoded as null.
func isNil(v any) bool {
	if v == nil {
		return true
	}
	r := reflect.ValueOf(v)
	return (r.Kind() == reflect.Pointer || r.Kind() == reflect.Map || r.Kind() == reflect.Slice) && r.IsNil()
}
