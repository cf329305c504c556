package integration_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/leasehold-go/leasehold/integration/internal/server"
	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/event"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"
	"go.mongodb.org/mongo-driver/v2/x/mongo/driver"
)

// A monitor records the commands that clients send to one database. It leaves out Discards: a session sends them some
// seconds after an Unlock, so on a busy machine tests that count commands would sometimes count them, too.
type monitor struct {
	db string

	mu   sync.Mutex
	sent []command
	open map[int64]int // indexes into sent, by request ID
}

type command struct {
	name string
	id   string // _id of the document that the command reads or writes
	body bson.Raw
	code int32 // code of the server's error, which is a write error or the command's error
}

func (c command) String() string { return c.name + " " + c.id }

func newMonitor(db string) *monitor { return &monitor{db: db, open: make(map[int64]int)} }

func (m *monitor) client() *options.ClientOptions {
	return options.Client().SetMonitor(&event.CommandMonitor{
		Started:   m.started,
		Succeeded: func(_ context.Context, e *event.CommandSucceededEvent) { m.answered(e.RequestID, e.Reply, nil) },
		Failed:    func(_ context.Context, e *event.CommandFailedEvent) { m.answered(e.RequestID, nil, e.Failure) },
	})
}

func (m *monitor) started(_ context.Context, e *event.CommandStartedEvent) {
	if e.DatabaseName != m.db {
		return
	}
	c := command{name: e.CommandName, body: slices.Clone(e.Command)}
	for _, path := range [][]string{{"query", "_id"}, {"updates", "0", "q", "_id"}, {"documents", "0", "_id"}, {"filter", "_id"}} {
		if id, ok := e.Command.Lookup(path...).StringValueOK(); ok {
			c.id = id
			break
		}
	}
	if discards(c) {
		return
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.open[e.RequestID] = len(m.sent)
	m.sent = append(m.sent, c)
}

func (m *monitor) answered(request int64, reply bson.Raw, err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	i, ok := m.open[request]
	if !ok {
		return
	}
	delete(m.open, request)
	if code, ok := reply.Lookup("writeErrors", "0", "code").AsInt64OK(); ok {
		m.sent[i].code = int32(code)
	}
	var failed driver.Error // the kind of error that the driver passes to monitors
	if errors.As(err, &failed) {
		m.sent[i].code = failed.Code
	}
}

// reset removes the commands recorded so far.
func (m *monitor) reset() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.sent = nil
	clear(m.open)
}

// commands returns the commands sent since the last reset. If f is not nil, it returns only those for which f returns
// true.
func (m *monitor) commands(f func(command) bool) []command {
	m.mu.Lock()
	defer m.mu.Unlock()
	var cs []command
	for _, c := range m.sent {
		if f == nil || f(c) {
			cs = append(cs, c)
		}
	}
	return cs
}

// noDuplicates fails the test if any reply has code 11000, duplicate key (B11). It allows the
// reply that a probe provokes by registering an existing session again.
func (m *monitor) noDuplicates(t testing.TB) {
	t.Helper()
	for _, c := range m.commands(func(c command) bool { return c.code == 11000 && !knownOfProbe(c) }) {
		t.Errorf("%v was answered with code 11000, a duplicate key", c)
	}
}

// discards reports whether the command is a Discard's update, which only counts the records that have one of the claims.
func discards(c command) bool {
	same, _ := c.body.Lookup("updates", "0", "u", "0", "$set", "f").StringValueOK()
	return same == "$f"
}

func aboutKey(c command) bool     { return strings.HasPrefix(c.id, "k/") }
func aboutSession(c command) bool { return strings.HasPrefix(c.id, "s/") }

// knownOfProbe reports whether c is about the session that a probe registers twice. The server must refuse the second
// Register.
func knownOfProbe(c command) bool {
	return strings.HasPrefix(c.id, "p/") && strings.HasSuffix(c.id, "/living")
}

// noticesOf returns the name of the collection of notices with this number.
func noticesOf(address int) string { return fmt.Sprint(collection, ".notices.", address) }

// aboutNotices reports whether the command listens for notices, or sends a notice about a
// key.
func aboutNotices(c command) bool { return listening(c) || notifies(c) }

// listening reports whether the command waits for notices, prepares for that, or asks which member
// is the primary. A session sends such commands while it waits for a key or holds one.
func listening(c command) bool {
	return c.name == "hello" || c.name == "listCollections" || onNotices(c) && !notifies(c)
}

// byItself reports whether a session sends the command whatever its callers do, when it is due: heartbeats, and what
// listening reports.
func byItself(c command) bool { return listening(c) || aboutSession(c) }

// notifies reports whether the command sends a notice about a key. When a listener starts, it
// inserts a notice without a key.
func notifies(c command) bool {
	_, err := c.body.LookupErr("documents", "0", "k")
	return onNotices(c) && c.name == "insert" && err == nil
}

// awaits reports whether the command is a listener's getMore.
func awaits(c command) bool { return onNotices(c) && c.name == "getMore" }

func onNotices(c command) bool {
	for _, field := range []string{c.name, "collection"} {
		if name, ok := c.body.Lookup(field).StringValueOK(); ok && strings.HasPrefix(name, collection+".notices.") {
			return true
		}
	}
	return false
}

// An oplog counts the writes to the store's collection in the oplogs of a replica set or of a cluster's shards.
type oplog struct {
	ns    string
	colls []*mongo.Collection // each replica set's oplog
	from  []bson.Timestamp
}

// newOplog returns an oplog that counts the writes from now on.
func newOplog(t testing.TB, r *room) *oplog {
	t.Helper()
	o := &oplog{ns: r.DB + "." + collection}
	for _, uri := range r.Oplogs() {
		o.colls = append(o.colls, server.Connect(t, uri).Database("local").Collection("oplog.rs"))
	}
	o.reset(t)
	return o
}

func (o *oplog) reset(t testing.TB) {
	t.Helper()
	o.from = nil
	for _, coll := range o.colls {
		var last struct {
			TS bson.Timestamp `bson:"ts"`
		}
		err := coll.FindOne(t.Context(), bson.D{}, options.FindOne().SetSort(bson.D{{Key: "$natural", Value: -1}})).Decode(&last)
		if err != nil {
			t.Fatalf("oplog: %v", err)
		}
		o.from = append(o.from, last.TS)
	}
}

// writes returns the number of entries about documents whose _id begins with prefix.
func (o *oplog) writes(t testing.TB, prefix string) (n int) {
	t.Helper()
	for i, coll := range o.colls {
		n += o.writesOf(t, coll, o.from[i], prefix)
	}
	return n
}

func (o *oplog) writesOf(t testing.TB, coll *mongo.Collection, from bson.Timestamp, prefix string) int {
	t.Helper()
	cur, err := coll.Find(t.Context(), bson.D{
		{Key: "ts", Value: bson.D{{Key: "$gt", Value: from}}},
		{Key: "ns", Value: o.ns},
	})
	if err != nil {
		t.Fatalf("oplog: %v", err)
	}
	var entries []struct {
		O  bson.Raw `bson:"o"`
		O2 bson.Raw `bson:"o2"`
	}
	if err := cur.All(t.Context(), &entries); err != nil {
		t.Fatalf("oplog: %v", err)
	}
	n := 0
	for _, e := range entries {
		id, ok := e.O2.Lookup("_id").StringValueOK()
		if !ok {
			id, _ = e.O.Lookup("_id").StringValueOK()
		}
		if strings.HasPrefix(id, prefix) {
			n++
		}
	}
	return n
}
