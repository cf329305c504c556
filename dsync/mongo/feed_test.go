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
		return batch("firstBatch", []bson.Raw{})
	case "getMore":
		if len(f.events) == 0 {
			time.Sleep(time.Duration(c.cmd.Lookup("maxTimeMS").AsInt64()) * time.Millisecond)
			return batch("nextBatch", []bson.Raw{})
		}
		var wanted []bson.Raw
		for _, ev := range f.events {
			if f.passes(ev) {
				wanted = append(wanted, ev)
			}
		}
		f.events, f.sent = nil, len(wanted)
		return batch("nextBatch", wanted)
	}
	return refusal(59, "CommandNotFound")
}

// passes evaluates the stream's $match as far as it is used: an $or of regular
// expressions and $in.
func (f *feed) passes(ev bson.Raw) bool {
	f.t.Helper()
	conditions, err := f.match.Lookup("$or").Array().Values()
	if err != nil || len(conditions) == 0 {
		f.t.Fatalf("the filter is no $or: %v", f.match)
	}
	return slices.ContainsFunc(conditions, func(v bson.RawValue) bool {
		el := v.Document().Index(0)
		got, isText := ev.Lookup(strings.Split(el.Key(), ".")...).StringValueOK()
		if pattern, _, isRegex := el.Value().RegexOK(); isRegex {
			return isText && regexp.MustCompile(pattern).MatchString(got)
		}
		in, err := el.Value().Document().Lookup("$in").Array().Values()
		if err != nil {
			f.t.Fatal(err)
		}
		return slices.ContainsFunc(in, func(v bson.RawValue) bool { return v.StringValue() == got })
	})
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
