package mongo_test

import (
	"context"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/leasehold-go/leasehold/dsync"
	"go.mongodb.org/mongo-driver/v2/bson"
)

// A feed answers a change stream with events, filtered as the stream asks, and
// then with nothing.
type feed struct {
	t      *testing.T
	events []bson.Raw
	match  bson.Raw
	fields bson.Raw
	sent   int
}

func (f *feed) answer(c call) bson.D {
	batch := func(name string, events []bson.Raw) bson.D {
		return ok(e("cursor", bson.D{e("id", int64(1)), e("ns", "app.leasehold"), e(name, events),
			e("postBatchResumeToken", bson.D{e("_data", "82")})}))
	}
	switch c.name {
	case "aggregate":
		if _, err := c.cmd.LookupErr("pipeline", "0", "$changeStream"); err != nil {
			f.t.Errorf("not a change stream: %v", c.cmd)
		}
		f.match = c.cmd.Lookup("pipeline", "1", "$match").Document()
		f.fields = c.cmd.Lookup("pipeline", "2", "$project").Document()
		return batch("firstBatch", []bson.Raw{})
	case "getMore":
		if len(f.events) == 0 {
			time.Sleep(time.Duration(c.cmd.Lookup("maxTimeMS").AsInt64()) * time.Millisecond)
			return batch("nextBatch", []bson.Raw{})
		}
		var wanted []bson.Raw
		for _, ev := range f.events {
			if f.passes(ev) {
				wanted = append(wanted, f.projected(ev, ""))
			}
		}
		f.events, f.sent = nil, len(wanted)
		return batch("nextBatch", wanted)
	}
	return refusal(59, "CommandNotFound")
}

// passes evaluates the stream's $match as far as it is used: an $or of documents
// of regular expressions, $in, $exists and equality.
func (f *feed) passes(ev bson.Raw) bool {
	f.t.Helper()
	conditions, err := f.match.Lookup("$or").Array().Values()
	if err != nil || len(conditions) == 0 {
		f.t.Fatalf("the filter is no $or: %v", f.match)
	}
	return slices.ContainsFunc(conditions, func(v bson.RawValue) bool {
		elements, err := v.Document().Elements()
		if err != nil || len(elements) == 0 {
			f.t.Fatalf("no condition: %v", v)
		}
		return !slices.ContainsFunc(elements, func(el bson.RawElement) bool { return !f.meets(ev, el) })
	})
}

func (f *feed) meets(ev bson.Raw, el bson.RawElement) bool {
	f.t.Helper()
	v, err := ev.LookupErr(strings.Split(el.Key(), ".")...)
	got, isText := v.StringValueOK()
	if pattern, _, isRegex := el.Value().RegexOK(); isRegex {
		return isText && regexp.MustCompile(pattern).MatchString(got)
	}
	if want, isText := el.Value().StringValueOK(); isText {
		return got == want
	}
	cond := el.Value().Document().Index(0)
	switch cond.Key() {
	case "$exists":
		return cond.Value().Boolean() == (err == nil)
	case "$in":
		in, err := cond.Value().Array().Values()
		if err != nil {
			f.t.Fatal(err)
		}
		return slices.ContainsFunc(in, func(v bson.RawValue) bool { return v.StringValue() == got })
	}
	f.t.Fatalf("a condition that the feed does not know: %v", el)
	return false
}

// projected is what the stream's $project leaves of a document at the path.
func (f *feed) projected(doc bson.Raw, path string) bson.Raw {
	f.t.Helper()
	elements, err := doc.Elements()
	if err != nil {
		f.t.Fatal(err)
	}
	rest := bson.D{}
	for _, el := range elements {
		at := path + el.Key()
		_, err := f.fields.LookupErr(at)
		switch {
		case err == nil || at == "_id":
			rest = append(rest, e(el.Key(), el.Value()))
		case el.Value().Type == bson.TypeEmbeddedDocument:
			rest = append(rest, e(el.Key(), f.projected(el.Value().Document(), at+".")))
		}
	}
	raw, err := bson.Marshal(rest)
	if err != nil {
		f.t.Fatal(err)
	}
	return raw
}

// watch runs a watch over the events until it ends, or for a minute.
func (f *feed) watch(session string, keys ...string) ([]dsync.Event, error) {
	s := newFake(f.t).store(nil, f.answer)
	ctx, cancel := context.WithTimeout(f.t.Context(), time.Minute)
	defer cancel()
	var got []dsync.Event
	err := s.Watch(ctx, session, keys, func(ev dsync.Event) { got = append(got, ev) })
	return got, err
}
