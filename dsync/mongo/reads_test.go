package mongo_test

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"maps"
	"net"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/leasehold-go/leasehold/clockcheck"
	"github.com/leasehold-go/leasehold/dsync"
	"github.com/leasehold-go/leasehold/dsync/driver"
	dsyncmongo "github.com/leasehold-go/leasehold/dsync/mongo"
	"github.com/leasehold-go/leasehold/internal/storecmd"
	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"
)

// cursor returns the reply to an aggregate that finds the given documents.
func cursor(docs ...bson.D) bson.D {
	batch := bson.A{}
	for _, d := range docs {
		batch = append(batch, d)
	}
	return ok(e("cursor", bson.D{e("id", int64(0)), e("ns", "app.leasehold"), e("firstBatch", batch)}))
}

// If the server supports majority reads, reads of keys use them. Reads of sessions never do, because their results
// only set timers.
func TestReadsOfKeysAreCommitted(t *testing.T) {
	servers := map[string]struct {
		hello    func(bson.D) bson.D
		want     string // read concern of the commands that read keys
		sessions string
	}{
		"replica set": {func(d bson.D) bson.D { return d }, "majority", "local"},
		"mongos":      {asMongos, "majority", "local"},
		"standalone":  {asStandalone, "", ""},
		"not MongoDB": {without("topologyVersion"), "", ""},
	}
	for name, server := range servers {
		inBubble(t, name, func(t *testing.T) {
			f := newFake(t)
			f.hello = server.hello(f.hello)
			s := f.storeOn(f.anyClient(), nil, func(call) bson.D { return cursor(bson.D{e("now", time.Now()), e("found", bson.A{})}) })
			for _, read := range []struct {
				name string
				key  bool
				do   func() error
			}{
				{"Load", true, func() error { _, err := s.Load(t.Context(), "k", 1000); return err }},
				{"Keys of a session", true, func() error {
					_, err := s.Keys(t.Context(), driver.KeyQuery{Keys: []string{"k"}, Session: "s"})
					return err
				}},
				{"Keys", true, func() error { _, err := s.Keys(t.Context(), driver.KeyQuery{Limit: 10}); return err }},
				{"Members", false, func() error { _, _, err := storecmd.Members(t.Context(), s); return err }},
				{"Liveness", false, func() error { _, _, err := storecmd.Liveness(t.Context(), s, "s"); return err }},
			} {
				f.script(f.answer)
				if err := read.do(); err != nil {
					t.Errorf("%s: %v", read.name, err)
				}
				want := server.sessions
				if read.key {
					want = server.want
				}
				if got, _ := f.took()[0].cmd.Lookup("readConcern", "level").StringValueOK(); got != want {
					t.Errorf("%s has the read concern %q, want %q", read.name, got, want)
				}
			}
		})
	}
}

// Every field of a session's record is read back.
func TestMembersReadsEveryField(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		at, now := time.UnixMilli(1_700_000_000_123).UTC(), time.UnixMilli(1_700_000_001_456).UTC()
		s := newFake(t).store(nil, func(call) bson.D {
			return cursor(bson.D{e("now", now), e("found", bson.A{
				bson.D{e("_id", "s/one"), e("at", at), e("ttl", int64(61_234)), e("dead", true), e("name", "n"), e("host", "h"),
					e("pid", 4711), e("app", "a"), e("meta", bson.A{bson.D{e("k", "$x.y"), e("v", "z")}, bson.D{e("k", ""), e("v", "")}}),
					e("opt", bson.D{e("v", "v1.2.3"), e("h", int64(1)), e("p", int64(2)), e("m", int64(3)), e("g", int64(4))}), e("file", "f")},
				bson.D{e("_id", "s/two"), e("at", now), e("ttl", int64(1))},
			})})
		})
		for name, q := range map[string]driver.SessionQuery{"Sessions": {}, "their liveness": {Liveness: true}} {
			q.IDs = []string{"one", "two"}
			m, read, err := s.Sessions(t.Context(), q)
			if err != nil || len(m) != 2 || !read.Equal(now) {
				t.Fatalf("%s: %+v at %v, %v", name, m, read, err)
			}
			one, two := m[0], m[1]
			if one.ID != "one" || !one.LastHeartbeat.Equal(at) || one.TTL != 61_234*time.Millisecond || !one.Expired || one.Name != "n" || one.Host != "h" ||
				one.PID != 4711 || one.App != "a" || one.HostFile != "f" || !maps.Equal(one.Meta, map[string]string{"$x.y": "z", "": ""}) ||
				one.Settings != (driver.Settings{Version: "v1.2.3", Heartbeat: time.Millisecond, Poll: 2 * time.Millisecond, Margin: 3 * time.Millisecond, Grace: 4 * time.Millisecond}) {
				t.Errorf("%s: %+v", name, one)
			}
			if two.ID != "two" || !two.LastHeartbeat.Equal(now) || two.TTL != time.Millisecond || two.Expired || two.Name+two.Host+two.App != "" || two.PID != 0 || two.Meta != nil {
				t.Errorf("%s: %+v", name, two)
			}
		}
	})
}

// If Keys is called with a prefix, it reads up to the first string, in byte order, after all strings that begin with
// the prefix. This holds whatever the prefix ends with.
func TestKeysEndBehindThePrefix(t *testing.T) {
	for prefix, want := range map[string]string{
		"":                     "k0",
		"a":                    "k/b",
		"a/":                   "k/a0",
		"az":                   "k/a{",
		"é":                    "k/ê",
		"a\uD7FF":              "k/a\uE000", // the code points in between are surrogates, which are not valid characters
		"a\uFFFF":              "k/a\U00010000",
		"a\U0010FFFF":          "k/b",
		"\U0010FFFF\U0010FFFF": "k0",
	} {
		synctest.Test(t, func(t *testing.T) {
			f := newFake(t)
			s := f.store(nil, func(call) bson.D { return cursor() })
			if _, err := s.Keys(t.Context(), driver.KeyQuery{Prefix: prefix, Limit: 10}); err != nil {
				t.Fatal(err)
			}
			within := f.took()[0].cmd.Lookup("pipeline", "0", "$match", "_id").Document()
			from, to := within.Lookup("$gte").StringValue(), within.Lookup("$lt").StringValue()
			if from != "k/"+prefix || to != want {
				t.Errorf("prefix %q: from %q to before %q, want %q and %q", prefix, from, to, "k/"+prefix, want)
			}
		})
	}
}

// If ctx is about to end, a write still has a wtimeout of at least 1 ms, because 0 would make the server wait
// for a majority without limit.
func TestMajorityWaitAlwaysEnds(t *testing.T) {
	for _, left := range []time.Duration{time.Nanosecond, 100 * time.Microsecond, 999 * time.Microsecond, 1500 * time.Microsecond} {
		for _, m := range methods {
			if !m.writes {
				continue
			}
			inBubble(t, left.String()+"/"+m.name, func(t *testing.T) {
				f := newFake(t)
				s := f.store(nil, null)
				ctx, cancel := context.WithTimeout(t.Context(), left)
				defer cancel()
				_ = m.call(ctx, s) // may return an error: there is no such record, or ctx has ended
				calls := f.took()
				if len(calls) == 0 {
					t.Fatal("nothing was sent")
				}
				if ms, _ := calls[0].cmd.Lookup("writeConcern", "wtimeout").AsInt64OK(); ms != 1 {
					t.Errorf("wtimeout is %d, want 1: %v", ms, calls[0].cmd)
				}
			})
		}
	}
}

// A dialer connects each address to its fake.
type dialer map[string]*fake

func (d dialer) DialContext(ctx context.Context, network, address string) (net.Conn, error) {
	return d[address].DialContext(ctx, network, address)
}

// Open warns if and only if the servers' clocks are farther apart than the margin.
func TestOpenComparesTheSpreadWithTheMargin(t *testing.T) {
	const margin = 300 * time.Millisecond
	for _, apart := range []time.Duration{0, margin - 50*time.Millisecond, margin + 50*time.Millisecond, -margin - 50*time.Millisecond, time.Hour} {
		inBubble(t, apart.String(), func(t *testing.T) {
			hosts := bson.A{"a:27017", "b:27017"}
			a, b := newFake(t), newFake(t)
			d := dialer{"a:27017": a, "b:27017": b}
			for me, f := range d {
				f.hello = bson.D{e("hosts", hosts), e("me", me), e("primary", "a:27017"), e("isWritablePrimary", f == a), e("secondary", f == b)}
				f.hello = append(f.hello, without("isWritablePrimary")(without("ismaster")(without("hosts")(without("me")(without("primary")(newFake(t).hello)))))...)
			}
			a.clock, b.clock = time.Now, func() time.Time { return time.Now().Add(apart) }
			to := options.Client().ApplyURI("mongodb://a:27017,b:27017/?replicaSet=rs").SetDialer(d).SetServerMonitoringMode("poll")
			t.Cleanup(func() { b.End(); b.Wait() }) // runs after the client has disconnected
			client := a.clientOf(to)
			var log bytes.Buffer
			s, err := dsyncmongo.Open(t.Context(), client.Database("app"), &dsyncmongo.Options{
				ClockCheck: &clockcheck.Options{NoLimit: true, Servers: to},
				Session:    dsync.Options{Margin: margin, Logger: slog.New(slog.NewTextHandler(&log, nil))},
			})
			noErr(t, err)
			if err := s.Close(t.Context()); err != nil {
				t.Error(err)
			}
			if !strings.Contains(log.String(), "clock.servers=2") {
				t.Errorf("the log does not have the measurements of both servers:\n%s", &log)
			}
			warned := strings.Contains(log.String(), "farther apart than the margin")
			if want := apart.Abs() > margin; warned != want {
				t.Errorf("warned %t, want %t:\n%s", warned, want, &log)
			}
		})
	}
}

// asMongos and asStandalone take a replica set member's reply to hello. They turn it into the reply of a mongos or a
// standalone.
func asMongos(d bson.D) bson.D { return append(without("setName")(d), e("msg", "isdbgrid")) }

func asStandalone(d bson.D) bson.D {
	for _, field := range []string{"setName", "hosts", "me", "primary", "setVersion"} {
		d = without(field)(d)
	}
	return d
}

// anyClient returns a client for a server that need not be a member of a replica set.
func (f *fake) anyClient(opts ...*options.ClientOptions) *mongo.Client {
	f.t.Helper()
	any := options.Client().SetHosts([]string{"fake:27017"}).SetDialer(f).SetServerMonitoringMode("poll")
	return f.clientOf(options.MergeClientOptions(append(opts, any)...))
}

// clientOf returns a client with only the given options.
func (f *fake) clientOf(opt *options.ClientOptions) *mongo.Client {
	f.t.Helper()
	c, err := mongo.Connect(opt)
	if err != nil {
		f.t.Fatal(err)
	}
	f.t.Cleanup(func() {
		// The context has no deadline. With a deadline, the driver may wait in a busy loop (v2.9.3, pool.close), and
		// this loop would never end in a bubble.
		if err := c.Disconnect(context.Background()); err != nil {
			f.t.Error(err)
		}
		f.End()
		f.Wait()
	})
	return c
}

// RecordName returns what a person needs to find the record: the collection and a filter.
func TestRecordName(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake(t)
		s := f.store(nil, func(call) bson.D { return cursor() })
		if got, want := s.(driver.Namer).RecordName(`a "b"`), `app.leasehold {_id: "k/a \"b\""}`; got != want {
			t.Errorf("the record is %s, want %s", got, want)
		}
	})
}

// A read-only store reads as usual. Methods that would write return an error and send nothing.
func TestReadOnly(t *testing.T) {
	for _, m := range methods {
		inBubble(t, m.name, func(t *testing.T) {
			f := newFake(t)
			s := f.store(&dsyncmongo.Options{ReadOnly: true}, null)
			err := m.call(t.Context(), s)
			if got := len(f.took()); m.writes != (got == 0) {
				t.Errorf("%d commands were sent, want none if the method writes (%v), otherwise some", got, m.writes)
			}
			if m.writes && !errors.Is(err, driver.ErrRefused) {
				t.Errorf("got %v, want ErrRefused", err)
			}
			for _, c := range f.took() {
				if c.name != "aggregate" {
					t.Errorf("%s was sent, want only aggregate", c.name)
				}
			}
		})
	}
}

// A read-only store sends no short commands either.
func TestReadOnlySendsNoShortCommand(t *testing.T) {
	for _, kind := range []driver.Kind{driver.KindMutex, driver.KindElection} {
		synctest.Test(t, func(t *testing.T) {
			f := newFake(t)
			s := f.store(&dsyncmongo.Options{ReadOnly: true}, func(call) bson.D { return ok(e("n", 1), e("nModified", 1)) })
			c := mutexClaim(1)
			c.Kind = kind
			if found, _, err := storecmd.Release(t.Context(), s, c, driver.Release{}); found || !errors.Is(err, driver.ErrRefused) {
				t.Errorf("%s: Release: found %t, %v, want ErrRefused", kind, found, err)
			}
			if got := f.took(); len(got) != 0 {
				t.Errorf("%s: sent %v, want nothing", kind, got)
			}
		})
	}
}

// Opening a read-only session and trying a lock with it send no command but hello.
func TestReadOnlySession(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake(t)
		client := f.client()
		f.script(null)
		s, err := dsyncmongo.Open(t.Context(), client.Database("app"), &dsyncmongo.Options{ReadOnly: true})
		noErr(t, err)
		if _, err := s.Mutex("k").TryHold(t.Context()); !errors.Is(err, driver.ErrRefused) {
			t.Errorf("TryHold: %v, want ErrRefused", err)
		}
		if err := s.Close(t.Context()); err != nil {
			t.Error(err)
		}
		for i, c := range f.took() {
			if i > 0 || c.name != "hello" {
				t.Errorf("command %d is %s, want none but hello", i, c.name)
			}
		}
	})
}
