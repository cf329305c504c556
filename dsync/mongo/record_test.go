package mongo_test

import (
	"bytes"
	"context"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/leasehold-go/leasehold/dsync"
	dsyncmongo "github.com/leasehold-go/leasehold/dsync/mongo"
	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"
)

var record = flag.String("record", "", "the `URI` of a replica set whose change events TestRecord writes to testdata")

// TestRecord makes every kind of write that the store makes, on a server, and
// writes all change events of it to testdata/<version>.jsonl, for
// TestWatchRecordedEvents. It logs what was granted as the store's replies say,
// which is what must be found in the events:
//
//	go test ./dsync/mongo -run TestRecord -v -record 'mongodb://localhost/?replicaSet=rs0'
func TestRecord(t *testing.T) {
	if *record == "" {
		t.Skip("no -record flag")
	}
	client, err := mongo.Connect(options.Client().ApplyURI(*record))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = client.Disconnect(context.Background()) }()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()

	db := client.Database("leasehold_record")
	if err := db.Drop(ctx); err != nil {
		t.Fatal(err)
	}
	store, err := dsyncmongo.NewStore(ctx, db, nil)
	if err != nil {
		t.Fatal(err)
	}
	stream, err := db.Collection("leasehold").Watch(ctx, mongo.Pipeline{})
	if err != nil {
		t.Fatal(err)
	}
	w := &writer{T: t, ctx: ctx, Store: store, granted: make(map[string]bool)}
	w.writeAll()
	rename := bson.D{e("renameCollection", "leasehold_record.leasehold"), e("to", "leasehold_record.other")}
	if err := client.Database("admin").RunCommand(ctx, rename).Err(); err != nil {
		t.Fatal(err)
	}

	var lines bytes.Buffer
	for stream.Next(ctx) {
		line, err := bson.MarshalExtJSON(stream.Current, true, false)
		if err != nil {
			t.Fatal(err)
		}
		lines.Write(append(line, '\n'))
	}
	if err := stream.Err(); err != nil {
		t.Fatal(err)
	}
	var build struct{ Version string }
	if err := db.RunCommand(ctx, bson.D{e("buildInfo", 1)}).Decode(&build); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join("testdata", build.Version+".jsonl"), lines.Bytes(), 0o644); err != nil {
		t.Fatal(err)
	}
}

type writer struct {
	*testing.T
	ctx context.Context
	*dsyncmongo.Store
	granted map[string]bool
}

// must ends the recording at an error, else logs new grants of the state.
func (w *writer) must(st dsync.State, err error) {
	w.Helper()
	if err != nil {
		w.Fatal(err)
	}
	for _, h := range st.Holders {
		if !w.granted[h.Claim] {
			w.granted[h.Claim] = true
			w.Logf("grant(%q, %q, %d)", st.Key, h.Claim, h.Token)
		}
	}
}

func (w *writer) acquire(c dsync.Claim, wait bool, dead ...string) {
	w.Helper()
	w.must(w.Acquire(w.ctx, c, wait, dead, time.Now().Add(time.Hour)))
}

func (w *writer) release(c dsync.Claim, o dsync.Outcome) {
	w.Helper()
	_, err := w.Release(w.ctx, c, o)
	w.must(dsync.State{}, err)
	w.must(w.Load(w.ctx, c.Key))
}

func (w *writer) writeAll() {
	for _, s := range []string{"S1", "S2"} {
		_, err := w.Register(w.ctx, dsync.Member{ID: s, TTL: time.Hour, Host: "h", PID: 1})
		w.must(dsync.State{}, err)
	}
	_, err := w.Heartbeat(w.ctx, "S1", nil)
	w.must(dsync.State{}, err)

	claim := func(key string, session, n int, weight, limit int64) dsync.Claim {
		s := fmt.Sprintf("S%d", session)
		return dsync.Claim{Key: key, ID: fmt.Sprintf("%s.%d", s, n), Session: s, Kind: dsync.KindMutex, Weight: weight, Limit: limit}
	}
	a, b := claim("short", 1, 1, 1, 1), claim("short", 2, 1, 1, 1)
	w.acquire(a, true)
	w.acquire(b, true)
	w.acquire(claim("short", 1, 2, 1, 1), false) // writes nothing
	w.release(a, dsync.Outcome{})
	w.release(b, dsync.Outcome{})

	for n := 10; n < 22; n++ {
		w.acquire(claim("long", 1+n%2, n, 1, 1), true)
	}
	w.release(claim("long", 1, 10, 1, 1), dsync.Outcome{})
	w.release(claim("long", 1, 14, 1, 1), dsync.Outcome{})

	writer := claim("readers", 1, 30, 4, 4)
	w.acquire(writer, true)
	for n := 40; n < 44; n++ {
		w.acquire(claim("readers", 1+n%2, n, 1, 4), true)
	}
	w.acquire(claim("readers", 1, 50, 4, 4), true)
	w.release(writer, dsync.Outcome{})

	leased, next := claim("leased", 1, 60, 1, 1), claim("leased", 2, 60, 1, 1)
	leased.Lease = time.Minute
	w.acquire(leased, true)
	w.acquire(next, true)
	leased.Lease = time.Hour
	_, err = w.Extend(w.ctx, leased)
	w.must(dsync.State{}, err)
	w.release(leased, dsync.Outcome{Keep: time.Millisecond})
	time.Sleep(10 * time.Millisecond)
	w.acquire(next, true)

	yields := claim("yielding", 1, 80, 1, 1)
	yields.Yield = true
	w.acquire(yields, true)
	w.acquire(claim("yielding", 2, 80, 1, 1), true) // S1.80 is to yield
	w.acquire(claim("yielding", 1, 82, 1, 1), true) // up to 4.4: again
	w.release(yields, dsync.Outcome{})

	w.acquire(claim("kept", 1, 90, 1, 1), true)
	w.acquire(claim("kept", 2, 90, 1, 1), true)
	w.release(claim("kept", 1, 90, 1, 1), dsync.Outcome{Keep: time.Hour}) // wakes S2.90

	once := claim("sealed", 1, 91, 1, 1)
	w.acquire(once, true)
	w.acquire(claim("sealed", 2, 91, 1, 1), true)
	w.acquire(claim("sealed", 1, 92, 1, 1), true)
	w.release(once, dsync.Outcome{Seal: true, Result: []byte("done")}) // wakes both

	w.acquire(claim("sized", 1, 93, 1, 1), true)
	w.acquire(claim("sized", 2, 93, 1, 1), true)
	w.must(dsync.State{}, w.Resize(w.ctx, "sized", dsync.KindMutex, 1, 2))
	w.must(w.Load(w.ctx, "sized"))

	revoked := dsync.Revocation{Key: "sized", Claim: "S1.93"}
	w.must(dsync.State{}, w.Revoke(w.ctx, "S1", revoked))
	_, err = w.Heartbeat(w.ctx, "S1", nil) // up to 4.4: again
	w.must(dsync.State{}, err)
	_, err = w.Heartbeat(w.ctx, "S1", []dsync.Revocation{revoked})
	w.must(dsync.State{}, err)

	w.must(dsync.State{}, w.Unregister(w.ctx, "S2"))
	w.acquire(claim("long", 1, 70, 1, 1), true, "S2")
	_, err = w.Sweep(w.ctx, "S1", dsync.SweepState{}, time.Millisecond)
	w.must(dsync.State{}, err)
}
