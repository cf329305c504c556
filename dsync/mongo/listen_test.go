package mongo_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/leasehold-go/leasehold/dsync/driver"
	dsyncmongo "github.com/leasehold-go/leasehold/dsync/mongo"
	"github.com/leasehold-go/leasehold/internal/storecmd"
	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo/options"
)

// A hearing has a store, a Listen on the store, and the notices that the Listen has received.
type hearing struct {
	t           *testing.T
	f           *fake
	collections *capped
	s           driver.Store
	log         *bytes.Buffer
	address     int // the session's address

	mu      sync.Mutex
	heard   []driver.Notice
	readies int
	running bool // a call of f is running
	ended   chan struct{}
	err     error
	stop    context.CancelFunc
}

// newHearing returns a hearing with a new store. No Listen is running yet.
func newHearing(t *testing.T, hello func(bson.D) bson.D, opt *dsyncmongo.Options, client ...*options.ClientOptions) *hearing {
	t.Helper()
	h := &hearing{t: t, f: newFake(t), log: new(bytes.Buffer), ended: make(chan struct{})}
	if hello != nil {
		h.f.hello = hello(h.f.hello)
	}
	if opt == nil {
		opt = new(dsyncmongo.Options)
	}
	opt.Session.Logger = slog.New(slog.NewTextHandler(h.log, nil))
	h.collections = newCapped(func(c call) bson.D {
		if c.name == "update" {
			return ok(e("n", 1), e("nModified", 1))
		}
		return ok(e("value", bson.D{e("at", time.Now()), e("now", time.Now()), e("p", int64(3))}))
	})
	h.s = h.f.storeOn(h.f.anyClient(client...), opt, h.collections.answer)
	if !opt.ReadOnly {
		h.address = h.addressOf("s")
	}
	h.f.script(h.collections.answer)
	return h
}

// addressOf returns the address in the session's claims.
func (h *hearing) addressOf(session string) int {
	h.t.Helper()
	c := driver.Claim{Key: "k", ID: session + ".1", Session: session, Kind: driver.KindSemaphore, Weight: 1, Limit: 2}
	storecmd.Acquire(h.t.Context(), h.s, c, true, nil, time.Now())
	calls := h.f.took()
	address, _ := calls[len(calls)-1].cmd.Lookup("update", "0", "$set", "_", "$literal", "claim", "p").AsInt64OK()
	return int(address)
}

func (h *hearing) collection(address int) string { return fmt.Sprint("leasehold.notices.", address) }

// listen starts a Listen, and returns when the Listen is ready or has ended.
func (h *hearing) listen(session string, keys ...string) {
	h.t.Helper()
	ctx, cancel := context.WithCancel(h.t.Context())
	h.stop = cancel
	go func() {
		defer close(h.ended)
		h.err = h.s.Listen(ctx, session, keys, h.hear)
	}()
	h.t.Cleanup(func() { cancel(); <-h.ended })
	synctest.Wait()
}

func (h *hearing) hear(n driver.Notice) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.running {
		h.t.Error("Listen called f while another call was running")
	}
	h.running = true
	h.mu.Unlock()
	time.Sleep(time.Millisecond)
	h.mu.Lock()
	h.running = false
	if n.Type == driver.NoticeReady {
		h.readies++
		return
	}
	h.heard = append(h.heard, n)
}

// took returns the notices received since the last call of took. It does not return NoticeReadys, but their number.
func (h *hearing) took() (heard []driver.Notice, readies int) {
	time.Sleep(100 * time.Millisecond)
	synctest.Wait()
	h.mu.Lock()
	defer h.mu.Unlock()
	heard, readies = h.heard, h.readies
	h.heard, h.readies = nil, 0
	return heard, readies
}

func (h *hearing) want(what string, want []driver.Notice, wantReadies int) {
	h.t.Helper()
	if got, readies := h.took(); !slices.Equal(got, want) || readies != wantReadies {
		h.t.Errorf("%s: heard %+v, ready %d times; want %+v, %d times", what, got, readies, want, wantReadies)
	}
}

func (h *hearing) notify(notices ...driver.Notice) {
	h.t.Helper()
	if err := h.s.Notify(h.t.Context(), notices); err != nil {
		h.t.Error(err)
	}
}

// wake returns a wake notice for a session that listens at the given address.
func wake(session string, n, address int) driver.Notice {
	return driver.Notice{Type: driver.NoticeWake, Session: session, Key: "k", Claim: fmt.Sprint(session, ".", n), Address: address}
}

func change(key string) driver.Notice { return driver.Notice{Type: driver.NoticeChange, Key: key} }

// Once its Listen is ready, a session receives all notices sent to it, unchanged, and no notices for other
// sessions.
func TestListenHears(t *testing.T) {
	for name, hello := range map[string]func(bson.D) bson.D{"replica set": nil, "standalone": asStandalone, "mongos": asMongos} {
		inBubble(t, name, func(t *testing.T) {
			h := newHearing(t, hello, nil)
			h.notify(wake("s", 1, h.address)) // before
			h.listen("s")
			h.want("at the beginning", nil, 1)
			all := []driver.Notice{
				{Type: driver.NoticeGrant, Session: "s", Key: "k/\u00e9\x00", Claim: "s.2", Token: 1 << 60, Crowded: true, Address: h.address},
				{Type: driver.NoticeGrant, Session: "s", Key: "e", Claim: "s.3", Token: 1024, Term: 7, Address: h.address},
				{Type: driver.NoticeYield, Session: "s", Key: "k", Claim: "s.4", Address: h.address},
				{Type: driver.NoticeRevoke, Session: "s", Key: "k", Claim: "s.5", Address: h.address},
				wake("s", 6, h.address),
			}
			h.notify(append([]driver.Notice{wake("o", 1, h.address), change("k")}, all...)...)
			h.want("all kinds", all, 0)
			time.Sleep(time.Hour)
			h.want("nothing", nil, 0)
			h.notify(all[0])
			h.want("later", all[:1], 0)
			h.stop()
			<-h.ended
			if !errors.Is(h.err, context.Canceled) {
				t.Errorf("Listen ended with %v, want context.Canceled", h.err)
			}
		})
	}
}

// Listen creates a missing collection, and inserts a notice without a receiver, because an empty collection
// cannot be tailed.
func TestListenCreatesItsCollection(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHearing(t, nil, nil)
		h.listen("s")
		h.want("at the beginning", nil, 1)
		calls := h.f.took()
		if got, want := names(calls)[:4], []string{"find", "create", "insert", "find"}; !slices.Equal(got, want) {
			t.Errorf("sent %v, want %v", got, want)
		}
		for _, c := range calls[:4] {
			if on, _ := c.cmd.Lookup(c.name).StringValueOK(); on != h.collection(h.address) {
				t.Errorf("%s of %s, want %s", c.name, on, h.collection(h.address))
			}
		}
		create := calls[1].cmd
		if w, _ := create.Lookup("writeConcern", "w").StringValueOK(); w != "majority" || !create.Lookup("capped").Boolean() {
			t.Errorf("made with %v, want it capped and confirmed by a majority", create)
		}
		if n := h.collections.count("find"); n != 2 {
			t.Errorf("%d cursors, want two: the one that ended at once, and one more", n)
		}
	})
}

// The first Listen of a store lists the existing collections, so a notice to one of them takes only an insert. Listen
// uses the list only if a majority confirms it. Without a confirmed list, each collection is created before the first
// insert.
func TestListenFindsTheCollections(t *testing.T) {
	for name, test := range map[string]struct {
		instead string
		answer  bson.D
		want    []string
	}{
		"found":         {want: []string{"insert", "create", "insert"}},
		"no right":      {"listCollections", refusal(13, "Unauthorized"), []string{"create", "insert", "create", "insert"}},
		"no majority":   {"create", ok(e("writeConcernError", bson.D{e("code", 64), e("errmsg", "waiting for replication timed out")})), []string{"create", "insert", "create", "insert"}},
		"no such reply": {"listCollections", ok(), []string{"create", "insert", "create", "insert"}},
	} {
		inBubble(t, name, func(t *testing.T) {
			const missing = 5
			f, collections := newFake(t), newCapped(nil)
			for address := range 9 {
				if name := fmt.Sprint("leasehold.notices.", address); address != missing {
					collections.create(name, call{cmd: must(bson.Marshal(bson.D{e("capped", true)}))})
					collections.insert(name, call{cmd: must(bson.Marshal(bson.D{e("documents", bson.A{bson.D{e("to", "")}})}))})
				}
			}
			s := f.storeOn(f.anyClient(), nil, collections.answer)
			if test.instead != "" {
				collections.change(func() { collections.instead[test.instead] = test.answer })
			}
			for range 2 { // only the first Listen asks the server
				ctx, cancel := context.WithCancel(t.Context())
				if err := s.Listen(ctx, "s", nil, func(driver.Notice) { cancel() }); !errors.Is(err, context.Canceled) {
					t.Errorf("Listen: %v", err)
				}
			}
			lists := 0
			for _, c := range f.took() {
				if c.name == "listCollections" {
					lists++
					if !c.cmd.Lookup("nameOnly").Boolean() || !c.cmd.Lookup("authorizedCollections").Boolean() {
						t.Errorf("%v needs a further privilege", c.cmd)
					}
				}
			}
			if lists != 1 {
				t.Errorf("%d listCollections, want one", lists)
			}
			collections.change(func() { delete(collections.instead, test.instead) })
			f.script(collections.answer)
			for _, address := range []int{4, missing} {
				if err := s.Notify(t.Context(), []driver.Notice{wake("x", 1, address)}); err != nil {
					t.Error(err)
				}
			}
			if got := names(f.took()); !slices.Equal(got, test.want) {
				t.Errorf("sent %v, want %v", got, test.want)
			}
		})
	}
}

// names returns the names of the calls.
func names(calls []call) (names []string) {
	for _, c := range calls {
		names = append(names, c.name)
	}
	return names
}

// Listen replaces its cursor every five minutes, or every twenty seconds through a mongos, without repeating or
// missing a notice.
func TestListenReplacesItsCursor(t *testing.T) {
	for name, tc := range map[string]struct {
		hello func(bson.D) bson.D
		finds [2]int
	}{
		"replica set": {nil, [2]int{2, 3}},
		"mongos":      {asMongos, [2]int{14, 17}},
	} {
		inBubble(t, name, func(t *testing.T) {
			h := newHearing(t, tc.hello, nil)
			h.listen("s")
			h.took()
			var want []driver.Notice
			for i := range 450 {
				time.Sleep(667 * time.Millisecond)
				if i%100 < 50 { // then long silence
					want = append(want, wake("s", i, h.address))
					h.notify(want[len(want)-1])
				}
			}
			h.want("five minutes", want, 0)
			if n := h.collections.count("find"); n < tc.finds[0] || n > tc.finds[1] {
				t.Errorf("%d cursors in five minutes, want a number in the range %v", n, tc.finds)
			}
			if h.log.Len() > 0 && strings.Contains(h.log.String(), "WARN") {
				t.Errorf("the log has a warning, want none: %s", h.log)
			}
		})
	}
}

// Whenever Listen may have missed notices, it reports NoticeReady again, so that waiters request again. It may have
// missed some after an overrun, after the collection was dropped, and when the last notice seen is no longer in the
// collection.
func TestListenMissesSome(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHearing(t, nil, nil)
		h.listen("s")
		coll := h.collection(h.address)
		h.notify(wake("s", 1, h.address))
		h.want("at the beginning", []driver.Notice{wake("s", 1, h.address)}, 1)
		time.Sleep(2 * time.Second)

		// Three more notices overrun the open cursor, because the collection keeps only the last of them. Listen does
		// not deliver that last notice, because NoticeReady makes waiters request again anyway.
		h.collections.change(func() {
			c := h.collections.collections[coll]
			for i := 2; i <= 4; i++ {
				c.docs = append(c.docs, mustMarshal(t, bson.D{e("_id", bson.NewObjectID()), e("to", "s"), e("type", "wake"), e("k", "k"), e("a", fmt.Sprint("s.", i))}))
			}
			c.lost += len(c.docs) - 1
			c.docs = c.docs[len(c.docs)-1:]
		})
		h.want("overrun", nil, 1)

		time.Sleep(2 * time.Second)
		h.notify(wake("s", 5, h.address))
		h.took()
		h.notify(wake("o", 1, h.address))
		h.overrun(1) // harmless: the cursor has returned all notices
		h.want("before the next cursor", nil, 0)
		time.Sleep(5 * time.Minute)
		h.want("after the next cursor", nil, 1)
		time.Sleep(5 * time.Minute)
		h.want("after another cursor, which has no last notice to miss", nil, 0)
		h.notify(wake("s", 6, h.address))
		h.took()
		time.Sleep(10 * time.Minute)
		h.want("after it has seen a notice again", nil, 0)

		for range 2 {
			h.collections.drop(coll)
			h.want("dropped", nil, 1)
			h.notify(wake("s", 7, h.address))
			h.want("made anew", []driver.Notice{wake("s", 7, h.address)}, 0)
			time.Sleep(2 * time.Second)
		}
		if n := strings.Count(h.log.String(), "level=WARN"); n != 1 || !strings.Contains(h.log.String(), "dropped") {
			t.Errorf("%d warnings, want one: %s", n, h.log)
		}
	})
}

func (h *hearing) overrun(n int) { h.collections.overrun(h.collection(h.address), n) }

// Without a PrimaryWatch, Listen notices a new primary within 11 seconds. It then reports NoticeReady, and receives the
// notices that are sent from then on.
func TestListenFollowsThePrimary(t *testing.T) {
	elections := map[string]func(int) func(bson.D) bson.D{
		"election": elected,
		"restart": func(int) func(bson.D) bson.D {
			return func(d bson.D) bson.D {
				return append(without("topologyVersion")(d), e("topologyVersion", bson.D{e("processId", bson.NewObjectID()), e("counter", int64(1))}))
			}
		},
	}
	for name, election := range elections {
		inBubble(t, name, func(t *testing.T) {
			h := newHearing(t, nil, nil)
			h.f.say(election(1))
			h.listen("s")
			h.notify(wake("s", 1, h.address))
			h.took()
			before := h.collections.count("find")
			time.Sleep(20 * time.Second)
			if n := h.collections.count("find"); n != before {
				t.Errorf("%d new cursors on the same primary, want none", n-before)
			}
			h.f.say(election(2))
			time.Sleep(11 * time.Second)
			if n := h.collections.count("find"); n != before+1 {
				t.Errorf("%d new cursors 11 s after an election, want one", n-before)
			}
			h.want("a new primary", nil, 1)
			h.notify(wake("s", 2, h.address))
			h.want("from it", []driver.Notice{wake("s", 2, h.address)}, 0)
		})
	}
}

// A Listen with keys opens its cursor, marks the keys as observed, and only then becomes ready. While it listens,
// it renews the marks. It receives changes of those keys only.
func TestListenKeys(t *testing.T) {
	for _, session := range []string{"s", ""} {
		inBubble(t, "session "+session, func(t *testing.T) {
			h := newHearing(t, nil, nil)
			h.f.script(h.collections.answer)
			h.listen(session, "b", "a", "b")
			h.want("at the beginning", nil, 1)
			var got []string
			for _, c := range h.f.took() {
				if on, _ := c.cmd.Lookup(c.name).StringValueOK(); c.name != "getMore" && !strings.HasSuffix(on, fmt.Sprint(".", h.address)) {
					got = append(got, c.name)
				}
			}
			sent := []string{"find", "create", "insert", "find", "update", "listCollections"}
			if session == "" {
				sent = sent[:5]
			}
			if !slices.Equal(got, sent) {
				t.Errorf("sent %v, want %v", got, sent)
			}
			h.checkMark("k/a", "k/b")
			h.notify(change("a"), change("c"), change("b"), change(""), wake("s", 1, h.address))
			want := []driver.Notice{change("a"), change("b")}
			if session == "" {
				h.want("changes", want, 0)
			} else {
				heard, _ := h.took() // in any order, because they come from two cursors
				slices.SortFunc(heard, func(a, b driver.Notice) int { return strings.Compare(a.Session+a.Key, b.Session+b.Key) })
				if want = append(want, wake("s", 1, h.address)); !slices.Equal(heard, want) {
					t.Errorf("heard %+v, want %+v", heard, want)
				}
			}
			h.f.script(h.collections.answer)
			marked, longest := time.Now(), time.Duration(0)
			for range 1200 {
				time.Sleep(time.Second)
				if n := len(h.marks()); n > 0 {
					longest = max(longest, time.Since(marked))
					marked = time.Now()
					h.f.script(h.collections.answer)
				}
			}
			if longest < 3*time.Minute || longest > 4*time.Minute+20*time.Second {
				t.Errorf("the longest time between two marks was %v, want from 3m to 4m20s", longest)
			}
			h.want("marks", nil, 0)
		})
	}
}

func (h *hearing) marks() (marks []call) {
	for _, c := range h.f.took() {
		if c.name == "update" {
			marks = append(marks, c)
		}
	}
	return marks
}

func (h *hearing) checkMark(ids ...string) {
	h.t.Helper()
	marks := h.marks()
	if len(marks) != 1 {
		h.t.Fatalf("%d commands that mark keys, want one", len(marks))
	}
	var cmd struct {
		Updates []struct {
			Q      bson.D
			Upsert bool
		}
		WriteConcern struct{ W string } `bson:"writeConcern"`
	}
	if err := bson.Unmarshal(marks[0].cmd, &cmd); err != nil {
		h.t.Fatal(err)
	}
	var got []string
	for _, u := range cmd.Updates {
		got = append(got, u.Q[0].Value.(string))
		if len(u.Q) != 1 || !u.Upsert {
			h.t.Errorf("marked by %v, want an upsert by _id", marks[0].cmd)
		}
	}
	if !slices.Equal(got, ids) || cmd.WriteConcern.W != "majority" {
		h.t.Errorf("marked %v with %q, want %v with majority", got, cmd.WriteConcern.W, ids)
	}
}

// If there are more keys than one command should name, several commands mark them, and the listener filters the
// changes itself.
func TestListenManyKeys(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHearing(t, nil, nil)
		var keys []string
		for i := range 2500 {
			keys = append(keys, fmt.Sprint("key", i))
		}
		h.listen("", keys...)
		h.want("at the beginning", nil, 1)
		if n := len(h.marks()); n != 3 {
			t.Errorf("%d commands that mark keys, want 3", n)
		}
		h.notify(change("key0"), change("key"), change("key2499"), change("key2500"))
		h.want("changes", []driver.Notice{change("key0"), change("key2499")}, 0)
	})
}

// An upsert that lost a race is sent once more.
func TestListenMarksAgainAfterARace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHearing(t, nil, nil)
		races := 0
		h.collections.more = func(c call) bson.D {
			if races++; races == 1 {
				return ok(e("n", 1), e("writeErrors", bson.A{bson.D{e("index", 0), e("code", 11000), e("errmsg", "E11000")}}))
			}
			return ok(e("n", 2))
		}
		h.listen("", "a", "b")
		h.want("at the beginning", nil, 1)
		if races != 2 {
			t.Errorf("%d commands that mark keys, want 2", races)
		}
	})
}

// A Listen with neither a session nor keys sends no commands, and receives only NoticeReady.
func TestListenToNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHearing(t, nil, nil)
		h.listen("")
		time.Sleep(time.Hour)
		h.want("nothing", nil, 1)
		if n := len(h.f.took()); n > 0 {
			t.Errorf("%d commands, want none", n)
		}
	})
}

// After a temporary error, Listen does not return errors.ErrUnsupported, because the caller would then stop
// listening and only poll.
func TestListenBreaks(t *testing.T) {
	for name, answer := range map[string]bson.D{
		"stepping down": refusal(11602, "InterruptedDueToReplStateChange"),
		"lost":          lost,
		"unknown":       refusal(96, "OperationFailed"),
		"ended":         ok(e("cursor", bson.D{e("id", int64(0)), e("ns", "app.x"), e("nextBatch", bson.A{})})),
		"overrun again": refusal(136, "CappedPositionLost"), // Listen ends at once; the caller waits before it tries again
	} {
		for _, command := range []string{"find", "getMore"} {
			if command == "find" && name == "ended" {
				continue
			}
			inBubble(t, name+"/"+command, func(t *testing.T) {
				h := newHearing(t, nil, nil)
				h.collections.instead[command] = answer
				h.listen("s", "k")
				<-h.ended
				if h.err == nil || errors.Is(h.err, errors.ErrUnsupported) {
					t.Errorf("got %v, want a temporary error", h.err)
				}
				want := map[string]int{"find": 0, "getMore": 1}[command]
				if name == "overrun again" && command == "getMore" {
					want = 3 // each of the two cursors is replaced once
				}
				if _, readies := h.took(); readies != want {
					t.Errorf("ready %d times, want %d", readies, want)
				}
				if strings.Contains(h.log.String(), "WARN") {
					t.Errorf("the log has a warning, want none: %s", h.log)
				}
			})
		}
	}
}

// If a connection dies silently, Listen ends after twenty seconds. If answers are merely late, it continues.
func TestListenNoticesSilence(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHearing(t, nil, nil)
		h.collections.instead["getMore"] = silent
		start := time.Now()
		h.listen("s")
		<-h.ended
		if d := time.Since(start); d < 20*time.Second || d > 21*time.Second || h.err == nil || errors.Is(h.err, errors.ErrUnsupported) {
			t.Errorf("Listen ended with %v after %v, want a temporary error after 20 s", h.err, d)
		}
	})
	synctest.Test(t, func(t *testing.T) {
		h := newHearing(t, nil, nil)
		h.f.script(func(c call) bson.D {
			if c.name == "getMore" {
				time.Sleep(13 * time.Second) // longer than the server waits for notices (10 s)
			}
			return h.collections.answer(c)
		})
		h.listen("s")
		time.Sleep(5 * time.Minute)
		h.want("late answers", nil, 1)
		h.stop()
		time.Sleep(20 * time.Second) // until the last answer has come
	})
}

// If listening is impossible, Listen returns an error at once, and the session's claims have no address. If the reason
// is that the server has refused a command, one warning in the log says what to do.
func TestListenUnsupported(t *testing.T) {
	refuse := func(command string, code int) func(*capped) {
		return func(p *capped) { p.instead[command] = refusal(code, "X") }
	}
	cases := []struct {
		name  string
		opt   dsyncmongo.Options
		hello func(bson.D) bson.D
		meet  func(*capped)
		warn  string // part of the warning; "": no command and no warning
	}{
		{name: "PollOnly", opt: dsyncmongo.Options{PollOnly: true}},
		{name: "ReadOnly", opt: dsyncmongo.Options{ReadOnly: true}},
		{name: "not MongoDB", hello: without("topologyVersion")},
		{name: "no right to find", meet: refuse("find", 13), warn: "convertToCapped"},
		{name: "no right to create", meet: refuse("create", 13), warn: "convertToCapped"},
		{name: "no right to insert", meet: refuse("insert", 13), warn: "convertToCapped"},
		{name: "no right, on Atlas", meet: func(p *capped) { p.instead["find"] = notAllowed }, warn: "convertToCapped"},
		{name: "no right to mark", meet: refuse("update", 13), warn: "convertToCapped"},
		{name: "not capped", meet: refuse("find", 2), warn: "not capped"},
		{name: "Stable API, strict", meet: refuse("find", 323), warn: "Stable API"},
		{name: "no such thing", meet: refuse("find", 59), warn: "PollOnly"},
	}
	for _, tc := range cases {
		inBubble(t, tc.name, func(t *testing.T) {
			h := newHearing(t, tc.hello, &tc.opt)
			if says := h.address > 0; says != (tc.warn != "") {
				t.Errorf("before Listen, the session's claims have the address %d, want 0 if the store cannot notify, otherwise another", h.address)
			}
			if tc.meet != nil {
				tc.meet(h.collections)
			}
			h.f.script(h.f.answer)
			for range 2 {
				start := time.Now()
				err := h.s.Listen(t.Context(), "s", []string{"k"}, func(n driver.Notice) { t.Errorf("heard %+v, want nothing", n) })
				if !errors.Is(err, errors.ErrUnsupported) || time.Since(start) != 0 {
					t.Errorf("got %v after %v, want errors.ErrUnsupported at once", err, time.Since(start))
				}
			}
			if n := len(h.f.took()); (n == 0) != (tc.warn == "") {
				t.Errorf("%d commands were sent; want none if Listen is refused without asking the server, otherwise some", n)
			}
			warned := strings.Count(h.log.String(), "level=WARN")
			if want := min(len(tc.warn), 1); warned != want || !strings.Contains(h.log.String(), tc.warn) {
				t.Errorf("%d warnings, want %d that says %q: %s", warned, want, tc.warn, h.log)
			}
			if tc.opt.ReadOnly {
				return // a read-only store has no claims
			}
			if address := h.addressOf("s"); address != 0 {
				t.Errorf("after Listen, the session's claims have the address %d, want none", address)
			}
		})
	}
}

// After a Listen was refused, the session's claims don't say that the session listens. Once a later Listen is ready,
// they say so again. A Listen for keys alone has no effect on the session's claims.
func TestListenAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHearing(t, nil, nil)
		h.collections.instead["find"] = refusal(13, "Unauthorized")
		if err := h.s.Listen(t.Context(), "", []string{"k"}, nil); !errors.Is(err, errors.ErrUnsupported) {
			t.Errorf("got %v, want errors.ErrUnsupported", err)
		}
		if h.addressOf("s") != h.address {
			t.Error("after a Listen for keys was refused, the claims of s don't say that it listens")
		}
		if err := h.s.Listen(t.Context(), "s", nil, nil); !errors.Is(err, errors.ErrUnsupported) {
			t.Errorf("got %v, want errors.ErrUnsupported", err)
		}
		if h.addressOf("s") != 0 {
			t.Error("after its Listen was refused, the claims of s say that it listens")
		}
		h.collections.mu.Lock()
		delete(h.collections.instead, "find")
		h.collections.mu.Unlock()
		h.listen("s")
		h.want("at the beginning", nil, 1)
		if h.addressOf("s") != h.address {
			t.Error("the claims of s don't say that it listens")
		}
	})
}

// Listen and Notify need rights only for these commands: find, getMore, insert and create on the notice collections,
// listCollections, and updates that mark keys in the store's collection.
func TestListenOrdinaryCommands(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHearing(t, nil, &dsyncmongo.Options{Collection: "locks"})
		h.listen("s", "k")
		h.notify(wake("s", 1, h.address), change("k"), wake("o", 1, 16))
		time.Sleep(10 * time.Minute)
		for _, c := range h.f.took() {
			on, _ := c.cmd.Lookup(c.name).StringValueOK()
			if c.name == "getMore" {
				on, _ = c.cmd.Lookup("collection").StringValueOK()
			}
			switch {
			case c.name == "update" && on == "locks":
			case c.name == "listCollections":
			case slices.Contains([]string{"find", "getMore", "insert", "create"}, c.name) && strings.HasPrefix(on, "locks.notices."):
			default:
				t.Errorf("%s of %q was sent, which needs a further right", c.name, on)
			}
		}
	})
}
