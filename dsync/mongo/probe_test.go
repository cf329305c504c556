package mongo_test

import (
	"bytes"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	dsyncmongo "github.com/leasehold-go/leasehold/dsync/mongo"
	"go.mongodb.org/mongo-driver/v2/bson"
)

func TestProbe(t *testing.T) {
	change := func(match string, with func(bson.D) bson.D) func(call) bson.D {
		return func(c call) bson.D {
			answer := honest(c)
			if strings.Contains(c.cmd.String(), match) {
				answer = with(answer)
			}
			return answer
		}
	}
	changed := func(match string, n int) func(call) bson.D {
		return func(c call) bson.D {
			if c.name == "update" && strings.Contains(c.cmd.String(), match) {
				return ok(e("n", 1), e("nModified", n))
			}
			return honest(c)
		}
	}
	cases := []struct {
		name   string
		answer func(call) bson.D
		want   []string // in the error
	}{
		{"collation", func(c call) bson.D {
			if c.name == "insert" {
				return ok(e("n", 2), e("writeErrors", bson.A{bson.D{e("index", 2), e("code", 11000), e("errmsg", "E11000")}}))
			}
			return honest(c)
		}, []string{"collation"}},
		{"no right", func(c call) bson.D { return refusal(13, "Unauthorized") }, []string{"insert", "Unauthorized"}},
		{"acquire", func(c call) bson.D {
			return replaced(honest(c), "place", 1)
		}, []string{"acquire", "third in line"}},
		{"token", func(c call) bson.D {
			return replaced(honest(c), "t", int64(1024))
		}, []string{"acquire", "token"}},
		{"term", func(c call) bson.D {
			return replaced(honest(c), "n", int64(3))
		}, []string{"acquire", "term"}},
		{"value of one who is gone", func(c call) bson.D {
			if got, _ := c.cmd.Lookup("query", "_id").StringValueOK(); !strings.HasSuffix(got, "/key") {
				return honest(c)
			}
			reply := honest(c)
			token, _ := field(reply, "t").(int64) // with the room behind it
			return replaced(reply, "v", bson.D{e("t", token-64_512), e("b", []byte("x"))})
		}, []string{"acquire", "published"}},
		{"line's head", func(c call) bson.D {
			if d := honest(c); field(d, "place") == 1 {
				return replaced(d, "place", 2)
			}
			return honest(c)
		}, []string{"goes first"}},
		{"room behind a token", func(c call) bson.D {
			d := honest(c)
			h, _ := field(d, "h").(bson.A)
			if field(d, "place") == 1 {
				for _, h := range h { // of the token, and so of that after it
					h.(bson.D)[3].Value = h.(bson.D)[3].Value.(int64) - 1
				}
				return replaced(d, "t", field(d, "t").(int64)-1)
			}
			return d
		}, []string{"release", "room"}},
		{"who holds after a release", func(c call) bson.D {
			d := honest(c)
			if h, _ := field(d, "h").(bson.A); field(d, "place") == 1 {
				return replaced(d, "h", bson.A{h[1], h[0]})
			}
			return d
		}, []string{"release", "next two in line"}},
		{"too few hold after a release", func(c call) bson.D {
			d := honest(c)
			if h, _ := field(d, "h").(bson.A); field(d, "place") == 1 {
				return replaced(d, "h", h[:1])
			}
			return d
		}, []string{"release", "next two in line"}},
		{"terms after a release", func(c call) bson.D {
			if d := honest(c); field(d, "place") == 1 {
				return replaced(d, "n", 5)
			}
			return honest(c)
		}, []string{"release", "next but one"}},
		{"resize", change(`"from"`, func(d bson.D) bson.D { return replaced(d, "p", bson.A{9, 2}) }), []string{"resize", "8"}},
		{"seal", func(c call) bson.D {
			d := honest(c)
			if c.name == "aggregate" {
				batch := d[0].Value.(bson.D)[2].Value.(bson.A)[0].(bson.D)[1].Value.(bson.A)
				batch[0] = without("done")(batch[0].(bson.D))
			}
			return d
		}, []string{"seal"}},
		{"revocations", change(`"rev"`, func(d bson.D) bson.D { return replaced(d, "rev", "$a.1:JGE,") }), []string{"heartbeat", "revocations"}},
		{"publish", change(`"value"`, func(d bson.D) bson.D { return replaced(d, "h", bson.A{}) }), []string{"publish", "held false"}},
		{"release", func(c call) bson.D {
			if c.name == "update" {
				return ok(e("n", 0))
			}
			return honest(c)
		}, []string{"release", "found"}},
		{"late", changed(`"$short.0"`, 1), []string{"short acquire", "$short.0", "to be false"}},
		{"token without room", changed(`"$short.1"`, 1), []string{"short acquire", "$short.1", "to be false"}},
		{"short acquire", func(c call) bson.D {
			if d := honest(c); strings.Contains(c.cmd.String(), "/short") {
				return replaced(d, "t", int64(1))
			}
			return honest(c)
		}, []string{"short acquire", "the one that was sent"}},
		{"short acquire of what is held", changed(`"$short.3"`, 1), []string{"short acquire", "$short.3", "to be false"}},
		{"short release by another", changed("$$first", 1), []string{"short release", "$short.3", "to be false"}},
		{"short release", changed("$$first", 0), []string{"short release", "$short.2", "to be true"}},
		{"bury", change("/living", func(d bson.D) bson.D { return replaced(d, "dead", true) }), []string{"bury"}},
		{"register of a known session", change("$again", func(bson.D) bson.D {
			return ok(e("value", bson.D{e("at", time.Now())}))
		}), []string{"register", "known"}},
		{"bury of an unknown session", change("/unknown", func(d bson.D) bson.D {
			return replaced(replaced(d, "dead", false), "ttl", 1000)
		}), []string{"bury"}},
	}
	for _, tc := range cases {
		t.Run(tc.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := newFake(t)
				client := f.client()
				f.script(tc.answer)
				_, err := dsyncmongo.NewStore(t.Context(), client.Database("app"), nil)
				if err == nil {
					t.Fatal("no error")
				}
				for _, want := range tc.want {
					if !strings.Contains(err.Error(), want) {
						t.Errorf("got %v, want an error that says %q", err, want)
					}
				}
				calls := f.took()
				if last := calls[len(calls)-1]; last.name != "delete" {
					t.Errorf("the last command is %v, want the probe's records deleted", last.cmd)
				}
			})
		})
	}
}

// field is a field of the reply's value.
func field(reply bson.D, name string) any {
	for _, el := range reply {
		if value, isDoc := el.Value.(bson.D); isDoc && el.Key == "value" {
			for _, el := range value {
				if el.Key == name {
					return el.Value
				}
			}
		}
	}
	return nil
}

// replaced sets a field of the reply's value, if it has one.
func replaced(reply bson.D, field string, v any) bson.D {
	for _, el := range reply {
		value, isDoc := el.Value.(bson.D)
		if el.Key != "value" || !isDoc {
			continue
		}
		for i := range value {
			if value[i].Key == field {
				value[i].Value = v
				return reply
			}
		}
		return ok(e("value", append(value, e(field, v))))
	}
	return reply
}

func TestOpenReportsTheServer(t *testing.T) {
	cases := []struct {
		name  string
		hello func(bson.D) bson.D
		opt   dsyncmongo.Options
		want  []string
	}{
		{"replica set", nil, dsyncmongo.Options{}, []string{"MongoDB", "replica set", "portable=false", "change stream", "collection=leasehold"}},
		{"switched off", nil, dsyncmongo.Options{NoWatch: true, Collection: "locks"}, []string{"NoWatch", "collection=locks"}},
		{"not MongoDB", without("topologyVersion"), dsyncmongo.Options{}, []string{"compatible", "portable=true"}},
	}
	for _, tc := range cases {
		t.Run(tc.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var log bytes.Buffer
				tc.opt.Logger = slog.New(slog.NewTextHandler(&log, nil))
				f := newFake(t)
				if tc.hello != nil {
					f.hello = tc.hello(f.hello)
				}
				f.store(&tc.opt, nil)
				for _, want := range tc.want {
					if !strings.Contains(log.String(), want) {
						t.Errorf("the log says %q, want %q in it", log.String(), want)
					}
				}
			})
		})
	}
}

func without(field string) func(bson.D) bson.D {
	return func(d bson.D) bson.D {
		var rest bson.D
		for _, el := range d {
			if el.Key != field {
				rest = append(rest, el)
			}
		}
		return rest
	}
}

// On servers other than MongoDB a record is made before it is changed, once. It has the
// server's time, however far the host's is from that: Sweep judges its age by it.
func TestPortableMode(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake(t)
		told := time.Now().Add(365 * 24 * time.Hour).UTC()
		f.hello = append(without("topologyVersion")(f.hello), e("localTime", told))
		made := false
		s := f.store(nil, func(c call) bson.D {
			if upsert, _ := c.cmd.Lookup("upsert").BooleanOK(); upsert {
				t.Errorf("an upsert: %v", c.cmd)
			}
			switch {
			case c.name == "insert":
				made = true
				if at := c.cmd.Lookup("documents", "0", "at"); at.DateTime() != told.Add(time.Hour).UnixMilli() {
					t.Errorf("made at %v, want the server's time, %v", at, told.Add(time.Hour))
				}
				return ok(e("writeErrors", bson.A{bson.D{e("code", 11000)}})) // somebody else was faster
			case !made:
				return null(c)
			}
			return ok(e("value", bson.D{e("now", time.Now())}))
		})
		time.Sleep(time.Hour)
		for i, want := range []string{"findAndModify insert findAndModify", "findAndModify"} {
			f.script(f.answer)
			if _, err := s.Acquire(t.Context(), evilClaim, true, nil, time.Now()); err != nil {
				t.Fatal(err)
			}
			var got []string
			for _, c := range f.took() {
				got = append(got, c.name)
			}
			if got := strings.Join(got, " "); got != want {
				t.Errorf("acquire %d sent %s, want %s", i+1, got, want)
			}
		}
	})
}
