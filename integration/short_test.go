package integration_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/leasehold-go/leasehold/dsync/driver"
	dsyncmongo "github.com/leasehold-go/leasehold/dsync/mongo"
	"github.com/leasehold-go/leasehold/integration/internal/server"
	"github.com/leasehold-go/leasehold/internal/storecmd"
	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/event"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"
)

// A tape records the commands that a client sends, so that a test can repeat them.
type tape struct {
	mu   sync.Mutex
	sent []bson.D
}

func (t *tape) monitor() *event.CommandMonitor {
	return &event.CommandMonitor{Started: func(_ context.Context, e *event.CommandStartedEvent) {
		var fields, own bson.D
		if bson.Unmarshal(e.Command, &fields) != nil {
			return
		}
		for _, f := range fields {
			switch f.Key {
			case "lsid", "$db", "$clusterTime", "$readPreference", "maxTimeMS":
			default:
				own = append(own, f)
			}
		}
		t.mu.Lock()
		defer t.mu.Unlock()
		t.sent = append(t.sent, own)
	}}
}

// t.last returns the last command sent.
func (t *tape) last() bson.D {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.sent[len(t.sent)-1]
}

// unmet reports whether a short command failed because its conditions were not met.
func unmet(err error) bool {
	var refused mongo.WriteException
	return errors.As(err, &refused) && refused.HasErrorCode(241)
}

// If a short command (see dsync/mongo/short.go) is repeated later, it does nothing that its conditions forbid, whatever
// has happened to the key in the meantime.
func TestShortCommandsAreConditional(t *testing.T) {
	lab.Each(t, server.Need{}, func(t *testing.T, s *server.Server) {
		r := newRoom(t, s)
		ctx, other := t.Context(), r.store()
		tape := new(tape)
		client := r.Client(t, options.Client().SetMonitor(tape.monitor()))
		mine, err := dsyncmongo.NewStore(ctx, client.Database(r.DB), nil)
		noErr(t, err)
		// soon is the time limit of the repeated acquire. As in the conformance suite, other
		// operations get much more time.
		soon := 700 * time.Millisecond
		claim := func(key string, n int) driver.Claim {
			return driver.Claim{Key: key, ID: fmt.Sprint("s.", n), Session: "s", Kind: driver.KindMutex, Weight: 1, Limit: 1}
		}
		acquire := func(store driver.Store, c driver.Claim, limit time.Duration) driver.State {
			t.Helper()
			before, err := store.Load(ctx, c.Key, 1000)
			noErr(t, err)
			st, _, err := storecmd.Acquire(ctx, store, c, true, nil, before.Now.Add(limit))
			noErr(t, err)
			return st
		}
		release := func(store driver.Store, c driver.Claim, o driver.Release) {
			t.Helper()
			st, err := store.Load(ctx, c.Key, 1000)
			noErr(t, err)
			h, _ := st.Holder(c.ID)
			c.Token = h.Token
			if found, _, err := storecmd.Release(ctx, store, c, o); err != nil || !found {
				t.Fatalf("release of %s: found %t, %v", c.ID, found, err)
			}
		}
		observed := func(key string) {
			t.Helper()
			until := bson.D{{Key: "o", Value: time.Now().Add(time.Hour)}}
			if _, err := r.raw().UpdateByID(ctx, "k/"+key, bson.D{{Key: "$set", Value: until}}); err != nil {
				t.Fatal(err)
			}
		}
		// The repeated command is the short acquire of claim s.2, the short release of s.2 when it is the only claim,
		// the same with Keep, or the short hand-over from s.2. In most cases the condition on the token alone would make
		// the command change nothing. So the token is set back. The cases named by the constant later test this
		// condition, so they leave the token as it is.
		const (
			grant    = "acquire"
			alone    = "release"
			keep     = "release with Keep"
			handOver = "hand-over"
			later    = "a later token was given"
		)
		type key = string
		again := func(k key) { // claim s.2 is not kept any more, and holds the key again
			release(other, claim(k, 2), driver.Release{})
			acquire(other, claim(k, 2), time.Hour)
		}
		cases := []struct {
			what, name string
			meet       func(key)
			want       []string // the holders afterwards
			changes    bool
		}{
			{grant, later, func(k key) {
				acquire(other, claim(k, 3), time.Hour)
				release(other, claim(k, 3), driver.Release{})
			}, nil, false},
			{grant, "in time for a free key", func(key) {}, []string{"s.2"}, true},
			{grant, "late", func(key) { time.Sleep(2 * soon) }, nil, false},
			{grant, "held by another", func(k key) { acquire(other, claim(k, 3), time.Hour) }, []string{"s.3"}, false},
			{grant, "held, with a queue", func(k key) {
				acquire(other, claim(k, 3), time.Hour)
				acquire(other, claim(k, 4), time.Hour)
			}, []string{"s.3"}, false},
			{grant, "sealed", func(k key) {
				acquire(other, claim(k, 3), time.Hour)
				release(other, claim(k, 3), driver.Release{Seal: 1})
			}, nil, false},
			{grant, "used as another kind", func(k key) {
				c := claim(k, 3)
				c.Kind = driver.KindElection
				acquire(other, c, time.Hour)
				release(other, c, driver.Release{})
			}, nil, false},
			{grant, "of another limit", func(k key) {
				if _, err := storecmd.Resize(ctx, other, k, driver.KindMutex, 1, 2); err != nil {
					t.Fatal(err)
				}
			}, nil, false},
			{grant, "of a key that is observed", observed, nil, false},

			{alone, later, func(k key) { acquire(other, claim(k, 2), time.Hour) }, []string{"s.2"}, false},
			{alone, "of one that holds no more", func(k key) { acquire(other, claim(k, 3), time.Hour) }, []string{"s.3"}, false},
			{alone, "of one that holds again", func(k key) { acquire(other, claim(k, 2), time.Hour) }, nil, true},
			{alone, "with a queue", func(k key) {
				acquire(other, claim(k, 2), time.Hour)
				acquire(other, claim(k, 3), time.Hour)
			}, []string{"s.2"}, false},
			{alone, "of a waiter", func(k key) {
				acquire(other, claim(k, 3), time.Hour)
				acquire(other, claim(k, 2), time.Hour)
			}, []string{"s.3"}, false},
			{alone, "of one that has published", func(k key) {
				acquire(other, claim(k, 2), time.Hour)
				if _, err := storecmd.Publish(ctx, other, claim(k, 2), 1, []byte("x")); err != nil {
					t.Fatal(err)
				}
			}, nil, true},
			{alone, "of a key that is observed", func(k key) {
				acquire(other, claim(k, 2), time.Hour)
				observed(k)
			}, []string{"s.2"}, false},

			{keep, later, again, []string{"s.2"}, false},
			{keep, "of one that has an end", func(key) {}, []string{"s.2"}, false},
			{keep, "of one that holds no more", func(k key) {
				release(other, claim(k, 2), driver.Release{})
				acquire(other, claim(k, 3), time.Hour)
			}, []string{"s.3"}, false},
			{keep, "of one that holds again", again, []string{"s.2"}, true},
			{keep, "with a queue", func(k key) {
				again(k)
				acquire(other, claim(k, 3), time.Hour)
			}, []string{"s.2"}, false},
			{keep, "of a key that is observed", func(k key) {
				again(k)
				observed(k)
			}, []string{"s.2"}, false},

			{handOver, later, func(k key) {
				acquire(other, claim(k, 2), time.Hour)
				acquire(other, claim(k, 3), time.Hour)
			}, []string{"s.2"}, false},
			{handOver, "by one that holds no more", func(k key) { acquire(other, claim(k, 3), time.Hour) }, []string{"s.3"}, false},
			{handOver, "by one that holds again", func(k key) { acquire(other, claim(k, 2), time.Hour) }, nil, true},
			{handOver, "with a queue", func(k key) {
				acquire(other, claim(k, 2), time.Hour)
				acquire(other, claim(k, 3), time.Hour)
			}, []string{"s.3"}, true},
			{handOver, "with a first waiter that has a fixed lease", func(k key) {
				acquire(other, claim(k, 2), time.Hour)
				lease := claim(k, 3)
				lease.Lease = time.Minute
				acquire(other, lease, time.Hour)
			}, []string{"s.2"}, false},
			{handOver, "by a waiter", func(k key) {
				acquire(other, claim(k, 3), time.Hour)
				acquire(other, claim(k, 2), time.Hour)
			}, []string{"s.3"}, false},
			{handOver, "by one that has published", func(k key) {
				acquire(other, claim(k, 2), time.Hour)
				if _, err := storecmd.Publish(ctx, other, claim(k, 2), 1, []byte("x")); err != nil {
					t.Fatal(err)
				}
			}, nil, true},
		}
		for i, tc := range cases {
			key := fmt.Sprint("short", i)
			name := tc.what + ": " + tc.name
			first := acquire(mine, claim(key, 1), time.Hour)
			release(mine, claim(key, 1), driver.Release{})
			second := acquire(mine, claim(key, 2), soon)
			repeated := tape.last()
			if repeated[0].Key != "update" {
				t.Fatalf("%s: the acquire is not a short one: %v", name, repeated)
			}
			if second.Token < first.Token+1024 || second.Now.Before(first.Now.Add(-s.Skew)) || second.Holders[0].Since != second.Now {
				t.Errorf("%s: a short acquire after %+v was answered with %+v", name, first, second)
			}
			mineToo := claim(key, 2)
			mineToo.NoneWaiting = tc.what == alone || tc.what == keep
			var how driver.Release
			if tc.what == keep {
				how.Keep = time.Hour
			}
			release(mine, mineToo, how)
			if tc.what != grant {
				repeated = tape.last()
			}
			if tc.what == keep && repeated[0].Key != "update" {
				t.Fatalf("%s: the release is not a short one: %v", name, repeated)
			}
			tc.meet(key)
			if tc.name != later {
				last := second.Token
				if tc.what == grant {
					last = first.Token
				}
				if _, err := r.raw().UpdateByID(ctx, "k/"+key, bson.D{{Key: "$set", Value: bson.D{{Key: "t", Value: last}}}}); err != nil {
					t.Fatal(err)
				}
			}
			before, err := r.raw().FindOne(ctx, bson.D{{Key: "_id", Value: "k/" + key}}).Raw()
			noErr(t, err)
			if err := client.Database(r.DB).RunCommand(ctx, repeated).Err(); err != nil && (tc.changes || !unmet(err)) {
				t.Fatalf("%s: %v", name, err)
			}
			after, err := r.raw().FindOne(ctx, bson.D{{Key: "_id", Value: "k/" + key}}).Raw()
			noErr(t, err)
			st, err := other.Load(ctx, key, 1000)
			noErr(t, err)
			var got []string
			for _, h := range st.Holders {
				got = append(got, h.Claim)
			}
			if !slices.Equal(got, tc.want) {
				t.Errorf("%s: held by %q, want %q", name, got, tc.want)
			}
			if tc.changes == bytes.Equal(before, after) {
				t.Errorf("%s: the record was %v and is now %v", name, before, after)
			}
		}
	})
}

// If a key has no record, for whatever reason, a timely short acquire creates the record and grants the key. A late
// short acquire creates no record. If the key has a record, the short acquire has its usual effect.
func TestShortAcquireMakesTheRecord(t *testing.T) {
	lab.Each(t, server.Need{MongoDB: true}, func(t *testing.T, s *server.Server) {
		r := newRoom(t, s)
		ctx, other := t.Context(), r.store()
		tape := new(tape)
		client := r.Client(t, options.Client().SetMonitor(tape.monitor()))
		mine, err := dsyncmongo.NewStore(ctx, client.Database(r.DB), nil)
		noErr(t, err)
		soon := 700 * time.Millisecond
		claim := func(key string, n int) driver.Claim {
			return driver.Claim{Key: key, ID: fmt.Sprint("s.", n), Session: "s", Kind: driver.KindMutex, Weight: 1, Limit: 1}
		}
		hold := func(store driver.Store, c driver.Claim) driver.State {
			t.Helper()
			done, err := store.Edit(ctx, driver.Edit{Acquire: &driver.Acquire{
				Claim: c, Wait: true, NotAfter: load(t, other, c.Key).Now.Add(soon),
				Repeated: store == other, // the long command, whose token comes from the server's clock
			}})
			st := done.State
			noErr(t, err)
			if h, ok := st.Holder(c.ID); !ok || st.Token != h.Token || st.Waiting != 0 {
				t.Fatalf("%s of %q: got %+v, want it held", c.ID, c.Key, st)
			}
			return st
		}
		free := func(store driver.Store, c driver.Claim) {
			t.Helper()
			if found, _, err := storecmd.Release(ctx, store, c, driver.Release{}); err != nil || !found {
				t.Fatalf("release of %s: found %t, %v", c.ID, found, err)
			}
		}
		insert := func(key string, fields ...bson.E) {
			t.Helper()
			if _, err := r.raw().InsertOne(ctx, append(bson.D{{Key: "_id", Value: "k/" + key}}, fields...)); err != nil {
				t.Fatal(err)
			}
		}
		field := func(name string, v any) bson.E { return bson.E{Key: name, Value: v} }
		// freeSince returns a function that inserts a changed copy of the record: it has no holders, and its last token
		// is smaller by room.
		freeSince := func(room int64) func(string, bson.D) {
			return func(key string, was bson.D) {
				for i := range was {
					switch was[i].Key {
					case "h":
						was[i].Value = bson.A{}
					case "t":
						was[i].Value = was[i].Value.(int64) - room
					}
				}
				insert(key, was[1:]...)
			}
		}
		for i, tc := range []struct {
			name string
			meet func(key string, was bson.D) // prepares the record that the command meets
			want string                       // the holder afterwards
			made bool                         // whether there is a record afterwards
		}{
			{"in time", func(string, bson.D) {}, "s.1", true},
			{"late", func(string, bson.D) { time.Sleep(2 * soon) }, "", false},
			{"made, but no more than that", func(key string, _ bson.D) { insert(key, field("at", time.Now())) }, "s.1", true},
			{"made, but no more than that, and late", func(key string, _ bson.D) {
				insert(key, field("at", time.Now()))
				time.Sleep(2 * soon)
			}, "", true},
			{"observed before it was used", func(key string, _ bson.D) { insert(key, field("o", time.Now().Add(time.Hour))) }, "", true},
			{"held by another", func(key string, _ bson.D) { hold(other, claim(key, 2)) }, "s.2", true},
			{"free after another", func(key string, _ bson.D) {
				time.Sleep(50*time.Millisecond + s.Skew)
				hold(other, claim(key, 2))
				free(other, claim(key, 2))
			}, "", true}, // the other claim's token is greater
			{"free after another, of an earlier token", freeSince(1024), "s.1", true},
			{"free after another, without room for the token", freeSince(1023), "", true},
			{"of a later format", func(key string, was bson.D) {
				insert(key, field("f", 2), field("x", "y"))
			}, "", true},
		} {
			t.Run(tc.name, func(t *testing.T) {
				key := fmt.Sprint("new", i)
				hold(mine, claim(key, 1))
				again := tape.last()
				if again[0].Key != "update" {
					t.Fatalf("the acquire is not a short one: %v", again)
				}
				id := bson.D{{Key: "_id", Value: "k/" + key}}
				var was bson.D
				noErr(t, r.raw().FindOneAndDelete(ctx, id).Decode(&was))
				tc.meet(key, was)
				before, _ := r.raw().FindOne(ctx, id).Raw()
				_, err := client.Database(r.DB).RunCommand(ctx, again).Raw()
				if granted := tc.want == "s.1"; granted != (err == nil) || err != nil && !unmet(err) {
					t.Errorf("got error %v, want 241 if the key is not granted", err)
				}
				after, _ := r.raw().FindOne(ctx, id).Raw()
				if tc.made != (after != nil) {
					t.Errorf("there is a record: %t, want %t", after != nil, tc.made)
				}
				if held, _ := after.Lookup("h", "0", "a").StringValueOK(); held != tc.want {
					t.Errorf("held by %q, want %q", held, tc.want)
				}
				if tc.want != "s.1" && !bytes.Equal(before, after) {
					t.Errorf("the record was %v and is now %v", before, after)
				}
				if tc.name == "in time" { // repeat the command while the claim holds the key, and after its release
					for range 2 {
						if err := client.Database(r.DB).RunCommand(ctx, again).Err(); !unmet(err) {
							t.Fatal(err)
						}
						if now, _ := r.raw().FindOne(ctx, id).Raw(); !bytes.Equal(now, after) {
							t.Errorf("after the repeated command, the record was %v and is now %v", after, now)
						}
						if held, _ := after.Lookup("h", "0", "a").StringValueOK(); held != "" {
							free(other, claim(key, 1))
							after, _ = r.raw().FindOne(ctx, id).Raw()
						}
					}
				}
			})
		}
	})
}

// The short commands leave the same records as the pipelines, apart from times and tokens. To make
// the store use the pipelines, the test gives claims a lease; it does not compare the lease's
// fields.
func TestShortCommandsLeaveTheSame(t *testing.T) {
	for _, kind := range []driver.Kind{driver.KindMutex, driver.KindElection} {
		t.Run(string(kind), func(t *testing.T) { leaveTheSame(t, kind) })
	}
}

func leaveTheSame(t *testing.T, kind driver.Kind) {
	lab.Each(t, server.Need{}, func(t *testing.T, s *server.Server) {
		r := newRoom(t, s)
		ctx, store := t.Context(), r.store()
		until := time.Now().Add(time.Hour)
		claim := func(key string, n int) driver.Claim {
			c := driver.Claim{Key: key, ID: fmt.Sprint("s.", n), Session: "s", Kind: kind, Weight: 1, Limit: 1}
			if key == "long" {
				c.Lease = time.Hour
			}
			if n%2 == 0 {
				c.Value = fmt.Sprint("of ", n)
			}
			return c
		}
		record := func(key string) string {
			t.Helper()
			var d bson.D
			noErr(t, r.raw().FindOne(ctx, bson.D{{Key: "_id", Value: "k/" + key}}).Decode(&d))
			var lines []string
			for _, f := range d[1:] { // without the _id
				text := f.Key
				switch v := f.Value.(type) {
				case bson.A:
					for _, c := range v {
						for _, f := range c.(bson.D) {
							switch f.Key {
							case "a", "s", "w", "n", "b":
								text += fmt.Sprintf(" %s:%v %[2]T", f.Key, f.Value)
							case "e", "d": // the lease's fields
							default:
								text += fmt.Sprintf(" %s %T", f.Key, f.Value)
							}
						}
						text += ";"
					}
				case string:
					text += " " + v
				case int32:
					text += fmt.Sprint(" ", v)
				case int64:
					text += " long"
					if f.Key != "t" {
						text += fmt.Sprint(" ", v)
					}
				}
				lines = append(lines, text)
			}
			slices.Sort(lines)
			return strings.Join(lines, "\n")
		}
		same := func(after string) {
			t.Helper()
			if short, long := record("short"), record("long"); short != long {
				t.Errorf("after %s there is\n%s\nwhere the pipelines leave\n%s", after, short, long)
			}
		}
		each := func(what string, do func(key string) error) {
			t.Helper()
			for _, key := range []string{"short", "long"} {
				if err := do(key); err != nil {
					t.Fatalf("%s of %q: %v", what, key, err)
				}
			}
			same(what)
		}
		acquire := func(n int) func(string) error {
			return func(key string) error {
				_, _, err := storecmd.Acquire(ctx, store, claim(key, n), true, nil, until)
				return err
			}
		}
		release := func(n int, alone bool, keep time.Duration) func(string) error {
			return func(key string) error {
				c := claim(key, n)
				st, err := store.Load(ctx, key, 1000)
				if err != nil {
					return err
				}
				h, _ := st.Holder(c.ID)
				c.Token, c.NoneWaiting = h.Token, alone
				found, _, err := storecmd.Release(ctx, store, c, driver.Release{Keep: keep})
				if err == nil && !found {
					err = errors.New("not found")
				}
				return err
			}
		}
		each("the first acquire", acquire(1))
		each("release without a queue", release(1, true, 0))
		each("acquire of a free key", acquire(2))
		each("release by a holder that may have waiters", release(2, false, 0))
		each("acquire of a free key again", acquire(2))
		each("joining the queue", acquire(3))
		each("joining the queue behind the first waiter", acquire(4))
		if kind == driver.KindElection {
			each("publishing", func(key string) error {
				_, err := storecmd.Publish(ctx, store, claim(key, 2), 1, []byte("x"))
				return err
			})
		}
		each("release with two waiters", release(2, false, 0))
		each("release with one waiter", release(3, false, 0))
		each("release by the last holder, with Keep", release(4, true, time.Hour))
		each("release by the last holder", release(4, true, 0))
	})
}
