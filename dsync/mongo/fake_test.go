package mongo_test

import (
	"bytes"
	"context"
	"encoding/binary"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/leasehold-go/leasehold/dsync/driver"
	dsyncmongo "github.com/leasehold-go/leasehold/dsync/mongo"
	"github.com/leasehold-go/leasehold/internal/mongofake"
	"github.com/leasehold-go/leasehold/internal/testkit"
	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"
)

var (
	noErr    = testkit.NoErr
	inBubble = testkit.InBubble
)

// A fake is a server that speaks the wire protocol over net.Pipe. It answers commands with a function of the test, or,
// until there is one, with honest.
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
	db     *executor
}

// A call is one command that arrived.
type call struct {
	name   string
	cmd    bson.Raw
	honest func() bson.D // see honest
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

// changesOfShort are the paths of the changed fields in the first stage of a short command. The first is for an Acquire
// on MongoDB, the second for a hand-over on MongoDB, and the third for both on other servers.
var changesOfShort = [][]string{{"$replaceWith"}, {"$replaceWith", "$mergeObjects", "1"}, {"$set", "_"}}

// Failures that leave it unknown whether the command was applied.
var (
	lost   = mongofake.Lost
	silent = mongofake.Silent
)

// Answers to the upsert of a short acquire.
var (
	made    = ok(e("n", 1), e("nModified", 0), e("upserted", bson.A{bson.D{e("index", 0), e("_id", "k/k")}}))
	notMade = unwritten(241)   // the command was late, so it did not create a record
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
	f := &fake{t: t, hello: mongofake.Hello(), db: newExecutor()}
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
	c.honest = sync.OnceValue(func() bson.D { return f.db.answer(c) })
	f.mu.Lock()
	mute, hello := f.mute || c.name == f.keeps, f.hello[:len(f.hello):len(f.hello)]
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

// If c is about a record that remembers a probe, probeRecord returns the record's _id, otherwise "".
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

// If c is a short command, shortOf returns the command's name, otherwise "".
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
	has := func(value string) bool {
		length := binary.LittleEndian.AppendUint32(nil, uint32(len(value)+1))
		return bytes.Contains(values[0].Value, append(length, value+"\x00"...))
	}
	switch {
	case len(idsIn(c)) > 0 && bytes.Contains(values[0].Value, []byte("$replaceWith")):
		return "acquires together"
	case len(idsIn(c)) > 0:
		return "releases together"
	case c.name == "findAndModify" && bytes.Contains(values[0].Value, []byte("$$first")):
		return "short hand-over"
	case c.name == "update" && has("$h.e"):
		return "short keep"
	case c.name == "update" && has("$h.a"):
		return "short release"
	case c.name == "update" && (has("$done") || has("$o") && c.cmd.Lookup("updates", "0", "upsert").Type != 0):
		return "short acquire"
	}
	return ""
}
