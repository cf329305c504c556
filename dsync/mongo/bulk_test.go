package mongo_test

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/leasehold-go/leasehold/dsync/driver"
	"github.com/leasehold-go/leasehold/internal/testkit"
	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
)

// A bulkServer takes the time reply, usually replyTime, for each command. It answers short commands as if
// each key had no record, or only the claim that is released, unless the key is in unmet or missing. A reply of instead
// replaces the reply to a bulk.
type bulkServer struct {
	t       *testing.T
	f       *fake
	client  *mongo.Client
	s       driver.Store
	reply   time.Duration
	instead func(c call, edits int) bson.D
	fails   string // a command, or the _id that a findAndModify has
	exist   bool   // the records exist
	edited
	wg       sync.WaitGroup
	mu       sync.Mutex
	errs     map[int]error // by caller
	finished int           // callers
	applied  int           // callers that got the position of a bulk in the log
}

const (
	replyTime = time.Millisecond
	atOnce    = 4 // commands with one statement that are under way at most, before others go together
)

func newBulkServer(t *testing.T, hello func(bson.D) bson.D) *bulkServer {
	b := &bulkServer{t: t, f: newFake(t), reply: replyTime, errs: make(map[int]error)}
	b.f.clock = time.Now
	if hello != nil {
		b.f.say(hello)
	}
	b.client = b.f.anyClient()
	b.s = b.f.storeOn(b.client, nil, func(c call) bson.D {
		time.Sleep(b.reply)
		if b.fails != "" && (b.fails == c.name || b.fails == text(c, "query", "_id")) {
			return refusal(121, "DocumentValidationFailure")
		}
		switch c.name {
		case "update":
		case "aggregate":
			return cursor(b.edited.read(c)...)
		default:
			return ok(e("value", bson.D{e("now", time.Now()), e("y", "mutex"), e("c", 1), e("f", 2), e("t", int64(1024)), e("h", bson.A{bson.D{
				e("a", anyClaim.FindStringSubmatch(c.cmd.String())[1]), e("s", "s"), e("w", 1), e("t", int64(1024)),
			}})}))
		}
		n := editsIn(c)
		if n > 1 && b.instead != nil {
			return b.instead(c, n)
		}
		if n > 1 && len(idsIn(c)) > 0 {
			return b.edited.change(c)
		}
		switch upsert, _ := c.cmd.Lookup("updates", "0", "upsert").BooleanOK(); {
		case !upsert:
			return changedAll(n)
		case b.exist && n > 1:
			return unmetAll(n)
		}
		return upsertedAll(n)
	})
	return b
}

// unmetAll is the reply to a bulk whose n statements would each make a record, but the records exist.
func unmetAll(n int) bson.D {
	var errs bson.A
	for i := range n {
		errs = append(errs, bson.D{e("index", i), e("code", 241), e("errmsg", "as the test says")})
	}
	return ok(e("n", 0), e("nModified", 0), e("writeErrors", errs))
}

// upsertedAll is the reply to a bulk whose n statements each made a record.
func upsertedAll(n int) bson.D { return upserted(n, n) }

// changedAll is the reply to a bulk that has changed n records.
func changedAll(n int) bson.D { return ok(e("n", n), e("nModified", n)) }

// upserted is the reply to a bulk of n statements whose first statements made records.
func upserted(n, made int, more ...bson.E) bson.D {
	records := bson.A{}
	for i := range made {
		records = append(records, bson.D{e("index", i), e("_id", fmt.Sprint("k/", i))})
	}
	return ok(append(more, e("n", n), e("upserted", records), e("nModified", 0))...)
}

// editsIn returns the number of records that an update is for.
func editsIn(c call) int {
	updates, ok := c.cmd.Lookup("updates").ArrayOK()
	if !ok {
		return 0
	}
	if ids := idsIn(c); len(ids) > 0 {
		return len(ids)
	}
	return len(must(updates.Values()))
}

// idsIn returns the ids of the records that an update is for, if each statement is for many.
func idsIn(c call) (ids []string) {
	updates, _ := c.cmd.Lookup("updates").ArrayOK()
	statements, _ := updates.Values()
	for _, u := range statements {
		in, _ := u.Document().Lookup("q", "_id", "$in").ArrayOK()
		values, _ := in.Values()
		for _, id := range values {
			ids = append(ids, id.StringValue())
		}
	}
	return ids
}

// bulkTerm is the term of a bulk's position in the log.
const bulkTerm = 7

// The type edited is what bulks have done to records.
type edited struct {
	unmet, missing func(id string) bool // for records that do not meet the conditions, or are missing; nil: none
	mu             sync.Mutex
	records        map[string]bson.D // by id
}

// change makes the edits of a bulk.
func (r *edited) change(c call) bson.D {
	r.mu.Lock()
	defer r.mu.Unlock()
	n, modified := 0, 0
	for _, u := range must(c.cmd.Lookup("updates").Array().Values()) {
		multi, changed := u.Document().Lookup("multi").Boolean(), false
		for i, v := range must(u.Document().Lookup("q", "_id", "$in").Array().Values()) {
			id := v.StringValue()
			if r.missing != nil && r.missing(id) || changed && !multi {
				continue
			}
			n++
			changed = true
			met := r.unmet == nil || !r.unmet(id)
			if met {
				modified++
			}
			claim, token, acquires := editOf(u.Document(), fmt.Sprint(i))
			holders := bson.A{}
			if acquires == met {
				holders = bson.A{bson.D{e("a", claim)}}
			}
			if r.records == nil {
				r.records = make(map[string]bson.D)
			}
			r.records[id] = bson.D{e("_id", id), e("h", holders), e("t", token)}
		}
	}
	return ok(e("n", n), e("nModified", modified), e("opTime", bson.D{e("ts", bson.Timestamp{T: 100, I: 1}), e("t", int64(bulkTerm))}))
}

// editOf returns the claim and the token that a statement for many records has at the index i.
func editOf(u bson.Raw, i string) (claim string, token int64, acquires bool) {
	if granted, err := u.LookupErr(slices.Concat(grantedTogether[2:], []string{i})...); err == nil {
		return granted.Document().Lookup("h", "0", "a").StringValue(), granted.Document().Lookup("t").Int64(), true
	}
	held := bson.Raw(u.Lookup("u", "0", "$set", "h", "$cond", "0", "$and", "1", "$in", "1", "$literal", i).Array())
	return held.Lookup("0", "0").StringValue(), held.Lookup("1").Int64(), false
}

// read returns the records that an aggregate command asks for.
func (r *edited) read(c call) (records []bson.D) {
	r.mu.Lock()
	defer r.mu.Unlock()
	in, _ := c.cmd.Lookup("pipeline", "0", "$match", "_id", "$in").ArrayOK()
	values, _ := in.Values()
	for _, id := range values {
		if record, ok := r.records[id.StringValue()]; ok {
			records = append(records, record)
		}
	}
	return records
}

// acquire starts an Acquire of a key of its own for each of n callers, in order.
func (b *bulkServer) acquire(ctx context.Context, n int) {
	for range n {
		b.start(func(i int) error {
			c := bulkClaim(i)
			done, err := b.s.Edit(ctx, driver.Edit{Acquire: &driver.Acquire{Claim: c, Wait: true, NotAfter: time.Now().Add(time.Minute)}})
			if _, held := done.State.Holder(c.ID); err == nil && !held {
				return errors.New("not held")
			}
			return err
		})
	}
}

// acquireUsed starts Acquires of keys that exist, after a bulk from which the store learns that most keys do.
func (b *bulkServer) acquireUsed(n int) {
	b.exist = true
	instead, unmet, fails := b.instead, b.unmet, b.fails
	b.instead, b.unmet, b.fails = nil, nil, ""
	b.acquire(b.t.Context(), n)
	b.wg.Wait()
	b.acquire(b.t.Context(), 1) // so that the next few go alone
	b.wg.Wait()
	b.instead, b.unmet, b.fails = instead, unmet, fails
	clear(b.errs)
	b.f.script(b.f.answer)
	b.acquire(b.t.Context(), n)
}

func (b *bulkServer) release(n int, early bool) {
	for range n {
		b.start(func(i int) error {
			done, err := b.s.Edit(b.t.Context(), driver.Edit{Release: &driver.Release{Claim: bulkClaim(i), Early: early}})
			if done.Applied.Term == bulkTerm {
				b.mu.Lock()
				b.applied++
				b.mu.Unlock()
			}
			if err == nil && !done.Found {
				return errors.New("not found")
			}
			return err
		})
	}
}

// keep starts a Release with Keep for each of n callers.
func (b *bulkServer) keep(n int) {
	for range n {
		b.start(func(i int) error {
			_, err := b.s.Edit(b.t.Context(), driver.Edit{Release: &driver.Release{Claim: bulkClaim(i), Keep: time.Minute}})
			return err
		})
	}
}

func bulkClaim(i int) driver.Claim {
	c := mutexClaim(i)
	c.Key = fmt.Sprint("key ", i)
	return c
}

// arrivals returns the times, from now on, at which bulks come.
func (b *bulkServer) arrivals() *[]time.Duration {
	var arrived []time.Duration
	start := time.Now()
	b.instead = func(_ call, n int) bson.D {
		b.mu.Lock()
		defer b.mu.Unlock()
		arrived = append(arrived, time.Since(start)-b.reply)
		return changedAll(n)
	}
	return &arrived
}

// start calls f with the number of a new caller, and returns when the caller waits.
func (b *bulkServer) start(f func(caller int) error) {
	b.mu.Lock()
	i := len(b.errs)
	b.errs[i] = nil
	b.mu.Unlock()
	b.wg.Go(func() {
		err := f(i)
		b.mu.Lock()
		defer b.mu.Unlock()
		b.errs[i] = err
		b.finished++
	})
	synctest.Wait()
}

// sent waits for all callers, and returns the number of edits of each command since the last call: 0 for a findAndModify
// or a read.
func (b *bulkServer) sent() (n []int) {
	b.wg.Wait()
	for _, c := range b.f.took() {
		n = append(n, editsIn(c))
	}
	b.f.script(b.f.answer)
	return n
}

// wantErrs checks which callers got an error that matches target; nil matches any error.
func (b *bulkServer) wantErrs(callers ...int) {
	b.t.Helper()
	b.wg.Wait()
	for i, err := range b.errs {
		if got, want := err != nil, slices.Contains(callers, i); got != want {
			b.t.Errorf("caller %d got %v, want an error: %t", i, err, want)
		}
	}
}

func ones(n int) []int { return slices.Repeat([]int{1}, n) }

// wantSent compares numbers of statements. Commands that are sent at the same moment arrive in any order.
func wantSent(t *testing.T, what string, got []int, want ...int) {
	t.Helper()
	slices.Sort(got)
	slices.Sort(want)
	if !slices.Equal(got, want) {
		t.Errorf("%s: sent commands with %v statements, want %v", what, got, want)
	}
}

// A short command that comes alone is sent alone, and so are those of a few callers at the same time.
func TestFewShortCommandsGoAlone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBulkServer(t, nil)
		for range 3 {
			b.acquire(t.Context(), 1)
			b.wg.Wait()
		}
		for _, c := range b.f.took() {
			if _, err := c.cmd.LookupErr("ordered"); err == nil {
				t.Errorf("sent %v, want no field that a bulk needs", c.cmd)
			}
		}
		wantSent(t, "in turn", b.sent(), ones(3)...)
		start := time.Now()
		b.acquire(t.Context(), atOnce)
		wantSent(t, "at the same time", b.sent(), ones(atOnce)...)
		if got := time.Since(start); got != replyTime {
			t.Errorf("they took %v, want %v", got, replyTime)
		}
		b.acquire(t.Context(), atOnce+atOnce/2)
		wantSent(t, "a few that have to wait", b.sent(), ones(atOnce+atOnce/2)...)
		b.wantErrs()
	})
}

// Short commands that come while others are under way go together, in one command.
func TestManyShortCommandsGoTogether(t *testing.T) {
	for name, test := range map[string]struct {
		send    func(b *bulkServer, n int)
		w       any
		applied int // callers that got the position of their bulk in the log
	}{
		"acquires":       {func(b *bulkServer, n int) { b.acquire(b.t.Context(), n) }, "majority", 0},
		"releases":       {func(b *bulkServer, n int) { b.release(n, false) }, "majority", 0},
		"early releases": {func(b *bulkServer, n int) { b.release(n, true) }, int32(1), 20 + 7},
	} {
		inBubble(t, name, func(t *testing.T) {
			b := newBulkServer(t, nil)
			test.send(b, atOnce+20)
			time.Sleep(replyTime)
			synctest.Wait()
			test.send(b, 7) // the bulk of 20 is under way
			b.wg.Wait()
			if n := editsIn(b.f.took()[atOnce]); n != 20 {
				t.Fatalf("after %d commands for one caller each, the next is for %d, want 20", atOnce, n)
			}
			bulk := b.f.took()[atOnce].cmd
			if ordered, ok := bulk.Lookup("ordered").BooleanOK(); !ok || ordered {
				t.Error("the statements are ordered, so one that fails would stop the others")
			}
			var w any
			bulk.Lookup("writeConcern", "w").Unmarshal(&w)
			if w != test.w {
				t.Errorf("sent with w: %v, want %v", w, test.w)
			}
			keys := idsIn(b.f.took()[atOnce])
			for i := range 20 - len(keys) { // side by side
				keys = append(keys, bulk.Lookup("updates", fmt.Sprint(i), "q", "_id").StringValue())
			}
			if slices.Sort(keys); len(slices.Compact(keys)) != 20 {
				t.Errorf("the statements are for the keys %v, want 20 different ones", keys)
			}
			wantSent(t, name, b.sent(), append(ones(atOnce), 20, 7)...)
			b.wantErrs()
			if b.applied != test.applied {
				t.Errorf("%d callers got the position of their bulk in the log, want %d", b.applied, test.applied)
			}
		})
	}
}

// After a bulk, one command is under way at a time, until a reply is to one statement again.
func TestOneCommandAtATimeAfterABulk(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBulkServer(t, nil)
		b.acquire(t.Context(), atOnce+20)
		wantSent(t, "many", b.sent(), append(ones(atOnce), 20)...)
		b.acquire(t.Context(), atOnce)
		wantSent(t, "after a bulk", b.sent(), 1, atOnce-1)
		b.acquire(t.Context(), 1)
		b.sent()
		b.acquire(t.Context(), atOnce)
		wantSent(t, "after a reply to one statement", b.sent(), ones(atOnce)...)
		b.wantErrs()
	})
}

// The callers of a bulk send their next statements together. Without that, the first of them would go alone, and the
// others would wait for its reply.
func TestCallersOfABulkStayTogether(t *testing.T) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1)) // on one thread, all run before the first goes on
	synctest.Test(t, func(t *testing.T) {
		const callers, rounds = 16, 20
		b := newBulkServer(t, nil)
		var wg sync.WaitGroup
		for i := range callers {
			wg.Go(func() {
				for round := range rounds {
					c := bulkClaim(i*rounds + round)
					_, err := b.s.Edit(t.Context(), driver.Edit{Release: &driver.Release{Claim: c}})
					testkit.NoErr(t, err)
				}
			})
		}
		wg.Wait()
		if n := len(b.sent()); n > rounds*3/2 {
			t.Errorf("%d rounds of %d callers took %d commands, want about one for each round", rounds, callers, n)
		}
	})
}

// Early releases and commands that wait for a majority never go together.
func TestEarlyReleasesGoApart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBulkServer(t, nil)
		b.acquire(t.Context(), atOnce+5)
		b.release(atOnce+6, true)
		b.wg.Wait()
		var bulks []string
		for _, c := range b.f.took() {
			if n := editsIn(c); n > 1 {
				bulks = append(bulks, fmt.Sprint(n, " ", c.cmd.Lookup("writeConcern", "w")))
			}
		}
		slices.Sort(bulks)
		if want := []string{`5 "majority"`, `6 {"$numberInt":"1"}`}; !slices.Equal(bulks, want) {
			t.Errorf("got bulks %v, want %v", bulks, want)
		}
		b.wantErrs()
	})
}

// Statements side by side have a result each. An error of one is for its caller alone.
func TestStatementFailsForItsCallerAlone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBulkServer(t, nil)
		b.instead = func(c call, n int) bson.D {
			fails := func(i, code int) bson.D {
				return bson.D{e("index", i), e("code", code), e("errmsg", "as the test says")}
			}
			if ordered, ok := c.cmd.Lookup("ordered").BooleanOK(); !ok || ordered || len(idsIn(c)) > 0 {
				t.Errorf("sent %v, want a statement for each record, not ordered", c.cmd)
			}
			return ok(e("n", n-2), e("nModified", n-2), e("writeErrors", bson.A{fails(2, 121), fails(3, 241)}))
		}
		b.keep(atOnce + 7)
		wantSent(t, "with one whose conditions were not met", b.sent(), append(ones(atOnce), 7, 0)...)
		b.wantErrs(atOnce + 2)
		if err := b.errs[atOnce+2]; !errors.Is(err, driver.ErrRefused) || strings.Contains(err.Error(), "241") {
			t.Errorf("got %v, want only the error of the caller's own statement", err)
		}
	})
}

// If the reply does not show which statements changed their records, such as when a record is missing, each is requested
// again by itself.
func TestStatementsInDoubt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBulkServer(t, nil)
		b.instead = func(_ call, n int) bson.D { return changedAll(n - 1) }
		b.keep(atOnce + 5)
		wantSent(t, "with one that changed nothing", b.sent(), append(ones(atOnce), 5, 0, 0, 0, 0, 0)...)
		b.wantErrs()
	})
}

// If a statement for many records fails, a read shows which were changed. The others are requested again, each by itself,
// so an error is for its caller alone.
func TestTogetherFailsForItsCallerAlone(t *testing.T) {
	for name, send := range map[string]func(b *bulkServer, n int){
		"acquires": (*bulkServer).acquireUsed,
		"releases": func(b *bulkServer, n int) { b.release(n, false) },
	} {
		inBubble(t, name, func(t *testing.T) {
			b := newBulkServer(t, nil)
			b.unmet = func(id string) bool { return id == "k/key 7" || id == "k/key 9" }
			b.instead = func(c call, n int) bson.D {
				b.edited.change(c)
				return ok(e("n", 0), e("nModified", 3), e("writeErrors", bson.A{bson.D{e("index", 0), e("code", 121), e("errmsg", "of a record")}}))
			}
			b.fails = "k/key 9"
			send(b, atOnce+7)
			wantSent(t, name, b.sent(), append(ones(atOnce), 7, 0, 0, 0)...) // a read, and two by themselves
			b.wantErrs(9)
			if err := b.errs[9]; !errors.Is(err, driver.ErrRefused) || strings.Contains(err.Error(), "of a record") {
				t.Errorf("got %v, want the error of the caller's own command", err)
			}
		})
	}
}

// If the reply does not arrive, or a fail-over may undo the command, no caller knows what became of its statement.
func TestBulkWithoutAnswer(t *testing.T) {
	unknown := e("writeConcernError", bson.D{e("code", 64), e("errmsg", "waiting for replication timed out")})
	refused := bson.D{e("index", 3), e("code", 121), e("errmsg", "of one statement")}
	replies := map[string]bson.D{
		"lost":                   lost,
		"no majority":            ok(e("n", 6), e("nModified", 6), unknown),
		"no majority, one fails": ok(e("n", 5), e("nModified", 5), unknown, e("writeErrors", bson.A{refused})),
		"not the primary":        refusal(10107, "NotWritablePrimary"),
		"no count":               ok(),
	}
	for what, send := range map[string]func(b *bulkServer, n int){
		"acquires": func(b *bulkServer, n int) { b.acquire(b.t.Context(), n) },
		"used":     (*bulkServer).acquireUsed,
		"releases": func(b *bulkServer, n int) { b.release(n, false) },
		"keeps":    func(b *bulkServer, n int) { b.keep(n) },
	} {
		for name, reply := range replies {
			inBubble(t, what+", "+name, func(t *testing.T) {
				b := newBulkServer(t, nil)
				b.instead = func(c call, n int) bson.D {
					if len(idsIn(c)) > 0 {
						b.edited.change(c)
					}
					return reply
				}
				send(b, atOnce+6)
				b.wantErrs(4, 5, 6, 7, 8, 9)
				for _, err := range b.errs {
					if errors.Is(err, driver.ErrRefused) {
						t.Errorf("got %v, want an error that leaves open whether the statement was executed", err)
					}
				}
				if err := b.errs[4]; strings.Contains(fmt.Sprint(err), "of one statement") {
					t.Errorf("got %v, want no error of another caller's statement", err)
				}
				if what == "used" { // the next Acquires of these keys expect others, so they don't go together
					return
				}
				b.instead = nil
				b.sent()
				send(b, atOnce+6)
				wantSent(t, "the next", b.sent(), 1, atOnce+5)
			})
		}
	}
}

// If some records of a bulk do not meet their conditions, a read shows which. Each of these is requested again by itself.
func TestTogetherUnmet(t *testing.T) {
	for name, send := range map[string]func(b *bulkServer, n int){
		"acquires":       (*bulkServer).acquireUsed,
		"releases":       func(b *bulkServer, n int) { b.release(n, false) },
		"early releases": func(b *bulkServer, n int) { b.release(n, true) },
	} {
		inBubble(t, name, func(t *testing.T) {
			b := newBulkServer(t, nil)
			b.unmet = func(id string) bool { return id == "k/key 5" || id == "k/key 6" }
			send(b, atOnce+6)
			b.wg.Wait()
			reads := slices.DeleteFunc(slices.Clone(b.f.took()), func(c call) bool { return c.name != "aggregate" })
			level := map[string]string{"acquires": "majority", "releases": "majority", "early releases": "local"}[name]
			wantSent(t, name, b.sent(), append(ones(atOnce), 6, 0, 0, 0)...) // a read, and two by themselves
			b.wantErrs()
			for _, c := range reads {
				if got := text(c, "readConcern", "level"); got != level {
					t.Errorf("read with the concern %q, want %q: it must see the update, and what it sees must be as final", got, level)
				}
			}
		})
	}
}

// If a read does not show what became of an edit, an Acquire is requested again by itself, and a Release fails, so its
// session repeats it.
func TestTogetherInDoubt(t *testing.T) {
	for name, test := range map[string]struct {
		record bson.D // instead of that of key 5
		errs   []int
	}{
		"a greater token": {bson.D{e("_id", "k/key 5"), e("h", bson.A{}), e("t", int64(1<<60))}, []int{5}},
		"no record":       {nil, []int{5}},
		"not executed":    {bson.D{e("_id", "k/key 5"), e("h", bson.A{bson.D{e("a", "s.5")}}), e("t", int64(1024))}, nil},
	} {
		inBubble(t, name, func(t *testing.T) {
			b := newBulkServer(t, nil)
			b.instead = func(c call, n int) bson.D {
				b.edited.change(c)
				if b.records["k/key 5"] = test.record; test.record == nil {
					delete(b.records, "k/key 5")
				}
				return ok(e("n", n-1), e("nModified", n-1))
			}
			b.release(atOnce+5, false)
			b.wantErrs(test.errs...)
			for _, err := range b.errs {
				if errors.Is(err, driver.ErrRefused) {
					t.Errorf("got %v, want an error that leaves open whether the claim was released", err)
				}
			}
		})
	}
	inBubble(t, "granted by another request", func(t *testing.T) {
		b := newBulkServer(t, nil)
		b.instead = func(c call, n int) bson.D {
			b.edited.change(c)
			b.records["k/key 5"] = bson.D{e("_id", "k/key 5"), e("h", bson.A{bson.D{e("a", "s.5")}}), e("t", int64(1<<60))}
			return changedAll(n - 1)
		}
		b.acquireUsed(atOnce + 5)
		wantSent(t, "of a claim that holds the key with another token", b.sent(), append(ones(atOnce), 5, 0, 0)...)
		b.wantErrs()
	})
	inBubble(t, "the read fails", func(t *testing.T) {
		b := newBulkServer(t, nil)
		b.unmet = func(id string) bool { return id == "k/key 5" }
		b.fails = "aggregate"
		b.release(atOnce+5, false)
		b.wantErrs(4, 5, 6, 7, 8)
		for _, err := range b.errs {
			if errors.Is(err, driver.ErrRefused) {
				t.Errorf("got %v, want no error that says that the claim was not released", err)
			}
		}
		b = newBulkServer(t, nil)
		b.unmet = func(id string) bool { return id == "k/key 5" }
		b.fails = "aggregate"
		b.acquireUsed(atOnce + 3)
		wantSent(t, "acquires", b.sent(), append(ones(atOnce), 3, 0, 0, 0, 0)...) // each is requested again by itself
		b.wantErrs()
	})
	inBubble(t, "others have acquired the key since", func(t *testing.T) {
		b := newBulkServer(t, nil)
		b.unmet = func(id string) bool { return id == "k/key 6" }
		b.instead = func(c call, n int) bson.D {
			reply := b.edited.change(c)
			b.records["k/key 5"] = bson.D{e("_id", "k/key 5"), e("h", bson.A{bson.D{e("a", "other.1")}}), e("t", int64(1<<60))}
			return reply
		}
		b.release(atOnce+5, false)
		b.wantErrs() // the reply counts the release of key 5
	})
	lose := func(b *bulkServer, n int) { // n claims do not hold their keys any more
		b.records = make(map[string]bson.D)
		for i := range n {
			id := fmt.Sprint("k/key ", atOnce+i)
			b.records[id] = bson.D{e("_id", id), e("h", bson.A{}), e("t", int64(1024))}
		}
	}
	inBubble(t, "all were lost before", func(t *testing.T) {
		b := newBulkServer(t, nil)
		b.instead = func(c call, n int) bson.D {
			lose(b, n)
			return ok(e("n", n), e("nModified", 0))
		}
		b.release(atOnce+5, false)
		wantSent(t, "of claims that were lost", b.sent(), append(ones(atOnce), 5, 0, 0, 0, 0, 0, 0)...) // a read, and each by itself
	})
	inBubble(t, "not counted", func(t *testing.T) {
		b := newBulkServer(t, nil)
		b.instead = func(c call, n int) bson.D {
			lose(b, n)
			return ok(e("n", 0), e("nModified", 0), e("writeErrors", bson.A{bson.D{e("index", 0), e("code", 11601), e("errmsg", "interrupted")}}))
		}
		b.release(atOnce+5, false)
		wantSent(t, "in a statement that failed half-way", b.sent(), append(ones(atOnce), 5, 0)...)
		b.wantErrs()
	})
	inBubble(t, "again", func(t *testing.T) {
		b := newBulkServer(t, nil)
		b.instead = func(c call, n int) bson.D {
			b.edited.change(c)
			for id := range b.records {
				b.records[id] = bson.D{e("_id", id), e("h", bson.A{}), e("t", int64(1<<60))}
			}
			return changedAll(1)
		}
		b.release(atOnce+5, false)
		b.wantErrs(4, 5, 6, 7, 8)
		b.sent()
		b.instead = nil
		clear(b.errs)
		b.release(atOnce+5, false) // the same claims
		wantSent(t, "releases that were in doubt", b.sent(), 1, atOnce-1, 0, 0, 0, 0, 0)
		b.wantErrs()
	})
	inBubble(t, "a later format", func(t *testing.T) {
		b := newBulkServer(t, nil)
		b.instead = func(c call, n int) bson.D {
			b.edited.change(c)
			b.records["k/key 5"] = bson.D{e("_id", "k/key 5"), e("f", 3), e("t", int64(1024))}
			return changedAll(n - 1)
		}
		b.release(atOnce+5, false)
		wantSent(t, "of a record of a later format", b.sent(), append(ones(atOnce), 5, 0, 0)...)
	})
}

// A result goes to its caller as soon as it is known, also if a second command for others follows.
func TestTogetherDelaysNobody(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const slow = time.Second
		b := newBulkServer(t, nil)
		b.missing = func(id string) bool { return id == "k/key 5" || id == "k/key 6" }
		b.instead = func(c call, n int) bson.D {
			if len(idsIn(c)) > 0 {
				return b.edited.change(c)
			}
			time.Sleep(slow)
			return upsertedAll(n)
		}
		b.acquireUsed(atOnce + 5)
		done := func() int {
			b.mu.Lock()
			defer b.mu.Unlock()
			return b.finished
		}
		before := done()
		time.Sleep(slow / 2)
		if got := done() - before; got != atOnce+3 {
			t.Errorf("%d callers are done before the command that makes two records, want %d", got, atOnce+3)
		}
		b.wantErrs()
	})
}

// One statement can't make many records. So a bulk of Acquires begins with statements that each make a record, or with one
// for records that exist: whichever suited most keys of the last bulk. The other follows for the rest.
func TestAcquiresTogetherMakeRecords(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const n = 6
		b := newBulkServer(t, nil)
		round := func(what string, want ...string) {
			t.Helper()
			b.acquire(t.Context(), 1) // so that the next few go alone
			b.wg.Wait()
			b.f.script(b.f.answer)
			b.acquire(t.Context(), atOnce+n)
			b.wg.Wait()
			var got []string
			for _, c := range b.f.took()[atOnce:] {
				how := "make"
				if len(idsIn(c)) > 0 {
					how = "change"
				} else if c.name == "aggregate" {
					how = "read"
				}
				got = append(got, fmt.Sprint(how, " ", editsIn(c)))
			}
			if !slices.Equal(got, want) {
				t.Errorf("%s: sent %q, want %q", what, got, want)
			}
			b.wantErrs()
		}
		round("new keys", "make 6")
		b.exist = true
		round("used keys", "make 6", "change 6")
		round("used keys again", "change 6")
		last := ""
		b.missing = func(id string) bool { return id == last }
		last = fmt.Sprint("k/key ", len(b.errs)+1+atOnce+n-1)
		b.exist = false
		round("used keys and a new one", "change 6", "read 0", "make 1")
		round("used keys again", "change 6")
		b.missing = func(string) bool { return true }
		round("new keys", "change 6", "read 0", "make 6")
		round("new keys again", "make 6")
	})
}

// Acquires together have no effect after the earliest of the times after which each of them has none.
func TestAcquiresTogetherAreInTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBulkServer(t, nil)
		b.exist = true
		start := time.Now()
		b.acquire(t.Context(), atOnce)
		for _, left := range []time.Duration{400 * time.Millisecond, 300 * time.Millisecond, time.Minute} {
			b.start(func(i int) error {
				_, err := b.s.Edit(t.Context(), driver.Edit{Acquire: &driver.Acquire{Claim: bulkClaim(i), Wait: true, NotAfter: start.Add(left)}})
				return err
			})
		}
		b.wg.Wait()
		path := []string{"updates", "0", "u", "0", "$replaceWith", "$let", "in", "$cond", "0", "$and", "3", "$lte"}
		var until []bson.RawValue
		for _, c := range b.f.took() {
			if times, ok := c.cmd.Lookup(path...).ArrayOK(); ok {
				until = must(times.Values())
			}
		}
		if len(until) != 2 || until[0].StringValue() != "$$NOW" || !until[1].Time().Equal(start.Add(300*time.Millisecond)) {
			t.Errorf("the conditions have the times %v, want that the server's clock is at most %v", until, start.Add(300*time.Millisecond))
		}
	})
}

// A caller that gives up leaves the others alone. Its statement is not sent if it still waits.
func TestBulkCallerGivesUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBulkServer(t, nil)
		before, cancel := context.WithCancel(t.Context())
		after, cancelLater := context.WithCancel(t.Context())
		late, end := context.WithTimeout(t.Context(), 3*replyTime/2)
		defer end()
		b.acquire(t.Context(), atOnce)
		for _, ctx := range []context.Context{before, after, late} {
			b.acquire(ctx, 1)
		}
		b.acquire(t.Context(), 5)
		cancel()
		time.AfterFunc(3*replyTime/2, cancelLater)
		b.wantErrs(atOnce, atOnce+1, atOnce+2)
		wantSent(t, "one gives up before it is sent, and two after", b.sent(), append(ones(atOnce), 7)...)
		for i, want := range []error{context.Canceled, context.Canceled, context.DeadlineExceeded} {
			if got := b.errs[atOnce+i]; !errors.Is(got, want) {
				t.Errorf("got %v, want %v", got, want)
			}
		}
	})
}

// A bulk ends when its last caller gives up, or at its last caller's deadline.
func TestBulkEnds(t *testing.T) {
	for name, test := range map[string]struct {
		cancel bool
		want   time.Duration
	}{"all are cancelled": {true, time.Second}, "deadline": {false, attempt}} {
		inBubble(t, name, func(t *testing.T) {
			b := newBulkServer(t, nil)
			b.instead = func(call, int) bson.D { return silent }
			ctx, cancel := context.WithTimeout(t.Context(), attempt)
			defer cancel()
			b.acquire(t.Context(), atOnce)
			b.acquire(ctx, 6)
			_, before := b.f.Connections()
			start := time.Now()
			if test.cancel {
				time.AfterFunc(time.Second, cancel)
			}
			b.wg.Wait()
			if got := time.Since(start); got != test.want {
				t.Errorf("the callers returned after %v, want %v", got, test.want)
			}
			time.Sleep(2 * time.Second) // longer than the driver waits for a late reply
			if _, open := b.f.Connections(); open >= before {
				t.Errorf("%d connections are open, want fewer than %d: the command must have ended", open, before)
			}
		})
	}
}

// A reply that does not come holds up no other statement for longer than a moment, or than a quarter of the time that
// replies take.
func TestBulkWithoutAnswerDelaysNobody(t *testing.T) {
	for reply, want := range map[time.Duration]time.Duration{
		replyTime:              5 * time.Millisecond,
		400 * time.Millisecond: 100 * time.Millisecond,
	} {
		inBubble(t, reply.String(), func(t *testing.T) {
			b := newBulkServer(t, nil)
			var once sync.Once
			var second time.Time
			b.instead = func(_ call, n int) (answer bson.D) {
				second, answer = time.Now(), changedAll(n)
				once.Do(func() { answer = silent })
				return answer
			}
			ctx, cancel := context.WithTimeout(t.Context(), attempt)
			defer cancel()
			b.reply = reply
			b.acquire(ctx, atOnce+10)
			time.Sleep(reply + time.Millisecond) // the bulk is under way
			start := time.Now()
			b.acquire(ctx, 20)
			wantSent(t, "behind a silent one", b.sent(), append(ones(atOnce), 10, 20)...)
			if got := second.Add(-reply).Sub(start); got != want {
				t.Errorf("they were sent after %v, want %v", got, want)
			}
			b.wantErrs(4, 5, 6, 7, 8, 9, 10, 11, 12, 13)
		})
	}
}

// While a bulk is under way, the reply to a command with one statement sends nothing: what waits goes together, after the
// bulk's reply or a moment later.
func TestBulkIsNotSentByOtherReplies(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const reply, moment = 10 * time.Millisecond, 5 * time.Millisecond
		b := newBulkServer(t, nil)
		b.reply = reply
		arrived := b.arrivals()
		b.acquire(t.Context(), atOnce+10) // the bulk of 10 goes after a moment
		time.Sleep(moment + 2*time.Millisecond)
		b.acquire(t.Context(), 20) // the others are answered 3 ms later
		wantSent(t, "around other replies", b.sent(), append(ones(atOnce), 10, 20)...)
		if want := []time.Duration{moment, 2*moment + 2*time.Millisecond}; !slices.Equal(*arrived, want) {
			t.Errorf("bulks were sent after %v, want %v", *arrived, want)
		}
		b.wantErrs()
	})
}

// As many statements as one bulk may have go at once, even while another bulk is under way.
func TestFullBulkGoesAtOnce(t *testing.T) {
	const full = 1000
	testkit.Large(t)
	synctest.Test(t, func(t *testing.T) {
		const reply, moment = 10 * time.Millisecond, 5 * time.Millisecond
		b := newBulkServer(t, nil)
		b.reply = reply
		arrived := b.arrivals()
		b.acquire(t.Context(), atOnce+2*full+10)
		wantSent(t, "two full bulks, and ten more", b.sent(), append(ones(atOnce), full, full, 10)...)
		if want := []time.Duration{0, 0, moment}; !slices.Equal(*arrived, want) {
			t.Errorf("bulks were sent after %v, want %v", *arrived, want)
		}
		b.wantErrs()
	})
}

// How long a statement waits follows from the last reply, not from the slowest.
func TestBulkForgetsSlowReplies(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBulkServer(t, nil)
		for _, b.reply = range []time.Duration{400 * time.Millisecond, 20 * time.Millisecond} {
			b.acquire(t.Context(), 1)
			b.sent()
		}
		var arrived time.Duration
		start := time.Now()
		b.instead = func(_ call, n int) bson.D {
			arrived = time.Since(start) - b.reply
			return changedAll(n)
		}
		b.acquire(t.Context(), atOnce+10)
		wantSent(t, "after a slow reply and a quick one", b.sent(), append(ones(atOnce), 10)...)
		if want := 5 * time.Millisecond; arrived != want {
			t.Errorf("the bulk was sent after %v, want %v", arrived, want)
		}
	})
}

// A bulk is for at most 1,000 records, and each of its statements for at most 64.
func TestBulkIsBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBulkServer(t, nil)
		b.release(atOnce, false)
		for range 1003 {
			b.wg.Go(func() {
				b.mu.Lock()
				i := len(b.errs)
				b.errs[i] = nil
				b.mu.Unlock()
				if _, err := b.s.Edit(t.Context(), driver.Edit{Release: &driver.Release{Claim: bulkClaim(i)}}); err != nil {
					t.Error(err)
				}
			})
		}
		synctest.Wait()
		b.wg.Wait()
		for _, c := range b.f.took() {
			updates, _ := c.cmd.Lookup("updates").ArrayOK()
			statements, _ := updates.Values()
			for _, u := range statements {
				in, _ := u.Document().Lookup("q", "_id", "$in").ArrayOK()
				if ids, _ := in.Values(); len(ids) > 64 {
					t.Errorf("a statement is for %d records, want at most 64", len(ids))
				}
			}
		}
		wantSent(t, "1,003 callers at the same time", b.sent(), append(ones(atOnce), 1000, 3)...)
	})
}

// On a sharded cluster, and on servers other than MongoDB, each short command goes alone.
func TestShortCommandsGoAloneElsewhere(t *testing.T) {
	for name, hello := range map[string]func(bson.D) bson.D{"sharded": asMongos, "not MongoDB": without("topologyVersion")} {
		inBubble(t, name, func(t *testing.T) {
			b := newBulkServer(t, hello)
			b.release(atOnce+20, false)
			wantSent(t, name, b.sent(), ones(atOnce+20)...)
			b.wantErrs()
		})
	}
}

// B33: a bulk is part of no caller's transaction.
func TestBulkIgnoresContextValues(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBulkServer(t, nil)
		sess := transaction(t, b.client)
		b.acquire(mongo.NewSessionContext(t.Context(), sess), atOnce+20)
		b.wg.Wait()
		b.f.wantNone(sess)
		wantSent(t, "in a transaction", b.sent(), append(ones(atOnce), 20)...)
	})
}

// Discard of many claims that a fail-over has brought back: those of plain holders that nobody waits for go together.
// The others take a command each.
func TestDiscardOfManyClaims(t *testing.T) {
	const plain = 800
	for name, test := range map[string]struct {
		hello  func(bson.D) bson.D
		single int // findAndModify commands
		most   int // updates
	}{
		"together":             {single: 3, most: 1 + atOnce + 2},
		"on a sharded cluster": {hello: asMongos, single: plain + 3, most: 1},
	} {
		testkit.InBubble(t, name, func(t *testing.T) {
			f := newFake(t)
			if test.hello != nil {
				f.say(test.hello)
			}
			var claims []driver.Claim
			records := bson.A{}
			for i := range plain + 3 {
				claims = append(claims, driver.Claim{Key: fmt.Sprint(i), ID: fmt.Sprint("s.", i), Session: "s"})
				holder := bson.D{e("a", claims[i].ID), e("s", "s"), e("w", 1), e("t", int64(1024))}
				limit, queue := 1, bson.A{}
				switch i {
				case plain:
					holder = append(holder, e("l", true))
				case plain + 1:
					limit = 2
				case plain + 2:
					queue = bson.A{bson.D{e("a", "o.1"), e("s", "o"), e("w", 1)}}
				}
				records = append(records, bson.D{e("_id", fmt.Sprint("k/", i)), e("c", limit), e("t", int64(1024)), e("h", bson.A{holder}), e("q", queue)})
			}
			var mu sync.Mutex
			released, singles, updates := make(map[string]int), 0, 0
			s := f.storeOn(f.anyClient(), nil, func(c call) bson.D {
				time.Sleep(replyTime)
				mu.Lock()
				defer mu.Unlock()
				n := editsIn(c)
				switch {
				case c.name == "aggregate":
					batch, asked := c.cmd.Lookup("cursor", "batchSize").AsInt64OK()
					if !asked {
						batch = 101 // the server's default
					}
					return ok(e("cursor", bson.D{e("id", int64(0)), e("ns", "app.leasehold"), e("firstBatch", records[:min(int(batch), len(records))])}))
				case c.name == "findAndModify":
					singles++
					released[text(c, "query", "_id")]++
					return ok(e("value", bson.D{e("now", time.Now()), e("h", bson.A{})}))
				}
				if updates++; updates > 1 { // the first finds out whether there are such claims
					for _, id := range append(idsIn(c), text(c, "updates", "0", "q", "_id")) {
						released[id]++
					}
				}
				return ok(e("n", n), e("nModified", n))
			})
			_, err := s.Discard(t.Context(), claims)
			testkit.NoErr(t, err)
			if singles != test.single || updates > test.most {
				t.Errorf("%d claims took %d updates and %d commands for one claim each, want at most %d and %d", len(claims), updates, singles, test.most, test.single)
			}
			for _, c := range claims {
				if n := released["k/"+c.Key]; n != 1 {
					t.Errorf("%s was released %d times, want once", c.ID, n)
				}
			}
		})
	}
}

// A candidate joins the queue after Discard has read that nobody waits. So the short Release does not apply, and a
// hand-over grants the candidate the next term.
func TestDiscardCountsTerms(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		updates := 0
		s := newFake(t).store(nil, func(c call) bson.D {
			holder := bson.D{e("a", "s.1"), e("s", "s"), e("w", 1), e("t", int64(1024)), e("n", int64(6))}
			record := bson.D{e("_id", "k/k"), e("f", 2), e("y", "election"), e("c", 1), e("t", int64(1024)), e("n", int64(6)), e("h", bson.A{holder}), e("q", bson.A{})}
			switch c.name {
			case "aggregate":
				return cursor(record)
			case "findAndModify":
				if !strings.Contains(c.cmd.String(), "$$term") {
					t.Errorf("the hand-over does not count the term: %v", c.cmd)
				}
				candidate := bson.D{e("a", "o.1"), e("s", "o"), e("w", 1), e("p", int64(5))}
				return ok(e("value", append(record, e("now", time.Now()), e("first", candidate), e("waiting", 1))))
			}
			if updates++; updates > 1 {
				return unwritten(241)
			}
			return ok(e("n", 1), e("nModified", 0))
		})
		notices, err := s.Discard(t.Context(), []driver.Claim{{Key: "k", ID: "s.1", Session: "s"}})
		testkit.NoErr(t, err)
		if len(notices) != 1 || notices[0].Claim != "o.1" || notices[0].Term != 7 {
			t.Errorf("notices %+v, want one of the grant to o.1 in term 7", notices)
		}
	})
}
