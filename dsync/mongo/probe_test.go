package mongo_test

import (
	"bytes"
	"errors"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/leasehold-go/leasehold/dsync/driver"
	dsyncmongo "github.com/leasehold-go/leasehold/dsync/mongo"
	"github.com/leasehold-go/leasehold/internal/storecmd"
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
				return ok(e("n", n), e("nModified", n))
			}
			return honest(c)
		}
	}
	// read drops a field from the reading of a record.
	read := func(record, field string) func(call) bson.D {
		return func(c call) bson.D {
			d := honest(c)
			if c.name == "aggregate" && strings.Contains(c.cmd.String(), record) {
				batch := d[0].Value.(bson.D)[2].Value.(bson.A)[0].(bson.D)[1].Value.(bson.A)
				batch[0] = without(field)(batch[0].(bson.D))
			}
			return d
		}
	}
	// short changes the replies to a claim's short command.
	short := func(command, claim string, with func(bson.D) bson.D) func(call) bson.D {
		return func(c call) bson.D {
			d := honest(c)
			if shortOf(c) == command && strings.Contains(c.cmd.String(), `"`+claim+`"`) {
				d = with(d)
			}
			return d
		}
	}
	// handed changes the reply to a short hand-over whose conditions are met.
	handed := func(with func(bson.D) bson.D) func(call) bson.D {
		return func(c call) bson.D {
			d := honest(c)
			if first, ok := field(d, "first").(bson.D); ok && shortOf(c) == "short hand-over" && first[0].Value == "$short.6" {
				d = with(d)
			}
			return d
		}
	}
	// upsert replaces the reply to a claim's short acquire of a key without a record.
	upsert := func(claim string, reply bson.D) func(call) bson.D {
		return func(c call) bson.D {
			if text := c.cmd.String(); shortOf(c) == "short acquire" && !strings.Contains(text, "/short") && strings.Contains(text, claim) {
				return reply
			}
			return honest(c)
		}
	}
	done := func(n int) func(bson.D) bson.D {
		return func(bson.D) bson.D { return ok(e("n", 1), e("nModified", n)) }
	}
	drop := func(f string) func(bson.D) bson.D {
		return func(d bson.D) bson.D { return replaced(d, f, nil) }
	}
	isMine := func(c call, claim, more string) bool {
		mine := mineOf(c)
		_, err := c.cmd.LookupErr("update", "0", "$set", "_", "$literal", more)
		return mine == claim && (err == nil || more == "")
	}
	reply := func(claim, more string, with func(bson.D) bson.D) func(call) bson.D {
		return func(c call) bson.D {
			if isMine(c, claim, more) {
				return with(honest(c))
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
		{"no right", func(c call) bson.D {
			if c.name == "insert" {
				return refusal(13, "Unauthorized")
			}
			return honest(c)
		}, []string{"insert", "Unauthorized"}},
		{"acquire", func(c call) bson.D {
			return replaced(honest(c), "position", 1)
		}, []string{"acquire", "$mine.1", "want Position 3"}},
		{"token", func(c call) bson.D {
			return replaced(honest(c), "t", int64(1024))
		}, []string{"acquire", "want Token"}},
		{"term", func(c call) bson.D {
			return replaced(honest(c), "n", int64(3))
		}, []string{"acquire", "want Terms 4"}},
		{"value of the holder", func(c call) bson.D {
			reply := honest(c)
			holders, ok := field(reply, "h").(bson.A)
			if got, _ := c.cmd.Lookup("query", "_id").StringValueOK(); !strings.HasSuffix(got, "/key") || !ok {
				return reply
			}
			h := slices.DeleteFunc(slices.Clone(holders[0].(bson.D)), func(el bson.E) bool { return el.Key == "b" })
			return replaced(reply, "h", bson.A{append(h, e("b", []byte("x")))})
		}, []string{"acquire", "$mine.1", "want Holders"}},
		{"line's head", func(c call) bson.D {
			if d := honest(c); field(d, "position") == 1 {
				return replaced(d, "position", 2)
			}
			return honest(c)
		}, []string{"acquire", "$mine.2", "want Position 1"}},
		{"room behind a token", func(c call) bson.D {
			d := honest(c)
			h, _ := field(d, "h").(bson.A)
			if field(d, "position") == 1 {
				for _, h := range h { // this token and the next are too small by one
					h.(bson.D)[3].Value = h.(bson.D)[3].Value.(int64) - 1
				}
				return replaced(d, "t", field(d, "t").(int64)-1)
			}
			return d
		}, []string{"acquire", "$mine.2", "want Holders"}},
		{"who holds after a release", func(c call) bson.D {
			d := honest(c)
			if h, _ := field(d, "h").(bson.A); field(d, "position") == 1 && len(h) == 2 {
				return replaced(d, "h", bson.A{h[1], h[0]})
			}
			return d
		}, []string{"acquire", "$mine.2", "want Holders"}},
		{"too few hold after a release", func(c call) bson.D {
			d := honest(c)
			if h, _ := field(d, "h").(bson.A); field(d, "position") == 1 {
				return replaced(d, "h", h[:1])
			}
			return d
		}, []string{"acquire", "$mine.2", "want Holders"}},
		{"terms after a release", func(c call) bson.D {
			if d := honest(c); field(d, "position") == 1 {
				return replaced(d, "n", 5)
			}
			return honest(c)
		}, []string{"acquire", "$mine.2", "want Terms 6"}},
		{"resize", change(`"from"`, func(d bson.D) bson.D { return replaced(d, "p", bson.A{9, 2}) }), []string{"resize", "want Former [9 8 2]"}},
		{"seal", read("/key", "done"), []string{"load", "want Value"}},
		{"who holds after a seal", read("/key", "h"), []string{"load", "want Holders"}},
		{"who joins after a seal", reply("$mine.3", "claim", func(d bson.D) bson.D {
			return replaced(d, "position", 1)
		}), []string{"acquire", "$mine.3", "want Position 0"}},
		{"revocations", change(`"rev"`, func(d bson.D) bson.D { return replaced(d, "rev", bson.A{bson.D{e("k", "$a"), e("a", "$a.1")}}) }), []string{"heartbeat", "revocations"}},
		{"publish", change(`"value"`, func(d bson.D) bson.D { return replaced(d, "h", bson.A{}) }), []string{"publish", "two.1", "want it applied: true"}},
		{"release", func(c call) bson.D {
			if isMine(c, "one.1", "") && !isMine(c, "one.1", "keep") {
				return null(c)
			}
			return honest(c)
		}, []string{"release", "one.1", "want it applied: true"}},
		{"who was granted it", reply("$mine.1", "claim", func(d bson.D) bson.D {
			h := field(d, "h").(bson.A)[0].(bson.D)
			return replaced(d, "h", bson.A{without("p")(h)})
		}), []string{"acquire", "$mine.1", "want Holders"}},
		{"the date of a change", reply("$mine.1", "claim", func(d bson.D) bson.D {
			return replaced(d, "at", time.UnixMilli(1))
		}), []string{"acquire", "$mine.1", "want At"}},
		{"the order of ticks", reply("$mine.1", "claim", func(d bson.D) bson.D {
			return replaced(d, "position", 4)
		}), []string{"acquire", "$mine.1", "want Position 3"}},
		{"who observes", reply("$mine.1", "claim", func(d bson.D) bson.D {
			return replaced(d, "o", time.UnixMilli(1))
		}), []string{"acquire", "$mine.1", "want Observed"}},
		{"who was granted it by a release", reply("one.1", "", func(d bson.D) bson.D {
			return replaced(d, "waiting", 0)
		}), []string{"release", "one.1", "want Waiting 4"}},
		{"the date of a release", reply("one.1", "", drop("at")), []string{"release", "one.1", "want At"}},
		{"the date of a new limit", change(`"from"`, drop("at")), []string{"resize", "want At"}},
		{"who is woken by a keep", reply("one.1", "keep", drop("ahead")), []string{"release", "one.1", "want Ahead"}},
		{"keep", reply("one.1", "keep", drop("h")), []string{"release", "one.1", "want Holders"}},
		{"alone with a queue", changed(`"one.1"`, 1), []string{"release of the only claim", "one.1", "want it applied: false"}},
		{"alone", changed(`"three.1"`, 0), []string{"release of the only claim", "three.1", "want it applied: true"}},
		{"who was in the queue before a seal", reply("two.1", "done", drop("ahead")), []string{"release", "two.1", "want Ahead"}},
		{"sealed before", reply("two.1", "done", func(d bson.D) bson.D {
			return replaced(d, "done", bson.D{e("k", int64(1))})
		}), []string{"release", "two.1", "want Done <nil>"}},
		{"late", changed(`"$short.0"`, 1), []string{"short acquire", "$short.0", "applied: false"}},
		{"token without room", changed(`"$short.1"`, 1), []string{"short acquire", "$short.1", "applied: false"}},
		{"short acquire", func(c call) bson.D {
			if d := honest(c); strings.Contains(c.cmd.String(), "/short") {
				return replaced(d, "t", int64(1))
			}
			return honest(c)
		}, []string{"acquire", "$short.5", "want Token"}},
		{"short acquire of what is held", changed(`"$short.3"`, 1), []string{"short acquire", "$short.3", "applied: false"}},
		{"short release by another", short("short release", "$short.3", done(1)), []string{"short release", "$short.3", "applied: false"}},
		{"short release", short("short release", "$short.2", done(0)), []string{"short release", "$short.2", "applied: true"}},
		{"short release with a queue", short("short release", "$short.4", done(1)), []string{"short release", "$short.4", "applied: false"}},
		{"short acquire of what is free again", short("short acquire", "$short.4", done(0)), []string{"short acquire", "$short.4", "applied: true"}},
		{"hand-over by another", short("short hand-over", "$short.5", func(d bson.D) bson.D {
			return replaced(d, "h", bson.A{bson.D{e("a", "$short.5")}})
		}), []string{"short hand-over", "$short.5", "applied: false"}},
		{"replacement that is late", short("short hand-over", "$short.6", func(d bson.D) bson.D {
			return replaced(d, "now", time.UnixMilli(1))
		}), []string{"short hand-over", "$short.4", "applied: false"}},
		{"replacement", short("short hand-over", "$short.6", drop("h")), []string{"short hand-over", "$short.4", "applied: true"}},
		{"the waiter that a replacement grants", short("short hand-over", "$short.6", drop("first")), []string{"short hand-over", "want the first waiter"}},
		{"hand-over", handed(drop("h")), []string{"short hand-over", "$short.5", "applied: true"}},
		{"the waiter that a hand-over grants", handed(drop("first")), []string{"short hand-over", "want the first waiter"}},
		{"the time of a hand-over", handed(drop("now")), []string{"short hand-over", "time"}},
		{"release to a claim that does not wait", reply("$short.6", "next", func(d bson.D) bson.D {
			if h := field(d, "h").(bson.A); h[0].(bson.D)[0].Value == "$short.6" {
				return replaced(d, "h", bson.A{})
			}
			return d
		}), []string{"release", "$short.6", "not in the queue"}},
		{"release to a named claim", reply("$short.6", "next", func(d bson.D) bson.D {
			if field(d, "waiting") == 0 {
				return replaced(d, "waiting", 1)
			}
			return d
		}), []string{"release", "$short.6", "want Waiting 0"}},
		{"short keep", short("short keep", "$short.6", done(0)), []string{"short release", "$short.6", "applied: true"}},
		{"short keep of what has an end", short("short keep", "$short.6", done(1)), []string{"short release", "$short.6", "applied: false"}},
		{"the end that a short keep sets", read("/short", "h"), []string{"short release", "$short.6", "want an end 1h0m0s"}},
		{"the date of a release to a named claim", reply("$short.6", "next", drop("at")), []string{"release", "$short.6", "want At"}},
		{"short acquire that makes a record too late", upsert("$short.3", made), []string{"short acquire", "$short.3", "applied: false"}},
		{"short acquire that makes no record", upsert("$short.4", notMade), []string{"short acquire", "$short.4", "applied: true"}},
		{"what a short acquire makes", change("/new", func(d bson.D) bson.D { return replaced(d, "c", 2) }), []string{"acquire", "$short.5", "want Limit 1"}},
		{"of a new key, late", upsert("$many.0", made), []string{"short acquire of a new key", "$many.0", "applied: false"}},
		{"of a new key", upsert("$many.1", notMade), []string{"short acquire of a new key", "$many.1", "applied: true"}},
		{"of a new key, which is held", upsert("$many.2", made), []string{"short acquire of a new key", "$many.2", "applied: false"}},
		{"together, of what is held", short("acquires together", "$many.2", done(1)), []string{"acquires together", "$many.2", "applied: false"}},
		{"released together by another", short("releases together", "$many.2", done(1)), []string{"releases together", "$many.2", "applied: false"}},
		{"released together with an earlier token", short("releases together", "$many.1", done(1)), []string{"releases together", "$many.1", "applied: false"}},
		{"released together", short("releases together", "$many.1", done(0)), []string{"releases together", "$many.1", "applied: true"}},
		{"together, late", short("acquires together", "$many.3", done(1)), []string{"acquires together", "$many.3", "applied: false"}},
		{"together, token without room", short("acquires together", "$many.3", done(1)), []string{"acquires together", "$many.3", "applied: false"}},
		{"together, of what is free again", short("acquires together", "$many.4", done(0)), []string{"acquires together", "$many.4", "applied: true"}},
		{"what is granted together", change("/many", func(d bson.D) bson.D { return replaced(d, "c", 2) }), []string{"acquire", "$many.5", "want Limit 1"}},
		{"who is granted it together", reply("$many.5", "claim", drop("h")), []string{"acquire", "$many.5", "want Holders"}},
		{"released together with a queue", short("releases together", "$many.4", done(1)), []string{"releases together", "$many.4", "applied: false"}},
		{"expire", change("/living", func(d bson.D) bson.D { return replaced(d, "dead", true) }), []string{"expire"}},
		{"register of a known session", change("$again", func(bson.D) bson.D {
			return ok(e("value", bson.D{e("at", time.Now())}))
		}), []string{"register", "known"}},
		{"expire of an unknown session", change("/unknown", func(d bson.D) bson.D {
			return replaced(replaced(d, "dead", false), "ttl", 1000)
		}), []string{"expire"}},
	}
	for _, tc := range cases {
		inBubble(t, tc.name, func(t *testing.T) {
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
	}
}

// The clocks of two routers may differ a little, so the reading of a claim that is kept may show a time before its keep.
func TestProbeBehindTwoRouters(t *testing.T) {
	for _, ahead := range []time.Duration{-2 * time.Minute, -50 * time.Millisecond, 50 * time.Millisecond, 2 * time.Minute} {
		inBubble(t, ahead.String(), func(t *testing.T) {
			f := newFake(t)
			f.say(asMongos)
			client := f.anyClient()
			f.script(func(c call) bson.D {
				if c.name == "aggregate" && strings.Contains(c.cmd.String(), "/short") {
					return f.db.load(text(c, "pipeline", "0", "$match", "_id"), time.Now().Add(ahead).UTC())
				}
				return honest(c)
			})
			_, err := dsyncmongo.NewStore(t.Context(), client.Database("app"), nil)
			if far := ahead.Abs() > time.Minute; far != errors.Is(err, driver.ErrRefused) || !far && err != nil {
				t.Errorf("got %v, want an error only if the clocks are more than a minute apart", err)
			}
		})
	}
}

// field returns a field of the reply's value.
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

// replaced sets a field of the reply's value, if there is a value.
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
		{"replica set", nil, dsyncmongo.Options{}, []string{"MongoDB", "replica set", "portable=false", "waiting=notices", "collection=leasehold"}},
		{"reads", nil, dsyncmongo.Options{ReadOnly: true}, []string{"waiting=polling"}},
		{"standalone", asStandalone, dsyncmongo.Options{}, []string{"standalone", "waiting=notices"}},
		{"mongos", asMongos, dsyncmongo.Options{}, []string{"sharded cluster", "waiting=notices"}},
		{"switched off", nil, dsyncmongo.Options{PollOnly: true, Collection: "locks"}, []string{"waiting=polling", "collection=locks"}},
		{"not MongoDB", without("topologyVersion"), dsyncmongo.Options{}, []string{"compatible", "portable=true", "waiting=polling"}},
	}
	for _, tc := range cases {
		inBubble(t, tc.name, func(t *testing.T) {
			var log bytes.Buffer
			tc.opt.Session.Logger = slog.New(slog.NewTextHandler(&log, nil))
			f := newFake(t)
			if tc.hello != nil {
				f.hello = tc.hello(f.hello)
			}
			f.storeOn(f.anyClient(), &tc.opt, nil)
			for _, want := range tc.want {
				if !strings.Contains(log.String(), want) {
					t.Errorf("the log says %q, want %q in it", log.String(), want)
				}
			}
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

// On servers other than MongoDB, a missing record is first created, once, and then changed. The new record gets the
// server's time, however wrong the host's clock is, because Sweep computes the record's age from this time.
func TestPortableMode(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake(t)
		serverTime := time.Now().Add(365 * 24 * time.Hour).UTC()
		f.hello = append(without("topologyVersion")(f.hello), e("localTime", serverTime))
		made := false
		s := f.store(nil, func(c call) bson.D {
			for _, path := range [][]string{{"upsert"}, {"updates", "0", "upsert"}} {
				if upsert, _ := c.cmd.Lookup(path...).BooleanOK(); upsert {
					t.Errorf("an upsert was sent: %v", c.cmd)
				}
			}
			switch {
			case c.name == "insert":
				made = true
				if at := c.cmd.Lookup("documents", "0", "at"); at.DateTime() != serverTime.Add(time.Hour).UnixMilli() {
					t.Errorf("the record was created with the time %v, want the server's, %v", at, serverTime.Add(time.Hour))
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
			if _, _, err := storecmd.Acquire(t.Context(), s, evilClaim, true, nil, time.Now()); err != nil {
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
