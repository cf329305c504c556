package mongo_test

import (
	"context"
	"errors"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/leasehold-go/leasehold/dsync/driver"
	"go.mongodb.org/mongo-driver/v2/bson"
)

// swept answers like a server that has the given sweep record. The next slice has the given size and end.
func swept(now time.Time, record bson.D, size int, end string, deleted int, advanced bson.D) func(call) bson.D {
	return func(c call) bson.D {
		switch c.name {
		case "aggregate":
			batch := bson.A{}
			if size > 0 {
				batch = append(batch, bson.D{e("_id", nil), e("end", end), e("size", size), e("now", now)})
			}
			if record != nil {
				batch = append(batch, append(slices.Clone(record), e("_id", "x/sweep"), e("now", now)))
			}
			return ok(e("cursor", bson.D{e("id", int64(0)), e("ns", "app.leasehold"), e("firstBatch", batch)}))
		case "delete":
			return ok(e("n", deleted))
		}
		return ok(e("value", append(slices.Clone(advanced), e("now", now))))
	}
}

// Sweep reads the state, deletes within its slice and advances the state. If somebody else has swept in the meantime,
// Sweep only reads.
func TestSweepCommands(t *testing.T) {
	const slice, retention = 512, 7 * 24 * time.Hour
	now := time.UnixMilli(1_800_000_000_000).UTC()
	record := func(turn int64, after string, round int64) bson.D {
		return bson.D{e("turn", turn), e("by", "b"), e("at", now), e("after", after), e("seen", int64(slice)), e("round", round), e("last", int64(9_000))}
	}
	for _, tc := range []struct {
		name    string
		last    driver.SweepState
		record  bson.D
		size    int
		end     string
		deletes []bson.D // the conditions on _id of the deletes
		becomes bson.D   // the values that Sweep writes for after, seen, deleted, round, last and turn; nil: it writes nothing
	}{
		{
			"never swept, and empty", driver.SweepState{}, nil, 0, "", nil,
			bson.D{e("after", ""), e("seen", int64(0)), e("deleted", int64(0)), e("round", int64(0)), e("last", int64(0)), e("turn", int64(1))},
		},
		{
			"the first slice", driver.SweepState{}, nil, slice, "k/m",
			[]bson.D{{e("$gte", "k/"), e("$lte", "k/m")}},
			bson.D{e("after", "k/m"), e("seen", int64(slice)), e("deleted", int64(5)), e("round", int64(slice)), e("last", int64(0)), e("turn", int64(1))},
		},
		{
			"only made", driver.SweepState{}, bson.D{e("at", now)}, 3, "k/m",
			[]bson.D{{e("$gte", "k/"), e("$lte", "k/m")}},
			bson.D{e("after", ""), e("seen", int64(3)), e("deleted", int64(5)), e("round", int64(0)), e("last", int64(3)), e("turn", int64(1))},
		},
		{
			"a slice of keys", driver.SweepState{Turn: 7, After: "k/m"}, record(7, "k/m", 2_000), slice, "k/z",
			[]bson.D{{e("$gt", "k/m"), e("$lte", "k/z")}},
			bson.D{e("after", "k/z"), e("seen", int64(slice)), e("deleted", int64(5)), e("round", int64(2_000+slice)), e("last", int64(9_000)), e("turn", int64(8))},
		},
		{
			"the last slice, of all kinds", driver.SweepState{Turn: 7, After: "k/z"}, record(7, "k/z", 2_000), 100, "s/x",
			[]bson.D{{e("$gt", "k/z"), e("$lt", "k0")}, {e("$gte", "p/"), e("$lt", "p0")}, {e("$gte", "s/"), e("$lte", "s/x")}},
			bson.D{e("after", ""), e("seen", int64(100)), e("deleted", int64(5)), e("round", int64(0)), e("last", int64(2_100)), e("turn", int64(8))},
		},
		{
			"a slice of sessions", driver.SweepState{Turn: 7, After: "s/b"}, record(7, "s/b", 2_000), slice, "s/x",
			[]bson.D{{e("$gt", "s/b"), e("$lte", "s/x")}},
			bson.D{e("after", "s/x"), e("seen", int64(slice)), e("deleted", int64(5)), e("round", int64(2_000+slice)), e("last", int64(9_000)), e("turn", int64(8))},
		},
		{"records of another program", driver.SweepState{Turn: 7, After: "s/x"}, record(7, "s/x", 2_000), 4, "t", []bson.D{{e("$gt", "s/x"), e("$lt", "s0")}},
			bson.D{e("after", ""), e("seen", int64(4)), e("deleted", int64(5)), e("round", int64(0)), e("last", int64(2_004)), e("turn", int64(8))},
		},
		{"another's turn", driver.SweepState{Turn: 6, After: "k/m"}, record(7, "k/z", 2_000), slice, "k/z", nil, nil},
		{"an earlier turn at the same place", driver.SweepState{Turn: 6, After: "k/m"}, record(7, "k/m", 2_000), slice, "k/z", nil, nil},
		{"a record that is gone", driver.SweepState{Turn: 7, After: "k/m"}, nil, slice, "k/z", nil, nil},
	} {
		inBubble(t, tc.name, func(t *testing.T) {
			f := newFake(t)
			answered := append(record(8, "k/z", 1), e("deleted", 3))
			s := f.store(nil, swept(now, tc.record, tc.size, tc.end, 5, answered))
			st, err := s.Sweep(t.Context(), "$me", tc.last, retention)
			noErr(t, err)
			want := driver.SweepState{Turn: 8, By: "b", At: now, Now: now, After: "k/z", Seen: slice, Deleted: 3, Round: 1, LastRound: 9_000}
			if tc.becomes == nil {
				want = driver.SweepState{Now: now}
				if tc.record != nil {
					want = driver.SweepState{Turn: 7, By: "b", At: now, Now: now, After: tc.record[3].Value.(string), Seen: slice, Round: 2_000, LastRound: 9_000}
				}
			}
			if st.At, st.Now = st.At.UTC(), st.Now.UTC(); st != want {
				t.Errorf("got %+v, want %+v", st, want)
			}
			calls := f.took()
			if first := calls[0].cmd.Lookup("pipeline", "0", "$match", "_id", "$gt").StringValue(); first != tc.last.After {
				t.Errorf("the slice that was read begins after %q, want %q", first, tc.last.After)
			}
			calls = calls[1:]
			if len(tc.deletes) > 0 {
				checkDeletes(t, calls[0], tc.deletes, now.Add(-retention))
				calls = calls[1:]
			}
			if tc.becomes != nil {
				checkAdvance(t, calls[0], tc.last.Turn, tc.becomes)
				calls = calls[1:]
			}
			if len(calls) > 0 {
				t.Errorf("after that, Sweep sent %v, want nothing", calls)
			}
		})
	}
}

// checkDeletes checks that the command deletes, from these ranges, the records that have been idle since the given
// time.
func checkDeletes(t *testing.T, c call, ranges []bson.D, then time.Time) {
	t.Helper()
	var cmd struct {
		Deletes []struct {
			Q bson.Raw `bson:"q"`
		} `bson:"deletes"`
		WriteConcern struct {
			W string `bson:"w"`
		} `bson:"writeConcern"`
	}
	if err := bson.Unmarshal(c.cmd, &cmd); err != nil || c.name != "delete" || cmd.WriteConcern.W != "majority" {
		t.Fatalf("%v: it sent %v, want a delete that a majority confirms", err, c)
	}
	if len(cmd.Deletes) != len(ranges) {
		t.Fatalf("%d ranges in %v, want %d", len(cmd.Deletes), c.cmd, len(ranges))
	}
	for i, d := range cmd.Deletes {
		got, want := d.Q.Lookup("_id").Document(), mustMarshal(t, ranges[i])
		if got.String() != want.String() {
			t.Errorf("it deletes in %v, want %v", got, want)
		}
		var times []time.Time
		switch kind := got.Index(1).Value().StringValue(); kind[0] {
		case 'k':
			if token := d.Q.Lookup("t", "$not", "$gt").Int64(); token != then.UnixMilli()*1024 {
				t.Errorf("it deletes keys up to token %d, want %d", token, then.UnixMilli()*1024)
			}
			times = append(times, d.Q.Lookup("at", "$not", "$gt").Time())
		case 'p':
			times = append(times, d.Q.Lookup("at", "$lte").Time())
		case 's':
			times = append(times, d.Q.Lookup("$expr", "$lte", "1").Time())
		}
		for _, at := range times {
			if !at.Equal(then) {
				t.Errorf("it deletes records that have been idle since %v, want %v: %v", at.UTC(), then, d.Q)
			}
		}
	}
}

// checkAdvance checks that the command writes the given values into the record, but only if the record is still at
// the given turn.
func checkAdvance(t *testing.T, c call, turn int64, becomes bson.D) {
	t.Helper()
	if c.name != "findAndModify" || c.cmd.Lookup("query", "_id").StringValue() != "x/sweep" {
		t.Fatalf("it sent %v, want a findAndModify of x/sweep", c.cmd)
	}
	set := c.cmd.Lookup("update", "0", "$set").Document()
	want := mustMarshal(t, becomes)
	fields, err := set.Elements()
	noErr(t, err)
	for _, field := range fields {
		cond := field.Value().Document().Lookup("$cond").Array()
		if at := bson.Raw(cond).Lookup("0", "$eq", "1").Int64(); at != turn {
			t.Errorf("%s is changed if the turn is %d, want %d", field.Key(), at, turn)
		}
		switch v := bson.Raw(cond).Lookup("1"); field.Key() {
		case "by":
			if v.Document().Lookup("$literal").StringValue() != "$me" {
				t.Errorf("swept by %v, want the session's id as a literal", v)
			}
		case "at":
			if v.StringValue() != "$$NOW" {
				t.Errorf("swept at %v, want the server's time", v)
			}
		case "after":
			if got := v.Document().Lookup("$literal").StringValue(); got != want.Lookup("after").StringValue() {
				t.Errorf("the next slice begins after %q, want %v", got, want.Lookup("after"))
			}
		default:
			if !v.Equal(want.Lookup(field.Key())) {
				t.Errorf("%s becomes %v, want %v", field.Key(), v, want.Lookup(field.Key()))
			}
		}
	}
	if len(fields) != 8 {
		t.Errorf("it changes %d fields, want 8: %v", len(fields), set)
	}
}

func mustMarshal(t *testing.T, d bson.D) bson.Raw {
	t.Helper()
	raw, err := bson.Marshal(d)
	noErr(t, err)
	return raw
}

// B40: the server may refuse the command that finds a claim, or the claim's release. Discard still removes the other
// claims, and returns an error.
func TestDiscardGoesOnBehindARefusedClaim(t *testing.T) {
	for _, refuses := range []string{"update", "findAndModify"} {
		inBubble(t, refuses, func(t *testing.T) {
			keys := []string{"a", "b", "c"}
			var released []string
			s := newFake(t).store(nil, func(c call) bson.D {
				switch c.name {
				case "update":
					reply := ok(e("n", 2), e("nModified", 0))
					if refuses == "update" {
						reply = append(reply, e("writeErrors", bson.A{bson.D{e("index", 0), e("code", 10334), e("errmsg", "as the test says")}}))
					}
					return reply
				case "aggregate":
					var found bson.A
					for _, key := range keys {
						found = append(found, bson.D{e("_id", "k/"+key), e("h", bson.A{bson.D{e("a", "s."+key), e("s", "s"), e("w", 1), e("t", int64(1024))}})})
					}
					return ok(e("cursor", bson.D{e("id", int64(0)), e("ns", "app.leasehold"), e("firstBatch", found)}))
				case "findAndModify":
					id := c.cmd.Lookup("query", "_id").StringValue()
					if id == "k/a" && refuses == "findAndModify" {
						return refusal(13, "Unauthorized")
					}
					released = append(released, id)
					return ok(e("value", bson.D{e("now", time.Now()), e("h", bson.A{})}))
				}
				return ok()
			})
			var claims []driver.Claim
			for _, key := range keys {
				claims = append(claims, driver.Claim{Key: key, ID: "s." + key, Session: "s"})
			}
			_, err := s.Discard(t.Context(), claims)
			if err == nil || refuses == "findAndModify" && !errors.Is(err, driver.ErrRefused) {
				t.Errorf("Discard: %v, want the error of the claim that was refused", err)
			}
			for _, id := range []string{"k/b", "k/c"} {
				if !slices.Contains(released, id) {
					t.Errorf("released %q, want %s, too", released, id)
				}
			}
		})
	}
}

// B40: if its ctx ends before it has removed all claims, Discard returns an error.
func TestDiscardOutOfTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx := outOfTime{Context: context.Background()}
		released := 0
		s := newFake(t).store(nil, func(c call) bson.D {
			switch c.name {
			case "update":
				return ok(e("n", 2), e("nModified", 0))
			case "aggregate":
				var found bson.A
				for _, key := range []string{"a", "b"} {
					found = append(found, bson.D{e("_id", "k/"+key), e("h", bson.A{bson.D{e("a", "s."+key), e("s", "s"), e("w", 1), e("t", int64(1024))}})})
				}
				return ok(e("cursor", bson.D{e("id", int64(0)), e("ns", "app.leasehold"), e("firstBatch", found)}))
			case "findAndModify":
				released++
				ctx.over.Store(true)
				return ok(e("value", bson.D{e("now", time.Now()), e("h", bson.A{})}))
			}
			return ok()
		})
		claims := []driver.Claim{{Key: "a", ID: "s.a", Session: "s"}, {Key: "b", ID: "s.b", Session: "s"}}
		if _, err := s.Discard(&ctx, claims); !errors.Is(err, context.DeadlineExceeded) || released != 1 {
			t.Errorf("Discard: %v, after %d of 2 claims; want context.DeadlineExceeded after 1", err, released)
		}
	})
}

// outOfTime is a context that can end without closing its Done channel, as if it ended just after a reply.
type outOfTime struct {
	context.Context
	over atomic.Bool
}

func (c *outOfTime) Err() error {
	if c.over.Load() {
		return context.DeadlineExceeded
	}
	return nil
}
