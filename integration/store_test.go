package integration_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/leasehold-go/leasehold/dsync"
	"github.com/leasehold-go/leasehold/dsync/driver"
	"github.com/leasehold-go/leasehold/dsync/dsynctest"
	dsyncmongo "github.com/leasehold-go/leasehold/dsync/mongo"
	"github.com/leasehold-go/leasehold/integration/internal/proxy"
	"github.com/leasehold-go/leasehold/integration/internal/server"
	"github.com/leasehold-go/leasehold/internal/storecmd"
	"github.com/leasehold-go/leasehold/internal/testkit"
	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/event"
	"go.mongodb.org/mongo-driver/v2/mongo/options"
)

// On a cluster, the collection is sharded by its hashed _id. The collections of notices are not sharded, because capped
// collections can't be. Whole proofs run the suite with an unsharded collection, too.
func TestStore(t *testing.T) {
	lab.Each(t, server.Need{}, func(t *testing.T, s *server.Server) {
		conforms := func(shard bool) {
			r := newRoom(t, s)
			if shard {
				s.Shard(t, r.DB, collection)
			}
			store := r.exactStore()
			dsynctest.TestStore(t, func(*testing.T) driver.Store { return store })
			if !shard || s.Cluster() == nil {
				return // the addresses of the cluster's shards are unknown
			}
			for _, uri := range s.Oplogs() {
				coll := server.Connect(t, uri).Database(r.DB).Collection(collection)
				if n, err := coll.CountDocuments(t.Context(), bson.D{}); err != nil || n == 0 {
					t.Errorf("%d records on %s, %v: want some on every shard", n, uri, err)
				}
			}
		}
		sharded := s.Has(server.Need{Sharded: true})
		if conforms(sharded); sharded && testkit.Long() {
			conforms(false)
		}
	})
}

// Discard removes all claims, also if there are more than the server puts into the first batch of a reply, 101.
func TestDiscardOfManyClaims(t *testing.T) {
	lab.Each(t, server.Need{}, func(t *testing.T, s *server.Server) {
		ctx, store := t.Context(), newRoom(t, s).store()
		var claims []driver.Claim
		for i := range 150 {
			c := driver.Claim{Key: fmt.Sprint(i), ID: fmt.Sprint("s.", i), Session: "s", Kind: driver.KindMutex, Weight: 1, Limit: 1}
			_, _, err := storecmd.Acquire(ctx, store, c, true, nil, time.Now().Add(time.Hour))
			noErr(t, err)
			claims = append(claims, c)
		}
		_, err := store.Discard(ctx, claims)
		noErr(t, err)
		states, err := store.Keys(ctx, driver.KeyQuery{Limit: 1000})
		noErr(t, err)
		left := 0
		for _, st := range states {
			left += len(st.Holders)
		}
		if len(states) != len(claims) || left > 0 {
			t.Errorf("of %d keys, %d are still held, want none of %d", len(states), left, len(claims))
		}
	})
}

// Operations that change nothing write nothing, so they leave no entry in the oplog.
func TestStoreNoOpsWriteNothing(t *testing.T) {
	lab.Each(t, server.Need{Oplog: true}, func(t *testing.T, s *server.Server) {
		r := newRoom(t, s)
		ctx, store := t.Context(), r.store()
		until := time.Now().Add(time.Hour)
		claim := func(n int, weight, limit int64) driver.Claim {
			return driver.Claim{Key: "k", ID: fmt.Sprint("s.", n), Session: "s", Kind: driver.KindSemaphore, Weight: weight, Limit: limit, Yield: true}
		}
		acquire := func(c driver.Claim, wait bool) error {
			_, _, err := storecmd.Acquire(ctx, store, c, wait, []string{"dead"}, until)
			return err
		}
		release := func(c driver.Claim, o driver.Release) error {
			_, _, err := storecmd.Release(ctx, store, c, o)
			return err
		}
		publish := func(seq int64, value string) error {
			_, err := storecmd.Publish(ctx, store, claim(1, 3, 3), seq, []byte(value))
			return err
		}
		resize := func(kind driver.Kind, from, limit int64) error {
			_, err := storecmd.Resize(ctx, store, "k", kind, from, limit)
			return err
		}
		revoke := func() error {
			_, err := store.Revoke(ctx, "s", driver.Revocation{Key: "k", Claim: "s.1"})
			return err
		}
		must := func(err error) {
			t.Helper()
			noErr(t, err)
		}
		other := func(c driver.Claim) driver.Claim { c.Kind = driver.KindMutex; return c }
		once := driver.Claim{Key: "done", ID: "s.9", Session: "s", Kind: driver.KindOnce, Weight: 1, Limit: 1}
		_, err := store.Register(ctx, driver.Member{ID: "s", TTL: time.Hour})
		must(err)
		must(resize(driver.KindSemaphore, 9, 2))
		must(resize(driver.KindSemaphore, 2, 3))
		must(acquire(claim(1, 3, 3), true))
		must(acquire(claim(2, 1, 2), true))
		must(acquire(claim(3, 1, 3), true))
		must(publish(2, "x"))
		must(release(claim(1, 3, 3), driver.Release{Keep: time.Minute}))
		must(revoke())
		must(acquire(once, true))
		must(release(once, driver.Release{Seal: 1, Result: []byte("r")}))

		noOps := []struct {
			name string
			do   func() error
			want error
		}{
			{"acquire of a holder", func() error { return acquire(claim(1, 3, 3), true) }, nil},
			{"acquire of a waiter", func() error { return acquire(claim(2, 1, 2), true) }, nil},
			{"acquire of a waiter that would go first", func() error { c := claim(3, 1, 3); c.First = true; return acquire(c, true) }, nil},
			{"try", func() error { return acquire(claim(4, 1, 3), false) }, nil},
			{"try that would go first", func() error { c := claim(4, 1, 3); c.First = true; return acquire(c, false) }, nil},
			{"acquire as another kind", func() error { return acquire(other(claim(4, 1, 3)), true) }, dsync.ErrMismatch},
			{"acquire of another limit", func() error { return acquire(claim(4, 1, 8), true) }, dsync.ErrMismatch},
			{"acquire too heavy", func() error { return acquire(claim(4, 4, 9), true) }, dsync.ErrMismatch},
			{"late acquire", func() error {
				_, _, err := storecmd.Acquire(ctx, store, claim(4, 1, 3), true, nil, time.UnixMilli(1))
				return err
			}, nil},
			{"keep again", func() error { return release(claim(1, 3, 3), driver.Release{Keep: time.Hour}) }, nil},
			{"release of nothing", func() error { return release(claim(5, 1, 3), driver.Release{}) }, nil},
			{"publish again", func() error { return publish(2, "x") }, nil},
			{"publish overtaken", func() error { return publish(1, "y") }, nil},
			{"resize again", func() error { return resize(driver.KindSemaphore, 2, 3) }, nil},
			{"resize as another kind", func() error { return resize(driver.KindMutex, 1, 1) }, dsync.ErrMismatch},
			{"revoke again", revoke, nil},
			{"acquire of what is sealed", func() error { c := once; c.ID = "s.10"; return acquire(c, true) }, nil},
			{"seal again", func() error { return release(once, driver.Release{Seal: 1, Result: []byte("other")}) }, nil},
			{"expire", func() error { _, err := store.Expire(ctx, "s", false); return err }, nil},
		}
		log := newOplog(t, r)
		for _, op := range noOps {
			if err := op.do(); !errors.Is(err, op.want) {
				t.Errorf("%s: got %v, want %v", op.name, err, op.want)
			}
			if n := log.writes(t, ""); n > 0 {
				t.Errorf("%s wrote %d entries to the oplog, want none", op.name, n)
			}
			log.reset(t)
		}
		must(release(claim(1, 3, 3), driver.Release{})) // check that a write does appear in the oplog
		if n := log.writes(t, "k/k"); n != 1 {
			t.Errorf("%d entries of a release, want 1", n)
		}
	})
}

// Keys can return more keys than fit in one reply. It reads only the index entries in its range.
func TestStoreKeysOfMany(t *testing.T) {
	const keys, shown = 1500, 400
	lab.Each(t, server.Need{}, func(t *testing.T, s *server.Server) {
		r := newRoom(t, s)
		var sent bson.Raw
		mon := options.Client().SetMonitor(&event.CommandMonitor{Started: func(_ context.Context, e *event.CommandStartedEvent) {
			if e.CommandName == "aggregate" {
				sent = append(bson.Raw(nil), e.Command...)
			}
		}})
		db := r.Client(t, mon).Database(r.DB)
		store, err := dsyncmongo.NewStore(r.opening(), db, nil)
		noErr(t, err)
		value := make([]byte, 64<<10) // 400 such records exceed the 16 MiB of one reply
		for from := 0; from < keys; from += 100 {
			var docs []any
			for n := from; n < from+100; n++ {
				doc := bson.D{{Key: "_id", Value: fmt.Sprintf("k/b%04d", n)}, {Key: "y", Value: "x"}, {Key: "h", Value: bson.A{}}, {Key: "q", Value: bson.A{}}}
				if n < shown {
					doc = append(doc, bson.E{Key: "done", Value: bson.D{{Key: "t", Value: int64(1)}, {Key: "b", Value: value}}})
				}
				docs = append(docs, doc)
			}
			if _, err := db.Collection(collection).InsertMany(t.Context(), docs); err != nil {
				t.Fatal(err)
			}
		}
		for _, key := range []string{"a", "b", "c"} {
			if _, err := storecmd.Resize(t.Context(), store, key, "x", 0, 1); err != nil {
				t.Fatal(err)
			}
		}
		list, err := store.Keys(t.Context(), driver.KeyQuery{Prefix: "b", After: "b", Limit: shown})
		if err != nil || len(list) != shown {
			t.Fatalf("got %d keys, %v, want %d", len(list), err, shown)
		}
		for n, st := range list {
			if st.Key != fmt.Sprintf("b%04d", n) || len(st.Value) != len(value) || st.Now.IsZero() {
				t.Fatalf("key %d is %q with %d bytes at %v", n, st.Key, len(st.Value), st.Now)
			}
		}
		if list, err = store.Keys(t.Context(), driver.KeyQuery{Prefix: "b", After: "b0399", Limit: 10_000}); err != nil || len(list) != 1000 || list[0].Key != "b0400" {
			t.Errorf("got %d keys, %v, want the 1,000 from b0400 on", len(list), err)
		}
		if list, err = store.Keys(t.Context(), driver.KeyQuery{Prefix: "b", After: "b1490", Limit: 100}); err != nil || len(list) != 9 {
			t.Errorf("got %d keys, %v, want the last 9", len(list), err)
		}
		if s.FerretDB() {
			return // FerretDB's explain has another format
		}
		var cmd bson.D
		noErr(t, bson.Unmarshal(sent, &cmd))
		cmd = cmd[:3] // only aggregate, pipeline and cursor; the later fields belong to the driver's session
		plan, err := db.RunCommand(t.Context(), bson.D{{Key: "explain", Value: cmd}, {Key: "verbosity", Value: "executionStats"}}).Raw()
		noErr(t, err)
		text := plan.String()
		if !strings.Contains(text, `"totalKeysExamined": {"$numberInt":"9"}`) && !strings.Contains(text, `"totalKeysExamined": {"$numberInt":"10"}`) {
			t.Errorf("more than the 9 entries of the index were read: %s", text)
		}
	})
}

// If a key's limit is set before the key is first used, a sweep keeps the record as long as any
// other idle record.
func TestStoreResizedIsKept(t *testing.T) {
	lab.Each(t, server.Need{}, func(t *testing.T, s *server.Server) {
		r := newRoom(t, s)
		store := r.store()
		if _, err := storecmd.Resize(t.Context(), store, "k", driver.KindSemaphore, 2, 3); err != nil {
			t.Fatal(err)
		}
		time.Sleep(20*time.Millisecond + s.Skew)
		for _, c := range []struct {
			retention time.Duration
			want      int64
		}{{time.Hour, 3}, {10 * time.Millisecond, 0}} {
			sweep(t, store, c.retention)
			if st := load(t, store, "k"); st.Limit != c.want {
				t.Errorf("after a sweep with a retention of %v the limit is %d, want %d", c.retention, st.Limit, c.want)
			}
		}
	})
}

// B22: if a process dies during Open, everything that it leaves behind is swept.
func TestB22DiedWhileOpening(t *testing.T) {
	t.Parallel()
	lab.One(t, server.Need{}, func(t *testing.T, s *server.Server) {
		r := newRoom(t, s)
		store := r.store()
		count := func() int64 {
			n, err := r.raw().CountDocuments(t.Context(), bson.D{{Key: "_id", Value: bson.D{{Key: "$lt", Value: "x/"}}}})
			noErr(t, err)
			return n
		}
		r.forgetProbe() // otherwise Open creates no records
		p := r.proxy()
		dead := false // whether the process has died, which it does as soon as it has created records
		p.Rule(func(c proxy.Command) proxy.Fate {
			switch {
			case !c.On(r.DB, collection):
			case dead:
				return proxy.LoseRequest
			case c.Name == "insert":
				dead = true
			}
			return proxy.Pass
		})
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		db, opened := server.Connect(t, p.URI()).Database(r.DB), make(chan error, 1)
		go func() {
			_, err := dsyncmongo.Open(ctx, db, nil)
			opened <- err
		}()
		eventually(t, "the process has left something to sweep", func() bool { return count() > 0 })
		cancel()
		if err := <-opened; err == nil {
			t.Fatal("Open succeeded though the server went silent")
		}
		time.Sleep(50*time.Millisecond + s.Skew) // wait until the records are some milliseconds old
		if sweep(t, store, time.Hour); count() == 0 {
			t.Error("a Sweep with a retention of an hour deleted the new records")
		}
		sweep(t, store, time.Millisecond)
		if n := count(); n != 0 {
			t.Errorf("%d records are left after a sweep of everything idle, want none", n)
		}
	})
}

// B22: the records that Open creates to probe the server are not swept during the probe, no matter when another process
// sweeps.
func TestB22SweptWhileOpening(t *testing.T) {
	t.Parallel()
	lab.One(t, server.Need{}, func(t *testing.T, s *server.Server) {
		r := newRoom(t, s)
		store := r.store()
		p := r.proxy()
		// In each Open, sweep before only a quarter of the commands. On a slow machine, sweeping before
		// all commands would take longer than a probe may take.
		const parts = 4
		sweeps := 0
		for part := range parts {
			r.forgetProbe()
			commands := 0
			p.Rule(func(c proxy.Command) proxy.Fate {
				if c.On(r.DB, collection) {
					if commands%parts == part {
						sweep(t, store, time.Hour)
						sweeps++
					}
					commands++
				}
				return proxy.Pass
			})
			session, err := dsyncmongo.Open(r.opening(), server.Connect(t, p.URI()).Database(r.DB), nil)
			noErr(t, err)
			if err := session.Close(t.Context()); err != nil {
				t.Error(err)
			}
		}
		if sweeps < 20 {
			t.Errorf("swept %d times, want at least 20", sweeps)
		}
		// The record of a passed probe is not swept either, however old it is.
		time.Sleep(20*time.Millisecond + s.Skew)
		sweep(t, store, time.Millisecond)
		n, err := r.raw().CountDocuments(t.Context(), append(probeRecords(), bson.E{Key: "passed", Value: true}))
		if err != nil || n != 1 && !s.FerretDB() {
			t.Errorf("%d records of passed probes are left, %v, want 1", n, err)
		}
	})
}

// A process creates a record before it sends the command that needs it. Until then a sweep
// keeps the record, however short the retention. If the process dies first, the record is
// deleted later.
func TestStoreSweepsNothingThatIsMade(t *testing.T) {
	lab.Each(t, server.Need{}, func(t *testing.T, s *server.Server) {
		r := newRoom(t, s)
		store := r.store()
		now := load(t, store, "k").Now
		for id, at := range map[string]time.Time{"s/new": now, "k/new": now, "s/old": now.Add(-2 * time.Hour), "k/old": now.Add(-2 * time.Hour)} {
			if _, err := r.raw().InsertOne(t.Context(), bson.D{{Key: "_id", Value: id}, {Key: "at", Value: at}}); err != nil {
				t.Fatal(err)
			}
		}
		time.Sleep(20*time.Millisecond + s.Skew)
		sweep(t, store, time.Millisecond)
		var left []string
		noErr(t, r.raw().Distinct(t.Context(), "_id", bson.D{}).Decode(&left))
		left = slices.DeleteFunc(left, isProbeRecord)
		slices.Sort(left)
		if want := []string{"k/new", "s/new", sweepRecord}; !slices.Equal(left, want) {
			t.Errorf("%q are left, want %q", left, want)
		}
		// A session with such a record is not registered, and others expire it.
		if _, err := store.Heartbeat(t.Context(), "new", nil); !errors.Is(err, driver.ErrSessionExpired) {
			t.Errorf("Heartbeat of a session that is not registered: %v, want ErrSessionExpired", err)
		}
		// Send the commands for which the records were created.
		if _, err := store.Register(t.Context(), driver.Member{ID: "new", TTL: time.Minute}); err != nil {
			t.Error(err)
		}
		c := driver.Claim{Key: "new", ID: "new.1", Session: "new", Kind: driver.KindMutex, Weight: 1, Limit: 1}
		// The claim does not hold the key, so these commands change nothing.
		held := c
		held.Token, held.Lease = 1024, time.Minute
		elected := held
		elected.Lease, elected.Kind, elected.NoneWaiting = 0, driver.KindElection, true
		if _, err := storecmd.Extend(t.Context(), store, held, 1); !errors.Is(err, driver.ErrNotHeld) {
			t.Errorf("Extend: %v", err)
		}
		if _, err := storecmd.Publish(t.Context(), store, elected, 1, []byte("value")); !errors.Is(err, driver.ErrNotHeld) {
			t.Errorf("Publish: %v", err)
		}
		if found, _, err := storecmd.Release(t.Context(), store, elected, driver.Release{}); found || err != nil {
			t.Errorf("Release: %t, %v", found, err)
		}
		var record bson.D
		if err := r.raw().FindOne(t.Context(), bson.D{{Key: "_id", Value: "k/new"}}).Decode(&record); err != nil || len(record) != 2 {
			t.Errorf("the record is %v, %v, want its id and time only", record, err)
		}
		if st, _, err := storecmd.Acquire(t.Context(), store, c, true, nil, now.Add(time.Hour)); err != nil || len(st.Holders) != 1 {
			t.Errorf("Acquire: %+v, %v", st, err)
		}
	})
}
