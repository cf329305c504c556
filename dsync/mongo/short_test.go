package mongo_test

import (
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/leasehold-go/leasehold/dsync/driver"
	"github.com/leasehold-go/leasehold/internal/storecmd"
	"github.com/leasehold-go/leasehold/internal/testkit"
	"go.mongodb.org/mongo-driver/v2/bson"
)

// A shortServer recognizes the commands on a key, and answers them as if the key were free, unless the test sets
// other answers.
type shortServer struct {
	t       *testing.T
	f       *fake
	s       driver.Store
	waiting int               // the number of waiters in replies
	first   bson.D            // the first waiter
	instead map[string]bson.D // answers, by kind of command

	observed time.Time // the mark (o) in replies: somebody observes the key until then
}

func newShortServer(t *testing.T) *shortServer {
	return newShortServerOn(t, func(hello bson.D) bson.D { return hello })
}

func newShortServerOn(t *testing.T, hello func(bson.D) bson.D) *shortServer {
	q := &shortServer{t: t, f: newFake(t), instead: make(map[string]bson.D)}
	q.f.say(hello)
	q.s = q.f.store(nil, func(c call) bson.D {
		if answer, ok := q.instead[kindOf(c)]; ok {
			return answer
		}
		if c.name == "update" {
			return ok(e("n", 1), e("nModified", 1))
		}
		claim := regexp.MustCompile(`"(s\.[0-9]+)"`).FindStringSubmatch(c.cmd.String())[1]
		record := bson.D{
			e("now", time.Now()), e("y", "mutex"), e("f", 2), e("c", 1), e("t", int64(1024)), e("waiting", q.waiting),
			e("h", bson.A{bson.D{e("a", claim), e("s", "s"), e("w", 1), e("t", int64(1024))}}),
		}
		if q.first != nil {
			record = append(record, e("first", q.first))
		}
		if !q.observed.IsZero() {
			record = append(record, e("o", q.observed))
		}
		return ok(e("value", record))
	})
	return q
}

// kindOf returns the name of a command's kind.
func kindOf(c call) string {
	_, err := c.cmd.LookupErr("update", "0", "$set", "_", "$literal", "mine")
	_, claims := c.cmd.LookupErr("update", "0", "$set", "_", "$literal", "claim")
	switch {
	case shortOf(c) != "":
		return shortOf(c)
	case c.name == "update":
		return "release alone"
	case err == nil && claims != nil:
		return "release"
	}
	return "acquire" // any other findAndModify counts as this
}

// sent returns the kinds of the commands sent since the last call of sent.
func (q *shortServer) sent() string {
	var kinds []string
	for _, c := range q.f.took() {
		kinds = append(kinds, kindOf(c))
	}
	q.f.script(q.f.answer)
	return strings.Join(kinds, ", ")
}

func (q *shortServer) want(what, want string) {
	q.t.Helper()
	if got := q.sent(); got != want {
		q.t.Errorf("%s: sent %q, want %q", what, got, want)
	}
}

func (q *shortServer) acquire(c driver.Claim) error { return q.join(driver.Acquire{Claim: c}) }

func (q *shortServer) join(j driver.Acquire) error {
	j.Wait, j.NotAfter = true, time.Now().Add(time.Second)
	_, err := q.s.Edit(q.t.Context(), driver.Edit{Acquire: &j})
	return err
}

// turn acquires and releases c.
func (q *shortServer) turn(c driver.Claim) {
	q.t.Helper()
	if err := q.acquire(c); err != nil {
		q.t.Error(err)
	}
	q.release(c)
}

func (q *shortServer) release(c driver.Claim) []driver.Notice {
	q.t.Helper()
	found, notices, err := storecmd.Release(q.t.Context(), q.s, c, driver.Release{})
	if err != nil || !found {
		q.t.Errorf("release: found %t, %v", found, err)
	}
	return notices
}

// mutexClaim returns a claim that, as far as its session knows, was granted while nobody waited.
func mutexClaim(n int) driver.Claim {
	return driver.Claim{Key: "k", ID: fmt.Sprint("s.", n), Session: "s", Kind: driver.KindMutex, Weight: 1, Limit: 1, Token: 1024, NoneWaiting: true}
}

// On a key that no other process uses, each acquire and each release is one short command.
func TestLastUsedKeyTakesShortCommands(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := newShortServer(t)
		for i := range 3 {
			q.turn(mutexClaim(1 + i))
			q.want("a turn", "short acquire, short release")
		}
	})
}

// On a key without a record, too, each acquire and each release is one short command: the short acquire creates the
// record. If the short acquire arrives too late, or another process is faster, the pipeline follows.
func TestNewKeyTakesShortCommands(t *testing.T) {
	for name, tc := range map[string]struct {
		reply bson.D
		want  string
	}{
		"made":                         {made, "short acquire, short release"},
		"too late":                     {notMade, "short acquire, acquire, short release"},
		"made by another":              {raced, "short acquire, acquire, short release"},
		"made, and not free any more":  {ok(e("n", 1), e("nModified", 0)), "short acquire, acquire, short release"},
		"another process used it last": {ok(e("n", 1), e("nModified", 1)), "short acquire, short release"},
	} {
		inBubble(t, name, func(t *testing.T) {
			q := newShortServer(t)
			q.instead["short acquire"] = tc.reply
			q.turn(mutexClaim(1))
			if upsert, _ := q.f.took()[0].cmd.Lookup("updates", "0", "upsert").BooleanOK(); !upsert {
				t.Error("the short acquire does not create a record")
			}
			q.want(name, tc.want)
		})
	}
}

// If it is unknown whether a short acquire was applied, Acquire returns an error and sends no second command.
func TestNewKeyWithoutAnswer(t *testing.T) {
	unknown := e("writeConcernError", bson.D{e("code", 64), e("errmsg", "waiting for replication timed out")})
	for name, reply := range map[string]bson.D{
		"made":     append(bson.D{unknown}, made...),
		"not made": unwritten(241, unknown),
		"raced":    unwritten(11000, unknown),
	} {
		inBubble(t, name, func(t *testing.T) {
			q := newShortServer(t)
			q.instead["short acquire"] = reply
			if err := q.acquire(mutexClaim(1)); err == nil || errors.Is(err, driver.ErrRefused) {
				t.Errorf("got %v, want an error that leaves open whether the command was applied", err)
			}
			q.want(name, "short acquire")
			q.turn(mutexClaim(2))
			q.want("the next turn", "acquire, short release")
		})
	}
}

// If another process was the last to use a key, or no process has used it, the first acquire is short. The acquire is
// not short if it is repeated, has a tick, or goes to a server other than MongoDB.
func TestUnknownKeyIsAcquired(t *testing.T) {
	repeated := func(j *driver.Acquire) { j.Repeated = true }
	for name, tc := range map[string]struct {
		change   func(*driver.Acquire)
		portable bool
		want     string
	}{
		"first request":         {func(*driver.Acquire) {}, false, "short acquire"},
		"repeated request":      {repeated, false, "acquire"},
		"of a Once":             {func(j *driver.Acquire) { j.Claim.Kind, j.Claim.Tick = driver.KindOnce, 1 }, false, "acquire"},
		"of another primitive":  {func(j *driver.Acquire) { j.Claim.Kind = driver.KindSemaphore }, false, "short acquire"},
		"on FerretDB":           {func(*driver.Acquire) {}, true, "acquire"},
		"repeated, on FerretDB": {repeated, true, "acquire"},
	} {
		inBubble(t, name, func(t *testing.T) {
			hello := func(d bson.D) bson.D { return d }
			if tc.portable {
				hello = without("topologyVersion")
			}
			q := newShortServerOn(t, hello)
			j := driver.Acquire{Claim: mutexClaim(1)}
			tc.change(&j)
			if err := q.join(j); err != nil {
				t.Error(err)
			}
			q.want(name, tc.want)
		})
	}
}

// On servers whose upserts are unreliable, the short acquire is sent only for a key that this process was the last to
// use. It does not create a record.
func TestKnownKeyIsNotMadeOnOtherServers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := newShortServerOn(t, without("topologyVersion"))
		q.turn(mutexClaim(1))
		q.want("the first turn", "acquire, short release")
		if err := q.acquire(mutexClaim(2)); err != nil {
			t.Error(err)
		}
		if upsert, err := q.f.took()[0].cmd.LookupErr("updates", "0", "upsert"); err == nil {
			t.Errorf("the short acquire was sent with upsert: %v", upsert)
		}
		q.want("the next", "short acquire")
	})
}

// On servers other than MongoDB, no short command has a stage that FerretDB computes differently.
func TestShortCommandsElsewhere(t *testing.T) {
	for name, elsewhere := range map[string]bool{"MongoDB": false, "another": true} {
		inBubble(t, name, func(t *testing.T) {
			q := newShortServer(t)
			if elsewhere {
				q = newShortServerOn(t, without("topologyVersion"))
			}
			q.turn(mutexClaim(1))
			noErr(t, q.acquire(mutexClaim(2)))
			c := mutexClaim(2)
			c.NoneWaiting = false
			q.release(c)
			calls := q.f.took()
			for i, want := range []string{"short acquire", "short hand-over"} {
				c := calls[len(calls)-2+i]
				if shortOf(c) != want {
					t.Errorf("sent %v, want a %s", c.cmd, want)
				}
				if strings.Contains(c.cmd.String(), "$replaceWith") == elsewhere {
					t.Errorf("sent %v, want $replaceWith in it only on MongoDB", c.cmd)
				}
			}
		})
	}
}

// If others usually hold the key, an acquire usually takes one command: no short acquire is sent until the pipeline
// finds that the key is free and that nobody waits.
func TestContendedKeyIsAcquiredWithOneCommand(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := newShortServer(t)
		q.instead["short acquire"] = ok(e("n", 1), e("nModified", 0))
		held := ok(e("value", bson.D{e("now", time.Now()), e("y", "mutex"), e("c", 1), e("waiting", 1), e("position", 1), e("h", bson.A{
			bson.D{e("a", "o.1"), e("s", "o"), e("w", 1), e("t", int64(1024))},
		})}))
		acquire := func(n int, what, want string) {
			t.Helper()
			if err := q.acquire(mutexClaim(n)); err != nil {
				t.Error(err)
			}
			q.want(what, want)
		}
		q.instead["acquire"] = held
		acquire(1, "held by another, which this process does not know", "short acquire, acquire")
		for i := range 3 {
			acquire(2+i, "held by another again", "acquire")
		}
		delete(q.instead, "acquire")
		acquire(5, "free", "acquire")
		delete(q.instead, "short acquire")
		acquire(6, "free again, though this process has not released it", "short acquire")
	})
}

// A key counts as contended after a try whose reply shows waiters. It also counts as contended after a release that
// keeps the key or grants it to another session.
func TestContendedKeyIsKnownFromAnyCommand(t *testing.T) {
	for name, do := range map[string]func(*shortServer){
		"a try": func(q *shortServer) {
			q.waiting = 1
			if _, _, err := storecmd.Acquire(q.t.Context(), q.s, mutexClaim(1), false, nil, time.Now().Add(time.Second)); err != nil {
				q.t.Error(err)
			}
		},
		"a release": func(q *shortServer) {
			q.first = bson.D{e("a", "o.1"), e("s", "o"), e("w", 1)}
			c := mutexClaim(1)
			c.NoneWaiting = false
			q.release(c)
		},
		"a release that keeps": func(q *shortServer) {
			if _, _, err := storecmd.Release(q.t.Context(), q.s, mutexClaim(1), driver.Release{Keep: time.Minute}); err != nil {
				q.t.Error(err)
			}
		},
	} {
		inBubble(t, name, func(t *testing.T) {
			q := newShortServer(t)
			do(q)
			q.sent()
			if err := q.acquire(mutexClaim(2)); err != nil {
				t.Error(err)
			}
			q.want("after "+name, "acquire")
		})
	}
}

// A short acquire has no effect more than a second after its token's time, and none after notAfter.
func TestShortAcquireExpiresSoon(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := newShortServer(t)
		for i, tc := range []struct{ notAfter, want time.Duration }{
			{time.Hour, time.Second},
			{time.Second / 2, time.Second / 2},
		} {
			c := mutexClaim(i)
			c.Key = fmt.Sprint("k", i)
			if _, _, err := storecmd.Acquire(t.Context(), q.s, c, true, nil, time.Now().Add(tc.notAfter)); err != nil {
				t.Error(err)
			}
			sent := q.f.took()[i]
			var conditions []bson.Raw
			noErr(t, sent.cmd.Lookup("updates", "0", "u", "0", "$replaceWith", "$cond", "0", "$and").Unmarshal(&conditions))
			until := conditions[len(conditions)-1].Lookup("$lte", "1").Time()
			since, _ := sent.shortGrant("at").TimeOK()
			if got := until.Sub(since); got != tc.want {
				t.Errorf("with notAfter in %v the command has no effect after %v, want %v", tc.notAfter, got, tc.want)
			}
		}
	})
}

// If a short command changes nothing, another command follows at once. If this second command finds that others use
// the key, the process's next acquire of the key begins with the pipeline.
func TestShortCommandsEndWhenOthersCome(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := newShortServer(t)
		q.turn(mutexClaim(1))
		q.sent()
		unchanged := ok(e("n", 1), e("nModified", 0))
		q.instead["short acquire"] = unchanged
		q.waiting = 1
		q.turn(mutexClaim(2))
		q.want("others hold it", "short acquire, acquire, short release")
		q.turn(mutexClaim(3))
		q.want("others are in the queue", "acquire, short release")
		delete(q.instead, "short acquire")
		q.waiting = 0
		if err := q.acquire(mutexClaim(4)); err != nil {
			t.Error(err)
		}
		q.instead["short release"] = unchanged
		q.waiting, q.first = 1, bson.D{e("a", "o.1"), e("s", "o"), e("w", 1)}
		q.release(mutexClaim(4))
		q.want("others have come since", "acquire, short release, short hand-over")
		q.waiting, q.first = 0, nil
		q.turn(mutexClaim(5))
		q.want("after a hand-over", "acquire, short release, short hand-over")
		q.turn(mutexClaim(6))
		q.want("after a hand-over to nobody", "short acquire, short release, short hand-over")
		q.first = bson.D{e("a", "o.1"), e("s", "o"), e("w", 1), e("l", true)}
		q.turn(mutexClaim(7))
		q.want("others that want something else", "short acquire, short release, short hand-over, release")
		q.turn(mutexClaim(8))
		q.want("after that", "acquire, short release, short hand-over, release")
	})
}

// On a key that somebody observes, the short acquire and the short release change nothing, because their replies do
// not contain the record. The next command's reply contains the record, so that command returns the notice for the
// observers.
func TestObservedKeyTakesCommandsWithReplies(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := newShortServer(t)
		q.observed = time.Now().Add(time.Hour)
		unchanged := ok(e("n", 1), e("nModified", 0))
		q.instead["short acquire"], q.instead["short release"] = unchanged, unchanged
		q.turn(mutexClaim(1))
		q.want("an observed key", "short acquire, acquire, short release, short hand-over")
		for range 2 {
			q.turn(mutexClaim(1))
			q.want("an observed key again", "acquire, short release, short hand-over")
		}
		if err := q.acquire(mutexClaim(2)); err != nil {
			t.Error(err)
		}
		want := []driver.Notice{{Type: driver.NoticeChange, Key: "k"}}
		if got := q.release(mutexClaim(2)); !slices.Equal(got, want) {
			t.Errorf("got %+v, want %+v", got, want)
		}
		q.observed = time.Now() // this time has passed, but stays in the record until a pipeline removes it
		if got := q.release(mutexClaim(2)); len(got) > 0 {
			t.Errorf("got %+v when nobody observed the key any more, want none", got)
		}
		q.sent()
		q.turn(mutexClaim(3))
		q.want("a key that was observed", "acquire, short release, short hand-over")
	})
}

// If a claim was granted while others waited, its release begins with the short hand-over, or with the pipeline if
// there is no short hand-over for the claim. If nobody waited, the release begins with an update.
func TestReleaseBehindWaiters(t *testing.T) {
	for name, tc := range map[string]struct {
		change func(*driver.Claim)
		want   string
	}{
		"mutex":                {func(c *driver.Claim) { c.NoneWaiting = false }, "short hand-over"},
		"election":             {func(c *driver.Claim) { c.NoneWaiting, c.Kind = false, driver.KindElection }, "short hand-over"},
		"lease":                {func(c *driver.Claim) { c.NoneWaiting, c.Lease = false, time.Minute }, "release"},
		"lease, alone":         {func(c *driver.Claim) { c.Lease = time.Minute }, "release alone"},
		"part, alone":          {func(c *driver.Claim) { c.Limit = 2 }, "release alone"},
		"without token":        {func(c *driver.Claim) { c.NoneWaiting, c.Token = false, 0 }, "release"},
		"without token, alone": {func(c *driver.Claim) { c.Token = 0 }, "release alone"},
	} {
		inBubble(t, name, func(t *testing.T) {
			q := newShortServer(t)
			c := mutexClaim(1)
			tc.change(&c)
			q.release(c)
			q.want(name, tc.want)
		})
	}
	inBubble(t, "part, alone no more", func(t *testing.T) {
		q := newShortServer(t)
		c := mutexClaim(1)
		c.Limit = 2
		q.instead["release alone"] = ok(e("n", 0))
		q.release(c)
		q.want("part", "release alone, release")
	})
}

// If this process knows that few claims wait, a short hand-over asks for the whole record.
func TestHandOverBeforeAFew(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := newShortServer(t)
		c := mutexClaim(1)
		c.NoneWaiting = false
		release := func(what string, whole bool) []driver.Notice {
			t.Helper()
			notices := q.release(c)
			calls := q.f.took()
			q.f.script(q.f.answer)
			if len(calls) != 1 || shortOf(calls[0]) != "short hand-over" {
				t.Fatalf("%s: sent %q, want a short hand-over", what, names(calls))
			}
			if _, err := calls[0].cmd.LookupErr("fields"); (err != nil) != whole {
				t.Errorf("%s: the command asks for the whole record: %t, want %t", what, err != nil, whole)
			}
			return notices
		}
		behind := func(waiting int) {
			t.Helper()
			q.waiting = waiting
			noErr(t, q.acquire(c))
			q.sent()
		}
		waiter := func(id string) bson.D { return bson.D{e("a", id+".1"), e("s", id), e("w", 1), e("p", 5)} }
		q.first = waiter("a")
		release("nothing is known", false)
		behind(101)
		release("101 wait", false)
		behind(100)

		reply := func(queue bson.A) {
			q.instead["short hand-over"] = ok(e("value", bson.D{
				e("_id", "k/k"), e("y", "mutex"), e("f", 2), e("c", 1), e("t", int64(1024)),
				e("h", bson.A{bson.D{e("a", "s.1"), e("s", "s"), e("w", 1), e("t", int64(1024))}}), e("q", queue),
				e("o", time.Now().Add(-time.Minute)), // nobody observes it now
			}))
		}
		reply(bson.A{waiter("a"), waiter("b")})
		got := release("100 wait", true)
		if want := []driver.Notice{{Type: driver.NoticeGrant, Session: "a", Key: "k", Claim: "a.1", Address: 5, Crowded: true}}; len(got) != 1 || got[0].Token <= 1024 {
			t.Errorf("notices %+v, want %+v with a greater token", got, want)
		} else if got[0].Token = 0; got[0] != want[0] {
			t.Errorf("notices %+v, want %+v", got, want)
		}
		reply(bson.A{})
		if got := release("one waits", true); len(got) > 0 {
			t.Errorf("notices %+v for a record with an empty queue, want none", got)
		}
	})
}

// The token of a short grant is at least a step greater than the last token, and is not behind the server's clock.
// The server's time is taken from its last reply, not from the host's clock.
func TestShortGrantTokens(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const last = 1024 // the token in the answers of a shortServer
		q := newShortServer(t)
		server := time.UnixMilli(0)
		answer := func(send func() error) {
			t.Helper()
			q.instead["acquire"] = ok(e("value", bson.D{e("at", server)})) // the answer to any findAndModify
			if err := send(); err != nil {
				t.Error(err)
			}
			delete(q.instead, "acquire")
		}
		heartbeat := func() error {
			_, err := q.s.Heartbeat(t.Context(), "s", nil)
			return err
		}
		register := func() error {
			_, err := q.s.Register(t.Context(), driver.Member{ID: "s", TTL: time.Second})
			return err
		}
		grant := func(n int) (token int64, since time.Time) {
			t.Helper()
			q.sent()
			st, _, err := storecmd.Acquire(t.Context(), q.s, mutexClaim(n), true, nil, time.Now().Add(time.Second))
			if err != nil || len(st.Holders) != 1 {
				t.Fatalf("got %+v, %v, want one holder", st, err)
			}
			sent := q.f.took()[0].shortGrant()
			var to struct {
				Token int64     `bson:"t"`
				At    time.Time `bson:"at"`
			}
			noErr(t, sent.Unmarshal(&to))
			if h := st.Holders[0]; to.Token != st.Token || to.Token != h.Token || !to.At.Equal(h.Since) || !to.At.Equal(st.Now) {
				t.Errorf("sent %+v, but returned %+v", to, st)
			}
			q.f.script(q.f.answer)
			if _, _, err := storecmd.Release(t.Context(), q.s, mutexClaim(n), driver.Release{}); err != nil {
				t.Error(err)
			}
			return to.Token, to.At
		}
		q.instead["short acquire"] = ok(e("n", 1), e("nModified", 0))
		q.turn(mutexClaim(1))
		delete(q.instead, "short acquire")
		answer(heartbeat)
		if token, _ := grant(2); token != last+1024 {
			t.Errorf("with the server's clock behind: token %d after %d, want a step more", token, last)
		}
		if token, _ := grant(3); token != last+2*1024 {
			t.Errorf("with the server's clock behind: token %d after %d, want a step more", token, last+1024)
		}
		for i, send := range []func() error{heartbeat, register} {
			server = server.Add(5000 * time.Second)
			answer(send)
			time.Sleep(time.Second)
			want := server.Add(time.Second).UnixMilli()
			if token, since := grant(4 + i); token != want*1024 || since.UnixMilli() != want {
				t.Errorf("got token %d and the time %v, want both by the server's clock, %d ms", token, since, want)
			}
		}
	})
}

// If it is unknown whether a command on a key was applied, the next acquire of the key is not short.
func TestLastUsedKeyIsForgottenWithoutAnswer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := newShortServer(t)
		q.turn(mutexClaim(1))
		q.sent()
		unknown := e("writeConcernError", bson.D{e("code", 64), e("errmsg", "waiting for replication timed out")})
		q.instead["short acquire"] = ok(e("n", 1), e("nModified", 1), unknown)
		c := mutexClaim(2)
		if err := q.acquire(c); err == nil {
			t.Error("no error")
		}
		q.turn(c)
		q.want("an acquire that is not confirmed, and the next turn", "short acquire, acquire, short release")
		q.instead["short release"] = ok(e("n", 1), e("nModified", 1), unknown)
		c = mutexClaim(3)
		delete(q.instead, "short acquire")
		if err := q.acquire(c); err != nil {
			t.Error(err)
		}
		if _, _, err := storecmd.Release(t.Context(), q.s, c, driver.Release{}); err == nil {
			t.Error("no error")
		}
		delete(q.instead, "short release")
		if found, _, err := storecmd.Release(t.Context(), q.s, c, driver.Release{}); err != nil || !found {
			t.Errorf("the repeated release: found %t, %v, want true, nil", found, err)
		}
		q.want("a release that is not confirmed, and its repetition", "short acquire, short release, short release")
		q.turn(mutexClaim(4))
		q.want("after that", "acquire, short release")
	})
}

// A try takes one command even if it fails, because it begins with the pipeline.
func TestTryTakesOneCommand(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := newShortServer(t)
		q.turn(mutexClaim(1))
		q.sent()
		if _, _, err := storecmd.Acquire(t.Context(), q.s, mutexClaim(2), false, nil, time.Now().Add(time.Second)); err != nil {
			t.Fatal(err)
		}
		q.want("a try", "acquire")
	})
}

// The pipeline grants claims that need more than a token. Releases that keep or seal the key use the pipeline,
// too.
func TestShortCommandsOnlyForSimpleClaims(t *testing.T) {
	claims := map[string]func(*driver.Claim){
		"lease":    func(c *driver.Claim) { c.Lease = time.Minute },
		"yields":   func(c *driver.Claim) { c.Yield = true },
		"election": func(c *driver.Claim) { c.Kind = driver.KindElection },
		"part":     func(c *driver.Claim) { c.Limit = 2 },
	}
	for name, change := range claims {
		inBubble(t, name, func(t *testing.T) {
			q := newShortServer(t)
			q.turn(mutexClaim(1))
			q.sent()
			c := mutexClaim(2)
			change(&c)
			q.turn(c)
			want := "acquire, release alone"
			if c.Kind == driver.KindElection {
				want = "acquire, short release" // only its grant needs a term
			}
			q.want(name, want)
		})
	}
	for name, tc := range map[string]struct {
		release driver.Release
		crowded bool // others waited when the claim was granted
		want    string
	}{
		"keep":               {driver.Release{Keep: time.Minute}, false, "short acquire, short keep"},
		"keep, with waiters": {driver.Release{Keep: time.Minute}, true, "short acquire, release"},
		"keep and seal":      {driver.Release{Keep: time.Minute, Seal: 1}, false, "short acquire, release"},
		"seal":               {driver.Release{Seal: 1}, false, "short acquire, release"},
	} {
		inBubble(t, name, func(t *testing.T) {
			q := newShortServer(t)
			noErr(t, q.acquire(mutexClaim(1)))
			c := mutexClaim(1)
			c.NoneWaiting = !tc.crowded
			if _, _, err := storecmd.Release(t.Context(), q.s, c, tc.release); err != nil {
				t.Fatal(err)
			}
			q.want(name, tc.want)
			q.turn(mutexClaim(2))
			q.want("after "+name, "acquire, short release")
		})
	}
}

// A claim that can't be kept with a short command, because it has an end or somebody waits, is kept with the pipeline.
// The end is counted by the server's clock, and a short command that keeps waits for a majority.
func TestShortKeep(t *testing.T) {
	for name, tc := range map[string]struct {
		reply bson.D
		want  string
		err   error
	}{
		"met":     {ok(e("n", 1), e("nModified", 1)), "short keep", nil},
		"unmet":   {ok(e("n", 0), e("nModified", 0), e("writeErrors", bson.A{bson.D{e("index", 0), e("code", 241), e("errmsg", "")}})), "short keep, release", nil},
		"refused": {refusal(13, "Unauthorized"), "short keep", driver.ErrRefused},
	} {
		inBubble(t, name, func(t *testing.T) {
			q := newShortServer(t)
			q.instead["short keep"] = tc.reply
			found, _, err := storecmd.Release(t.Context(), q.s, mutexClaim(1), driver.Release{Keep: time.Minute - time.Microsecond, Early: true})
			if found != (tc.err == nil) || !errors.Is(err, tc.err) {
				t.Errorf("found %t, %v, want the error %v", found, err, tc.err)
			}
			keep := q.f.took()[0].cmd
			if end := keep.Lookup("updates", "0", "u", "0", "$set", "h", "$cond", "1", "0", "$mergeObjects", "1", "e", "$add").String(); end != `["$$NOW",{"$numberLong":"60000"}]` {
				t.Errorf("the end is %s, want a minute after the server's time, rounded up", end)
			}
			if w, _ := keep.Lookup("writeConcern", "w").StringValueOK(); w != "majority" {
				t.Errorf("the write concern is %q, want majority", w)
			}
			q.want(name, tc.want)
		})
	}
}

// A store remembers at most maxRemembered contended keys, and the last tokens of at most as many other keys. Beyond
// that it forgets arbitrary ones.
func TestLastUsedKeysAreBounded(t *testing.T) {
	testkit.Large(t)
	const n = 5000
	key := func(i int) driver.Claim {
		c := mutexClaim(i)
		c.Key = fmt.Sprint("k", i)
		return c
	}
	check := func(t *testing.T, remembered int) {
		if remembered > 4096 || remembered < 1 {
			t.Errorf("%d keys of %d were remembered, want some, and at most 4096", remembered, n)
		}
	}
	inBubble(t, "used last", func(t *testing.T) {
		q := newShortServer(t)
		for i := range n {
			q.turn(key(i))
		}
		q.instead["acquire"] = ok(e("value", bson.D{e("at", time.UnixMilli(0))})) // the server's clock is behind the tokens
		if _, err := q.s.Heartbeat(t.Context(), "s", nil); err != nil {
			t.Error(err)
		}
		remembered := 0
		for i := range n {
			st, _, err := storecmd.Acquire(t.Context(), q.s, key(i), true, nil, time.Now().Add(time.Second))
			noErr(t, err)
			if st.Token > time.Hour.Milliseconds()*1024 {
				remembered++
			}
		}
		check(t, remembered)
	})
	inBubble(t, "contended", func(t *testing.T) {
		q := newShortServer(t)
		q.instead["short acquire"] = ok(e("n", 1), e("nModified", 0))
		q.waiting = 1
		for range 2 {
			q.sent()
			for i := range n {
				noErr(t, q.acquire(key(i)))
			}
		}
		check(t, n-strings.Count(q.sent(), "short acquire"))
	})
}
