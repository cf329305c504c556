package integration_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/leasehold-go/leasehold/dsync"
	dsyncmongo "github.com/leasehold-go/leasehold/dsync/mongo"
	"github.com/leasehold-go/leasehold/integration/internal/server"
	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/event"
	"go.mongodb.org/mongo-driver/v2/mongo/options"
)

// A tape has the commands that a client sent, to send them again.
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

// last returns the command that was sent last.
func (t *tape) last() bson.D {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.sent[len(t.sent)-1]
}

// Sent again at any later time, the short commands do nothing that their conditions
// do not allow, whatever the key has become.
func TestShortCommandsAreConditional(t *testing.T) {
	lab.Each(t, server.Need{}, func(t *testing.T, s *server.Server) {
		r := newRoom(t, s)
		ctx, other := t.Context(), r.store()
		tape := new(tape)
		client := r.Client(t, options.Client().SetMonitor(tape.monitor()))
		mine, err := dsyncmongo.NewStore(ctx, client.Database(r.DB), nil)
		if err != nil {
			t.Fatal(err)
		}
		// As in the conformance suite, what is not about time has plenty of it.
		soon := 700 * time.Millisecond
		claim := func(key string, n int) dsync.Claim {
			return dsync.Claim{Key: key, ID: fmt.Sprint("s.", n), Session: "s", Kind: dsync.KindMutex, Weight: 1, Limit: 1}
		}
		acquire := func(store dsync.Store, c dsync.Claim, limit time.Duration) dsync.State {
			t.Helper()
			before, err := store.Load(ctx, c.Key)
			if err != nil {
				t.Fatal(err)
			}
			st, err := store.Acquire(ctx, c, true, nil, before.Now.Add(limit))
			if err != nil {
				t.Fatal(err)
			}
			return st
		}
		release := func(store dsync.Store, c dsync.Claim, o dsync.Outcome) {
			t.Helper()
			st, err := store.Load(ctx, c.Key)
			if err != nil {
				t.Fatal(err)
			}
			h, _ := st.Holder(c.ID)
			c.Token = h.Token
			if found, err := store.Release(ctx, c, o); err != nil || !found {
				t.Fatalf("release of %s: found %t, %v", c.ID, found, err)
			}
		}
		// Of what is sent again, the short acquire of s.2 or its short release, the
		// condition on the token would mostly do: but for two cases it is met.
		const later = "a later token was given"
		cases := []struct {
			name    string
			acquire bool
			meet    func(key string)
			want    []string // the holders then
		}{
			{later, true, func(key string) {
				acquire(other, claim(key, 3), time.Hour)
				release(other, claim(key, 3), dsync.Outcome{})
			}, nil},
			{later, false, func(key string) {
				acquire(other, claim(key, 2), time.Hour)
				acquire(other, claim(key, 3), time.Hour)
			}, []string{"s.2"}},
			{"in time for a free key", true, func(string) {}, []string{"s.2"}},
			{"late", true, func(string) { time.Sleep(2 * soon) }, nil},
			{"held by another", true, func(key string) { acquire(other, claim(key, 3), time.Hour) }, []string{"s.3"}},
			{"held, with a line", true, func(key string) {
				acquire(other, claim(key, 3), time.Hour)
				acquire(other, claim(key, 4), time.Hour)
			}, []string{"s.3"}},
			{"sealed", true, func(key string) {
				acquire(other, claim(key, 3), time.Hour)
				release(other, claim(key, 3), dsync.Outcome{Seal: true})
			}, nil},
			{"used as another kind", true, func(key string) {
				c := claim(key, 3)
				c.Kind = dsync.KindElection
				acquire(other, c, time.Hour)
				release(other, c, dsync.Outcome{})
			}, nil},
			{"of another limit", true, func(key string) {
				if err := other.Resize(ctx, key, dsync.KindMutex, 1, 2); err != nil {
					t.Fatal(err)
				}
			}, nil},
			{"release of one that holds no more", false, func(key string) {
				acquire(other, claim(key, 3), time.Hour)
			}, []string{"s.3"}},
			{"release of one that holds again", false, func(key string) {
				acquire(other, claim(key, 2), time.Hour)
			}, nil},
			{"release with a line", false, func(key string) {
				acquire(other, claim(key, 2), time.Hour)
				acquire(other, claim(key, 3), time.Hour)
			}, []string{"s.3"}},
			{"release with a line that is not for it", false, func(key string) {
				acquire(other, claim(key, 2), time.Hour)
				lease := claim(key, 3)
				lease.Lease = time.Minute
				acquire(other, lease, time.Hour)
			}, []string{"s.2"}},
			{"release where one that has left is still told to yield", false, func(key string) {
				acquire(other, claim(key, 2), time.Hour)
				if _, err := r.raw().UpdateByID(ctx, "k/"+key, bson.D{{Key: "$set", Value: bson.D{{Key: "r", Value: "s.1,"}}}}); err != nil {
					t.Fatal(err)
				}
			}, []string{"s.2"}},
			{"release by one who is in line", false, func(key string) {
				acquire(other, claim(key, 3), time.Hour)
				acquire(other, claim(key, 2), time.Hour)
			}, []string{"s.3"}},
			{"release of one that has published", false, func(key string) {
				acquire(other, claim(key, 2), time.Hour)
				if err := other.Publish(ctx, claim(key, 2), 1, []byte("x")); err != nil {
					t.Fatal(err)
				}
			}, []string{"s.2"}},
		}
		changing := []string{"in time for a free key", "release of one that holds again", "release with a line"}
		for i, tc := range cases {
			key := fmt.Sprint("quiet", i)
			first := acquire(mine, claim(key, 1), time.Hour)
			release(mine, claim(key, 1), dsync.Outcome{})
			second := acquire(mine, claim(key, 2), soon)
			again := tape.last()
			if second.Token < first.Token+1024 || second.Now.Before(first.Now) || second.Holders[0].Since != second.Now {
				t.Errorf("%s: a short acquire after %+v was answered with %+v", tc.name, first, second)
			}
			release(mine, claim(key, 2), dsync.Outcome{})
			if !tc.acquire {
				again = tape.last()
			}
			tc.meet(key)
			if tc.name != later {
				last := second.Token
				if tc.acquire {
					last = first.Token
				}
				if _, err := r.raw().UpdateByID(ctx, "k/"+key, bson.D{{Key: "$set", Value: bson.D{{Key: "t", Value: last}}}}); err != nil {
					t.Fatal(err)
				}
			}
			before, err := r.raw().FindOne(ctx, bson.D{{Key: "_id", Value: "k/" + key}}).Raw()
			if err != nil {
				t.Fatal(err)
			}
			if err := client.Database(r.DB).RunCommand(ctx, again).Err(); err != nil {
				t.Fatalf("%s: %v", tc.name, err)
			}
			after, err := r.raw().FindOne(ctx, bson.D{{Key: "_id", Value: "k/" + key}}).Raw()
			if err != nil {
				t.Fatal(err)
			}
			st, err := other.Load(ctx, key)
			if err != nil {
				t.Fatal(err)
			}
			var got []string
			for _, h := range st.Holders {
				got = append(got, h.Claim)
			}
			if !slices.Equal(got, tc.want) {
				t.Errorf("%s: held by %q, want %q", tc.name, got, tc.want)
			}
			if changes := slices.Contains(changing, tc.name); changes == bytes.Equal(before, after) {
				t.Errorf("%s: %v became %v", tc.name, before, after)
			}
		}
	})
}

// What the short commands leave behind is, but for times and tokens, what the
// pipelines leave: those of a store that has not used the key before, of claims that
// are like simple ones but that they have a lease, which is taken away again.
func TestShortCommandsLeaveTheSame(t *testing.T) {
	for _, kind := range []dsync.Kind{dsync.KindMutex, dsync.KindElection} {
		t.Run(string(kind), func(t *testing.T) { leaveTheSame(t, kind) })
	}
}

func leaveTheSame(t *testing.T, kind dsync.Kind) {
	lab.Each(t, server.Need{}, func(t *testing.T, s *server.Server) {
		r := newRoom(t, s)
		ctx, store := t.Context(), r.store()
		until := time.Now().Add(time.Hour)
		claim := func(key string, n int) dsync.Claim {
			c := dsync.Claim{Key: key, ID: fmt.Sprint("s.", n), Session: "s", Kind: kind, Weight: 1, Limit: 1}
			if key == "long" {
				c.Lease = time.Hour
			}
			return c
		}
		record := func(key string) string {
			t.Helper()
			var d bson.D
			if err := r.raw().FindOne(ctx, bson.D{{Key: "_id", Value: "k/" + key}}).Decode(&d); err != nil {
				t.Fatal(err)
			}
			var lines []string
			for _, f := range d[1:] { // without the _id
				text := f.Key
				switch v := f.Value.(type) {
				case bson.A:
					for _, c := range v {
						for _, f := range c.(bson.D) {
							switch f.Key {
							case "a", "s", "w", "n":
								text += fmt.Sprintf(" %s:%v", f.Key, f.Value)
							case "e", "d": // of the lease
							default:
								text += " " + f.Key
							}
						}
						text += ";"
					}
				case string:
					text += " " + regexp.MustCompile(`[0-9]{10,}`).ReplaceAllString(v, "token")
				case int32:
					text += fmt.Sprint(" ", v)
				case int64:
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
				_, err := store.Acquire(ctx, claim(key, n), true, nil, until)
				return err
			}
		}
		release := func(n int) func(string) error {
			return func(key string) error {
				c := claim(key, n)
				st, err := store.Load(ctx, key)
				if err != nil {
					return err
				}
				h, _ := st.Holder(c.ID)
				c.Token = h.Token
				found, err := store.Release(ctx, c, dsync.Outcome{})
				if err == nil && !found {
					err = errors.New("not found")
				}
				return err
			}
		}
		each("the first acquire", acquire(1))
		each("release without a line", release(1))
		each("acquire of a free key", acquire(2))
		each("joining the line", acquire(3))
		each("joining the line behind it", acquire(4))
		if kind == dsync.KindElection {
			each("publishing", func(key string) error { return store.Publish(ctx, claim(key, 2), 1, []byte("x")) })
		}
		each("release with a line of two", release(2))
		each("release with a line of one", release(3))
		each("release of the last", release(4))
	})
}
