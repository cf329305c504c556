package mongo_test

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/leasehold-go/leasehold/dsync/driver"
	"github.com/leasehold-go/leasehold/internal/storecmd"
	"go.mongodb.org/mongo-driver/v2/bson"
)

// What Expire returns depends only on the record after the command. The host's clock, which is a year behind here,
// does not matter.
func TestExpireAnswers(t *testing.T) {
	now := func() time.Time { return time.Now().Add(365 * 24 * time.Hour) }
	cases := []struct {
		name   string
		record func() bson.D
		left   time.Duration
	}{
		{"alive", func() bson.D { return bson.D{e("at", now().Add(-time.Second)), e("ttl", 5000), e("now", now())} }, 4 * time.Second},
		{"the clock went back", func() bson.D {
			return bson.D{e("at", now().Add(time.Hour)), e("ttl", 5000), e("now", now())}
		}, 5 * time.Second},
		{"dead", func() bson.D {
			return bson.D{e("at", now()), e("ttl", 5000), e("now", now()), e("dead", true)}
		}, 0},
	}
	for _, tc := range cases {
		inBubble(t, tc.name, func(t *testing.T) {
			s := newFake(t).store(nil, func(call) bson.D { return ok(e("value", tc.record())) })
			if left, err := s.Expire(t.Context(), "s", false); left != tc.left || err != nil {
				t.Errorf("Expire: got %v, %v, want %v, nil", left, err, tc.left)
			}
		})
	}
}

// B31, promise 1: Register succeeds only if there is no record with this ID, or if the record has neither a TTL nor
// an expiry, like a record that create has made. If there is another record, MongoDB refuses the upsert as a
// duplicate key, and on other servers the update matches nothing.
func TestRegisterRefusesKnownIDs(t *testing.T) {
	made := func(call) bson.D { return ok(e("value", bson.D{e("at", time.Now())}), e("n", 1)) }
	none := func(call) bson.D { return ok(e("value", nil)) }
	duplicate := func(call) bson.D { return refusal(11000, "DuplicateKey") }
	written := func(call) bson.D { return ok(e("n", 1)) }
	exists := func(call) bson.D {
		return ok(e("n", 0), e("writeErrors", bson.A{bson.D{e("index", 0), e("code", 11000), e("errmsg", "E11000 duplicate key")}}))
	}
	cases := []struct {
		name     string
		portable bool
		answers  []func(call) bson.D
		want     error
	}{
		{"unknown", false, []func(call) bson.D{made}, nil},
		{"known", false, []func(call) bson.D{duplicate}, driver.ErrSessionExists},
		{"unknown, portable", true, []func(call) bson.D{none, written, made}, nil},
		{"created for an Expire that has not come yet, portable", true, []func(call) bson.D{none, exists, made}, nil},
		{"known, portable", true, []func(call) bson.D{none, exists, none}, driver.ErrSessionExists},
	}
	for _, tc := range cases {
		inBubble(t, tc.name, func(t *testing.T) {
			f := newFake(t)
			if tc.portable {
				f.hello = without("topologyVersion")(f.hello)
			}
			s := f.store(nil, func(c call) bson.D {
				n := len(f.took())
				if n > len(tc.answers) {
					t.Fatalf("command %d was sent: %v", n, c.cmd)
				}
				return tc.answers[n-1](c)
			})
			if _, err := s.Register(t.Context(), driver.Member{ID: "s", TTL: attempt}); !errors.Is(err, tc.want) {
				t.Errorf("got %v, want %v", err, tc.want)
			}
			if n := len(f.took()); n != len(tc.answers) {
				t.Errorf("%d commands were sent, want %d", n, len(tc.answers))
			}
			for _, c := range f.took() {
				if c.name == "insert" {
					if doc := c.cmd.Lookup("documents", "0").Document(); len(must(doc.Elements())) != 2 {
						t.Errorf("created %v, want only an _id and a time", doc)
					}
					continue
				}
				query := c.cmd.Lookup("query").Document()
				id, _ := query.Lookup("_id").StringValueOK()
				hasTTL, isTTL := query.Lookup("ttl", "$exists").BooleanOK()
				dead, isDead := query.Lookup("dead", "$ne").BooleanOK()
				if id != "s/s" || !isTTL || hasTTL || !isDead || !dead {
					t.Errorf("the query is %v, want it to match only a record without ttl that has not expired", query)
				}
			}
		})
	}
}

func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}

// Heartbeat, Revoke and Observe write only to records of sessions that have not expired, so none of them can undo an
// expiry. Nor does any of them succeed for a record that was only made for a Register: others expire such a session.
func TestHeartbeatIsForTheLiving(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake(t)
		s := f.store(nil, func(call) bson.D { return ok(e("n", 1), e("value", bson.D{e("at", time.Now())})) })
		if _, err := s.Heartbeat(t.Context(), "s", nil); err != nil {
			t.Fatal(err)
		}
		if _, err := s.Revoke(t.Context(), "s", driver.Revocation{Key: "k", Claim: "s.1"}); err != nil {
			t.Fatal(err)
		}
		noErr(t, s.Observe(t.Context(), "s", 1, []string{"k"}))
		for i, query := range [][]string{{"query"}, {"query"}, {"updates", "0", "q"}} {
			c := f.took()[i]
			if dead, is := c.cmd.Lookup(append(query, "dead", "$ne")...).BooleanOK(); !is || !dead {
				t.Errorf("%s is not only for sessions that have not expired: %v", c.name, c.cmd)
			}
			if has, is := c.cmd.Lookup(append(query, "ttl", "$exists")...).BooleanOK(); !is || !has {
				t.Errorf("%s is not only for sessions that were registered: %v", c.name, c.cmd)
			}
			if up, _ := c.cmd.Lookup("upsert").BooleanOK(); up {
				t.Errorf("%s would create a session: %v", c.name, c.cmd)
			}
		}
	})
}

// B25: durations are rounded up to whole milliseconds. Rounded down, they would end too early, or become 0, which
// means without end.
func TestDurationsAreRoundedUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const d = time.Millisecond + time.Nanosecond
		f := newFake(t)
		s := f.store(nil, func(call) bson.D { return ok(e("n", 1), e("value", bson.D{e("now", time.Now())})) })
		c := driver.Claim{Key: "k", ID: "s.1", Session: "s", Kind: driver.KindMutex, Weight: 1, Limit: 1, Lease: d}
		if _, _, err := storecmd.Acquire(t.Context(), s, c, true, nil, time.Now()); err != nil {
			t.Fatal(err)
		}
		if _, err := storecmd.Extend(t.Context(), s, c, 1); !errors.Is(err, driver.ErrNotHeld) {
			t.Fatal(err)
		}
		if _, _, err := storecmd.Release(t.Context(), s, c, driver.Release{Keep: d}); err != nil {
			t.Fatal(err)
		}
		for i, path := range [][]string{
			{"update", "0", "$set", "_", "$literal", "claim", "d"},
			{"update", "0", "$set", "_", "$literal", "lease"},
			{"update", "0", "$set", "_", "$literal", "keep"},
		} {
			c := f.took()[i]
			if ms, _ := c.cmd.Lookup(path...).AsInt64OK(); ms != 2 {
				t.Errorf("%v was sent as %d ms, want 2: %v", d, ms, c.cmd)
			}
		}
	})
}

// While the database does not exist, a mongos returns an empty cursor, even for a pipeline that always returns one
// document.
func TestReadingWithoutADatabase(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake(t)
		now := time.UnixMilli(1_800_000_000_000).UTC()
		f.hello = append(f.hello, e("localTime", now))
		s := f.store(nil, func(call) bson.D {
			return cursor()
		})
		st, err := s.Load(t.Context(), "k", 1000)
		if err != nil || st.Key != "k" || !st.Now.Equal(now) || st.Kind != "" {
			t.Errorf("Load: %+v, %v", st, err)
		}
		members, at, err := storecmd.Members(t.Context(), s)
		if err != nil || len(members) != 0 || !at.Equal(now) {
			t.Errorf("Members: %v, %v, %v", members, at, err)
		}
		if members, err := storecmd.Observers(t.Context(), s, "k", "", 10); err != nil || len(members) != 0 {
			t.Errorf("Observers: %v, %v", members, err)
		}
		if line, err := storecmd.Queue(t.Context(), s, "k"); err != nil || len(line) != 0 {
			t.Errorf("Queue: %v, %v", line, err)
		}
	})
}
