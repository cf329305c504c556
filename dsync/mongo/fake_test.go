package mongo_test

import (
	"context"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/leasehold-go/leasehold/dsync/driver"
	dsyncmongo "github.com/leasehold-go/leasehold/dsync/mongo"
	"github.com/leasehold-go/leasehold/internal/mongofake"
	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"
)

// A fake is a server that speaks the wire protocol over net.Pipe. It computes nothing, but answers commands with a
// function of the test.
type fake struct {
	*mongofake.Server
	t testing.TB

	mu     sync.Mutex
	answer func(call) bson.D // nil until the store is open; until then the function honest answers, so the probe passes
	calls  []call            // the calls since answer was set, without the driver's own
	hello  bson.D
	clock  func() time.Time // the time in hello, if set
	mute   bool             // f answers no command
	keeps  string           // the name of a command that is never answered
	since  time.Time        // time of the last short acquire
}

// A call is one command that arrived.
type call struct {
	name  string
	cmd   bson.Raw
	since time.Time // time of the last short acquire, up to this call
}

// shortGrant returns the value at path in the fields that a short acquire writes.
func (c call) shortGrant(path ...string) bson.RawValue {
	for _, changes := range changesOfShort {
		grant, err := c.cmd.LookupErr(slices.Concat([]string{"updates", "0", "u", "0"}, changes, []string{"$cond", "1", "$literal"}, path)...)
		if err == nil {
			return grant
		}
	}
	return bson.RawValue{}
}

// changesOfShort are the paths of the changed fields in the first stage of a short command: in an Acquire on
// MongoDB, in a hand-over on MongoDB, and in both on other servers.
var changesOfShort = [][]string{{"$replaceWith"}, {"$replaceWith", "$mergeObjects", "1"}, {"$set", "_"}}

// Failures that leave it unknown whether the command was applied.
var (
	lost   = mongofake.Lost
	silent = mongofake.Silent
)

// Answers to the upsert of a short acquire.
var (
	made    = ok(e("n", 1), e("nModified", 0), e("upserted", bson.A{bson.D{e("index", 0), e("_id", "k/k")}}))
	notMade = unwritten(241)   // by the pipeline
	raced   = unwritten(11000) // another upsert was faster
)

func unwritten(code int, more ...bson.E) bson.D {
	refused := bson.D{e("index", 0), e("code", code), e("errmsg", "as the test says")}
	return ok(append(more, e("n", 0), e("nModified", 0), e("writeErrors", bson.A{refused}))...)
}

func ok(fields ...bson.E) bson.D { return mongofake.OK(fields...) }

func e(key string, value any) bson.E { return bson.E{Key: key, Value: value} }

func refusal(code int, name string) bson.D { return mongofake.Refusal(code, name) }

// newFake returns a fake that presents itself as a MongoDB replica set.
func newFake(t testing.TB) *fake {
	f := &fake{t: t, hello: mongofake.Hello()}
	f.Server = mongofake.New(f.handle)
	return f
}

// client returns a client of f: see [mongofake.Server.Client].
func (f *fake) client(opts ...*options.ClientOptions) *mongo.Client {
	f.t.Helper()
	return f.Client(f.t, opts...)
}

// store returns a store on f. From then on f calls answer for each command, and records the calls.
func (f *fake) store(opt *dsyncmongo.Options, answer func(call) bson.D) driver.Store {
	f.t.Helper()
	return f.storeOn(f.client(), opt, answer)
}

func (f *fake) storeOn(client *mongo.Client, opt *dsyncmongo.Options, answer func(call) bson.D) driver.Store {
	f.t.Helper()
	s, err := dsyncmongo.NewStore(context.Background(), client.Database("app"), opt)
	if err != nil {
		f.t.Fatal(err)
	}
	f.script(answer)
	return s
}

func (f *fake) script(answer func(call) bson.D) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.answer, f.calls = answer, nil
}

// say changes f's reply to hello.
func (f *fake) say(change func(bson.D) bson.D) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.hello = change(f.hello)
}

// took returns the commands that have arrived since script was last called.
func (f *fake) took() []call {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.calls
}

func (f *fake) handle(name string, cmd bson.Raw) bson.D {
	c := call{name: name, cmd: cmd}
	f.mu.Lock()
	mute, hello := f.mute || c.name == f.keeps, f.hello[:len(f.hello):len(f.hello)]
	if at, ok := c.shortGrant("at").TimeOK(); ok {
		f.since = at
	}
	c.since = f.since
	f.mu.Unlock()
	if mute {
		return silent
	}
	switch c.name {
	case "hello", "isMaster", "ismaster":
		if ms, await := c.cmd.Lookup("maxAwaitTimeMS").AsInt64OK(); await { // nothing changes meanwhile
			select {
			case <-time.After(time.Duration(ms) * time.Millisecond):
			case <-f.Ended():
			}
		}
		if f.clock != nil {
			return ok(append(hello, e("localTime", f.clock()))...)
		}
		return ok(hello...)
	case "endSessions", "killCursors":
		return ok()
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.answer == nil {
		return honest(c)
	}
	f.calls = append(f.calls, c)
	answer := f.answer
	f.mu.Unlock()
	defer f.mu.Lock()
	return answer(c)
}

// honest answers a probe as a server does that computes everything correctly and has not been probed before.
func honest(c call) bson.D {
	now := time.Now().Truncate(time.Millisecond)
	token := now.UnixMilli() * 1024
	value := func(fields ...bson.E) bson.D { return ok(e("value", append(bson.D(fields), e("now", now)))) }
	holder := func(claim, session string, w int, t int64) bson.D {
		return bson.D{e("a", claim), e("s", session), e("w", w), e("t", t), e("at", now)}
	}
	id, _ := c.cmd.Lookup("query", "_id").StringValueOK()
	_, alive := c.cmd.Lookup("query", "dead").DocumentOK()
	_, known := c.cmd.Lookup("query", "ttl").DocumentOK()
	heartbeat := alive && !known // not a Register
	asks := func(field string) bool {
		_, err := c.cmd.LookupErr("update", "0", "$set", "_", "$literal", field)
		return err == nil
	}
	next := token + 65_536
	there := func(h bson.D, term int64) bson.D { return append(h, e("p", int64(7)), e("n", term)) }
	two, three := there(holder("two.1", "two", 2, next), 5), there(holder("three.1", "three", 1, next+1024), 6)
	about := func(claim string) bool { return strings.Contains(c.cmd.String(), `"`+claim+`"`) }
	text := func(path ...string) string { s, _ := c.cmd.Lookup(path...).StringValueOK(); return s }
	done := func(n int) bson.D { return ok(e("n", n), e("nModified", n)) }
	changed := func(yes bool) bson.D {
		if yes {
			return ok(e("n", 1), e("nModified", 1))
		}
		return ok(e("n", 1), e("nModified", 0))
	}
	// Answers about the probe's records "short" and "new": see prober.short.
	const last = `{"$numberLong":"1031"}`
	switch shortOf(c) {
	case "short acquire":
		if strings.HasSuffix(text("updates", "0", "q", "_id"), "/new") {
			if about("$short.3") {
				return notMade
			}
			return made
		}
		return changed(about("$short.2") || about("$short.4"))
	case "short release":
		return changed(about("$short.2") && strings.Contains(c.cmd.String(), last))
	case "short hand-over":
		holds, first, t := "$short.4", "$short.5", int64(2062)
		for _, changes := range changesOfShort {
			last := c.cmd.Lookup(slices.Concat([]string{"update", "0"}, changes, []string{"$let", "in", "$cond", "0", "$eq", "1", "$literal", "1"})...)
			if known, isInt := last.AsInt64OK(); isInt && about("$short.5") && known > t {
				holds, first, t = "$short.5", "$short.6", known
			}
		}
		return value(e("h", bson.A{bson.D{e("a", holds)}}), e("t", t), e("f", 2), e("y", "mutex"), e("c", 1), e("waiting", 1),
			e("first", bson.D{e("a", first), e("s", "$mine"), e("w", 1)}))
	}
	switch {
	case c.name == "update" && about("one.1"):
		return done(0) // others wait, so the release must not be applied
	case c.name == "insert" || c.name == "delete" || c.name == "update":
		return done(1)
	case probeRecord(c) != "":
		return value()
	case c.name == "find": // the probe checks whether the collection is capped
		return refusal(2, "BadValue")
	case strings.HasSuffix(id, "/short") && asks("next") && about("$none.1"):
		return value(e("h", bson.A{holder("$short.6", "$mine", 1, token)}), e("waiting", 1))
	case strings.HasSuffix(id, "/short") && asks("next"):
		return value(e("h", bson.A{holder("$short.8", "$mine", 1, token+1024)}), e("at", now), e("waiting", 0))
	case strings.HasSuffix(id, "/short") && about("$short.7"):
		return value(e("h", bson.A{holder("$short.6", "$mine", 1, token)}), e("t", token), e("y", "mutex"), e("c", 1))
	case strings.HasSuffix(id, "/short") || strings.HasSuffix(id, "/new"):
		return value(e("h", bson.A{append(holder("$short.4", "$mine", 1, 2062)[:4], e("at", c.since))}), e("t", int64(2062)), e("y", "mutex"), e("c", 1),
			e("position", 1), e("waiting", 1))
	case c.name == "aggregate":
		return ok(e("cursor", bson.D{e("id", int64(0)), e("ns", "app.leasehold"), e("firstBatch", bson.A{bson.D{
			e("now", now), e("found", bson.A{bson.D{
				e("now", now), e("h", bson.A{three, holder("$mine.1", "$mine", 2, next+2048)}), e("t", next+2048), e("waiting", 0),
				e("y", "election"), e("n", 6), e("c", 3), e("p", bson.A{9, 8, 2}),
				e("done", bson.D{e("k", int64(5)), e("b", []byte("$$NOW"))}),
			}}),
		}})}))
	case strings.HasSuffix(id, "/key") && asks("value"):
		return value(e("h", bson.A{two, three}))
	case strings.HasSuffix(id, "/key") && asks("from"):
		return value(e("y", "election"), e("c", 3), e("p", bson.A{9, 8, 2}), e("at", now))
	case strings.HasSuffix(id, "/key") && asks("keep"):
		kept := append(holder("one.1", "one", 2, token)[:4], e("e", now.Add(30*time.Minute)))
		return value(e("h", bson.A{kept}), e("at", now), e("waiting", 4), e("ahead", bson.A{
			bson.D{e("a", "two.1"), e("s", "two"), e("w", 2), e("p", int64(7))},
		}))
	case strings.HasSuffix(id, "/key") && asks("done"):
		return value(e("h", bson.A{two, three}), e("ahead", bson.A{
			bson.D{e("a", "$mine.2"), e("s", "$mine"), e("w", 2)}, bson.D{e("a", "$mine.1"), e("s", "$mine"), e("w", 2)},
			bson.D{e("a", "later.1"), e("s", "later"), e("w", 2)},
		}))
	case strings.HasSuffix(id, "/key") && mineOf(c) == "one.1":
		return value(e("h", bson.A{two, three}), e("at", now), e("waiting", 2))
	case strings.HasSuffix(id, "/key") && about("$mine.3"):
		return value(e("position", 0), e("done", bson.D{e("k", int64(5)), e("b", []byte("$$NOW"))}))
	case strings.HasSuffix(id, "/key") && about("$mine.2"):
		published := append(slices.Clone(two), e("v", int64(1)), e("b", []byte("$t")))
		return value(e("h", bson.A{published, three}), e("t", next+1024), e("y", "election"), e("n", 6), e("c", 3), e("at", now),
			e("position", 1), e("waiting", 3))
	case strings.HasSuffix(id, "/key"):
		return value(
			e("h", bson.A{there(append(holder("one.1", "one", 2, token), e("l", true), e("b", []byte("$t"))), 4)}),
			e("t", next-1024), e("y", "election"), e("n", 4), e("c", 2), e("p", bson.A{9}), e("position", 3), e("waiting", 4), e("at", now),
			e("ahead", bson.A{bson.D{e("a", "two.1"), e("s", "two"), e("w", 2)}, bson.D{e("a", "three.1"), e("s", "three"), e("w", 1)}}))
	case strings.HasSuffix(id, "/living") && heartbeat && c.cmd.Lookup("fields", "p").IsNumber(): // Revoke
		return value(e("p", int64(3)))
	case strings.HasSuffix(id, "/living") && heartbeat:
		return value(e("at", now), e("rev", bson.A{bson.D{e("k", "\u00e9 b"), e("a", "$a.11")}}))
	case strings.HasSuffix(id, "/living") && about("$again"):
		return refusal(11000, "DuplicateKey")
	case strings.HasSuffix(id, "/living"):
		return value(e("at", now), e("ttl", time.Hour.Milliseconds()))
	case strings.HasSuffix(id, "/unknown") && heartbeat:
		return ok(e("value", nil))
	case strings.HasSuffix(id, "/unknown"):
		return value(e("at", now), e("dead", true))
	}
	return refusal(59, "CommandNotFound")
}

// mineOf returns the id of the claim that c's pipeline is for, or "" if there is none.
func mineOf(c call) string {
	scratch := []string{"update", "0", "$set", "_", "$literal"}
	for _, name := range [][]string{{"mine"}, {"claim", "a"}} {
		if mine, ok := c.cmd.Lookup(append(scratch, name...)...).StringValueOK(); ok {
			return mine
		}
	}
	return ""
}

// probeRecord returns the _id of the record of a passed probe that c is about, or "" if c is not about such a
// record.
func probeRecord(c call) string {
	id, isString := c.cmd.Lookup("query", "_id").StringValueOK()
	if !isString {
		id, _ = c.cmd.Lookup("updates", "0", "q", "_id").StringValueOK()
	}
	if !strings.HasPrefix(id, "x/probe/") {
		return ""
	}
	return id
}

// shortOf returns the name of the short command that c is, or "" if c is another command.
func shortOf(c call) string {
	path := []string{"update"}
	if c.name == "update" {
		path = []string{"updates", "0", "u"}
	}
	stages, isArray := c.cmd.Lookup(path...).ArrayOK()
	if !isArray {
		return ""
	}
	values := must(stages.Values())
	text := values[0].String()
	switch {
	case c.name == "findAndModify" && strings.Contains(text, "$$first"):
		return "short hand-over"
	case c.name == "update" && strings.Contains(text, `"$h.a"`):
		return "short release"
	case c.name == "update" && strings.Contains(text, `"$done"`):
		return "short acquire"
	}
	return ""
}
