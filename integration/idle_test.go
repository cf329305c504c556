package integration_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/leasehold-go/leasehold/dsync/driver"
	"github.com/leasehold-go/leasehold/integration/internal/server"
	"go.mongodb.org/mongo-driver/v2/bson"
)

// sweepRecord is the ID of the record that stores how far sweeping has come. It is never deleted.
const sweepRecord = "x/sweep"

// sweep sweeps the whole store once. No session may sweep at the same time.
func sweep(t *testing.T, s driver.Store, retention time.Duration) (deleted int64) {
	t.Helper()
	turn := func(last driver.SweepState) driver.SweepState {
		st, err := s.Sweep(t.Context(), "the test", last, retention)
		noErr(t, err)
		deleted += st.Deleted
		return st
	}
	st := turn(driver.SweepState{Turn: -1})
	for deleted = 0; st.After != ""; { // finish the current round, if any
		st = turn(st)
	}
	for st = turn(st); st.After != ""; {
		st = turn(st)
	}
	return deleted
}

// B08: tokens grow over 1,000 holds of a key, even if the key's record was deleted in between.
func TestB08TokensGrow(t *testing.T) {
	const cycles, every = 1000, 50
	lab.One(t, server.Need{}, func(t *testing.T, s *server.Server) {
		r := newRoom(t, s)
		store := r.store()
		m := r.session(r.short(10 * time.Second)).Mutex("cycles")
		raw := r.raw()
		var last int64
		deleted := 0
		for i := range cycles {
			if i%every == every-1 {
				time.Sleep(20*time.Millisecond + s.Skew) // a server's clock ticks every 10 ms
				sweep(t, store, time.Millisecond)
				n, err := raw.CountDocuments(t.Context(), bson.D{{Key: "_id", Value: "k/cycles"}})
				noErr(t, err)
				deleted += int(1 - n)
			}
			h := lock(t, m)
			if token := h.Token(); token <= last {
				t.Fatalf("cycle %d: token %d came after %d, want a greater one", i, token, last)
			} else {
				last = token
			}
			release(t, h)
		}
		if deleted < cycles/every/2 {
			t.Errorf("the record was deleted only %d times of %d, so this test shows little", deleted, cycles/every)
		}
	})
}

// B22: if records of every kind fill several slices, Sweep deletes exactly the idle records.
// A round examines no record twice.
func TestB22SweepsExactlyTheIdle(t *testing.T) {
	const each, retention = 120, time.Hour
	lab.Each(t, server.Need{}, func(t *testing.T, s *server.Server) {
		r := newRoom(t, s)
		store := r.store()
		now := load(t, store, "k").Now
		ago := func(d time.Duration) time.Time { return now.Add(-d) }
		token := func(d time.Duration) bson.E { return bson.E{Key: "t", Value: ago(d).UnixMilli() * 1024} }
		at := func(d time.Duration) bson.E { return bson.E{Key: "at", Value: ago(d)} }
		key := func(d time.Duration, fields ...bson.E) bson.D {
			return append(bson.D{{Key: "f", Value: 2}, {Key: "y", Value: "mutex"}, {Key: "c", Value: 1}, token(d), at(d)}, fields...)
		}
		claims := func(field string, more ...bson.E) bson.E {
			return bson.E{Key: field, Value: bson.A{append(bson.D{{Key: "a", Value: "s.1"}, {Key: "s", Value: "s"}, {Key: "w", Value: 1}}, more...)}}
		}
		none := bson.E{Key: "h", Value: bson.A{}}
		kinds := []struct {
			id     string
			record bson.D
			goes   bool
		}{
			{"k/%d idle", key(2*retention, none), true},
			{"k/%d used lately", key(retention/2, none), false},
			{"k/%d whose tokens are ahead", append(key(2*retention, none)[:3], token(retention/2), at(2*retention), none), false},
			{"k/%d held", key(2*retention, claims("h")), false},
			{"k/%d kept", key(2*retention, claims("h", bson.E{Key: "e", Value: now.Add(retention)})), false},
			{"k/%d whose end has come", key(4*retention, claims("h", bson.E{Key: "e", Value: ago(2 * retention)})), true},
			{"k/%d waited for", key(2*retention, none, claims("q")), false},
			{"k/%d sealed", key(2*retention, none, bson.E{Key: "done", Value: bson.D{{Key: "k", Value: int64(1)}}}), false},
			{"k/%d that counts terms", key(2*retention, none, bson.E{Key: "n", Value: int64(3)}), false},
			{"k/%d of a later version", append(bson.D{{Key: "f", Value: 3}}, key(2*retention, none)[1:]...), false},
			{"k/%d that is made", bson.D{at(3 * retention / 2)}, false},
			{"k/%d that was made", bson.D{at(3 * retention)}, true},
			{"p/%d left", bson.D{at(2 * retention)}, true},
			{"p/%d of a probe", bson.D{at(retention / 2)}, false},
			{"s/%d alive", bson.D{at(time.Second), {Key: "ttl", Value: int64(30_000)}}, false},
			{"s/%d lapsed lately", bson.D{at(retention), {Key: "ttl", Value: int64(30_000)}}, false},
			{"s/%d lapsed", bson.D{at(2 * retention), {Key: "ttl", Value: int64(30_000)}}, true},
			{"s/%d dead lately", bson.D{at(retention / 2), {Key: "dead", Value: true}}, false},
			{"s/%d dead", bson.D{at(2 * retention), {Key: "ttl", Value: int64(10 * retention / time.Millisecond)}, {Key: "dead", Value: true}}, true},
			{"s/%d that is made", bson.D{at(3 * retention / 2)}, false},
			{"a/%d of another program", bson.D{at(9 * retention)}, false},
			{"l/%d of another program", bson.D{at(9 * retention)}, false},
			{"z/%d of another program", bson.D{at(9 * retention)}, false},
		}
		var docs []any
		var want []string
		for i := range each {
			for _, k := range kinds {
				id := fmt.Sprintf(k.id, i)
				docs = append(docs, append(bson.D{{Key: "_id", Value: id}}, k.record...))
				if !k.goes {
					want = append(want, id)
				}
			}
		}
		if _, err := r.raw().InsertMany(t.Context(), docs); err != nil {
			t.Fatal(err)
		}
		if n := sweep(t, store, retention); n != int64(len(docs)-len(want)) {
			t.Errorf("Sweep says that it deleted %d records, want %d of %d", n, len(docs)-len(want), len(docs))
		}
		var left []string
		noErr(t, r.raw().Distinct(t.Context(), "_id", bson.D{{Key: "_id", Value: bson.D{{Key: "$ne", Value: sweepRecord}}}}).Decode(&left))
		left = slices.DeleteFunc(left, isProbeRecord)
		slices.Sort(left)
		slices.Sort(want)
		if !slices.Equal(left, want) {
			t.Errorf("%d records are left, want %d: of the first of each kind\n%q, want\n%q", len(left), len(want), firsts(left), firsts(want))
		}
		st, err := store.Sweep(t.Context(), "", driver.SweepState{Turn: -1}, 0)
		if err != nil || st.LastRound != int64(len(docs)-each) { // not examined: records that sort after the library's own
			t.Errorf("a round saw %d records, %v, want %d", st.LastRound, err, len(docs)-each)
		}
	})
}

// firsts returns the IDs of records with the number 0.
func firsts(ids []string) []string {
	return slices.DeleteFunc(slices.Clone(ids), func(id string) bool { return !strings.HasPrefix(id[1:], "/0 ") })
}

// B22: Sweep deletes idle records, but none that are in use.
func TestB22CleanUp(t *testing.T) {
	lab.One(t, server.Need{}, func(t *testing.T, s *server.Server) {
		r := newRoom(t, s)
		store, raw := r.store(), r.raw()
		opt := r.short(10 * time.Second)
		session := r.session(opt)
		held := lock(t, session.Mutex("held"))
		waiting := locking(t.Context(), r.session(opt).Mutex("held"))
		warm(t, session, "idle")
		lease, err := session.Mutex("leased").Lease(t.Context(), time.Minute)
		noErr(t, err)
		leaves := r.session(opt)
		warm(t, leaves, "of one who left")
		left := leaves.ID()
		noErr(t, leaves.Close(t.Context()))
		there := func(id string) bool {
			n, err := raw.CountDocuments(t.Context(), bson.D{{Key: "_id", Value: id}})
			noErr(t, err)
			return n == 1
		}
		eventually(t, "the waiter is queued", func() bool { return load(t, store, "held").Waiting == 1 })

		sweep(t, store, time.Hour)
		for _, id := range []string{"k/held", "k/idle", "k/leased", "k/of one who left", "s/" + session.ID(), "s/" + left} {
			if !there(id) {
				t.Errorf("%s was deleted long before its time", id)
			}
		}
		time.Sleep(50*time.Millisecond + s.Skew)
		if n := sweep(t, store, 20*time.Millisecond); n < 3 {
			t.Errorf("Sweep says that it deleted %d records, want at least the three below", n)
		}
		for id, want := range map[string]bool{
			"k/held": true, "k/leased": true, "s/" + session.ID(): true,
			"k/idle": false, "k/of one who left": false, "s/" + left: false,
		} {
			if got := there(id); got != want {
				t.Errorf("%s exists: %v, want %v", id, got, want)
			}
		}
		if held.Token() == 0 {
			t.Error("Sweep made a holder lose its lock")
		}
		release(t, held)
		g := granted(t, waiting)
		release(t, g.h)
		if err := lease.Release(t.Context()); err != nil {
			t.Error(err)
		}
	})
}
