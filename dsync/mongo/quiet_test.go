package mongo_test

import (
	"fmt"
	"regexp"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/leasehold-go/leasehold/dsync"
	"go.mongodb.org/mongo-driver/v2/bson"
)

// A quiet is a key of a store whose server is asked with commands, which are told
// apart, and answers them as a free key would unless the test says else.
type quiet struct {
	t       *testing.T
	f       *fake
	s       dsync.Store
	waiting int               // in line, as replies have it
	instead map[string]bson.D // answers, by kind of command
}

func newQuiet(t *testing.T) *quiet {
	q := &quiet{t: t, f: newFake(t), instead: make(map[string]bson.D)}
	q.s = q.f.store(nil, func(c call) bson.D {
		if answer, ok := q.instead[kindOf(c)]; ok {
			return answer
		}
		if c.name == "update" {
			return ok(e("n", 1), e("nModified", 1))
		}
		claim := regexp.MustCompile(`"(s\.[0-9]+)"`).FindStringSubmatch(c.cmd.String())[1]
		return ok(e("value", bson.D{
			e("now", time.Now()), e("y", "mutex"), e("c", 1), e("t", int64(1024)), e("waiting", q.waiting),
			e("h", bson.A{bson.D{e("a", claim), e("s", "s"), e("w", 1), e("t", int64(1024))}}),
		}))
	})
	return q
}

// kindOf tells the short commands from the pipelines.
func kindOf(c call) string {
	if c.name == "findAndModify" {
		return "acquire"
	}
	stages, err := c.cmd.Lookup("updates", "0", "u").Array().Values()
	switch {
	case err != nil || len(stages) != 2:
		return "release"
	case strings.Contains(stages[0].String(), "$$first"):
		return "short release"
	}
	return "short acquire"
}

// sent returns what was sent since it was called last.
func (q *quiet) sent() string {
	var kinds []string
	for _, c := range q.f.took() {
		kinds = append(kinds, kindOf(c))
	}
	q.f.script(q.f.answer)
	return strings.Join(kinds, ", ")
}

func (q *quiet) want(what, want string) {
	q.t.Helper()
	if got := q.sent(); got != want {
		q.t.Errorf("%s: sent %q, want %q", what, got, want)
	}
}

func (q *quiet) acquire(c dsync.Claim) error {
	_, err := q.s.Acquire(q.t.Context(), c, true, nil, time.Now().Add(time.Second))
	return err
}

// turn acquires and releases c.
func (q *quiet) turn(c dsync.Claim) {
	q.t.Helper()
	if err := q.acquire(c); err != nil {
		q.t.Error(err)
	}
	found, err := q.s.Release(q.t.Context(), c, dsync.Outcome{})
	if err != nil || !found {
		q.t.Errorf("release: found %t, %v", found, err)
	}
}

func mutexClaim(n int) dsync.Claim {
	return dsync.Claim{Key: "k", ID: fmt.Sprint("s.", n), Session: "s", Kind: dsync.KindMutex, Weight: 1, Limit: 1, Token: 1024}
}

// A key that nobody else uses takes two short commands a turn.
func TestQuietKeyTakesShortCommands(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := newQuiet(t)
		q.turn(mutexClaim(1))
		q.want("the first turn", "acquire, short release")
		for i := range 3 {
			q.turn(mutexClaim(2 + i))
			q.want("a further turn", "short acquire, short release")
		}
	})
}

// Where a short command matches nothing the pipeline follows at once; and as the key
// is not quiet then, the next turn begins with it.
func TestQuietKeyIsNotQuietAnyMore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := newQuiet(t)
		q.turn(mutexClaim(1))
		q.sent()
		q.instead["short acquire"] = ok(e("n", 1), e("nModified", 0))
		q.waiting = 1
		q.turn(mutexClaim(2))
		q.want("others hold it", "short acquire, acquire, short release")
		q.turn(mutexClaim(3))
		q.want("others are in line", "acquire, short release")
		q.waiting = 0
		q.instead["short release"] = ok(e("n", 1), e("nModified", 0))
		q.turn(mutexClaim(4))
		q.want("a release that is not for the short one", "acquire, short release, release")
		q.turn(mutexClaim(5))
		q.want("after that", "acquire, short release, release")
	})
}

// The token of a short grant leaves the room of a step behind the last, and is as great
// as the server's clock has it, of which the last reply told, and not the host's.
func TestQuietKeyTokens(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const last = 1024 // as the answers of newQuiet have it
		q := newQuiet(t)
		server := time.UnixMilli(0)
		told := func(ask func() error) {
			t.Helper()
			q.instead["acquire"] = ok(e("value", bson.D{e("at", server)})) // any findAndModify
			if err := ask(); err != nil {
				t.Error(err)
			}
			delete(q.instead, "acquire")
		}
		beat := func() error {
			_, err := q.s.Heartbeat(t.Context(), "s", nil)
			return err
		}
		register := func() error {
			_, err := q.s.Register(t.Context(), dsync.Member{ID: "s", TTL: time.Second})
			return err
		}
		grant := func(n int) (token int64, since time.Time) {
			t.Helper()
			q.sent()
			st, err := q.s.Acquire(t.Context(), mutexClaim(n), true, nil, time.Now().Add(time.Second))
			if err != nil || len(st.Holders) != 1 {
				t.Fatalf("got %+v, %v", st, err)
			}
			sent := q.f.took()[0].cmd.Lookup("updates", "0", "u", "0", "$set", "_", "$cond", "1", "$literal")
			var to struct {
				Token int64     `bson:"t"`
				At    time.Time `bson:"at"`
			}
			if err := sent.Unmarshal(&to); err != nil {
				t.Fatal(err)
			}
			if h := st.Holders[0]; to.Token != st.Token || to.Token != h.Token || !to.At.Equal(h.Since) || !to.At.Equal(st.Now) {
				t.Errorf("sent %+v, and answered %+v", to, st)
			}
			q.f.script(q.f.answer)
			if _, err := q.s.Release(t.Context(), mutexClaim(n), dsync.Outcome{}); err != nil {
				t.Error(err)
			}
			return to.Token, to.At
		}
		q.turn(mutexClaim(1))
		told(beat)
		if token, _ := grant(2); token != last+1024 {
			t.Errorf("with the server's clock behind: token %d after %d", token, last)
		}
		if token, _ := grant(3); token != last+2*1024 {
			t.Errorf("with the server's clock behind: token %d after %d", token, last+1024)
		}
		for i, ask := range []func() error{beat, register} {
			server = server.Add(5000 * time.Second)
			told(ask)
			time.Sleep(time.Second)
			want := server.Add(time.Second).UnixMilli()
			if token, since := grant(4 + i); token != want*1024 || since.UnixMilli() != want {
				t.Errorf("got token %d since %v, want those of the server's clock, %d ms", token, since, want)
			}
		}
	})
}

// What became of a key is unknown when a command of it was not answered.
func TestQuietKeyIsForgottenWithoutAnswer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := newQuiet(t)
		q.turn(mutexClaim(1))
		q.sent()
		unknown := e("writeConcernError", bson.D{e("code", 64), e("errmsg", "waiting for replication timed out")})
		q.instead["short acquire"] = ok(e("n", 1), e("nModified", 1), unknown)
		c := mutexClaim(2)
		if err := q.acquire(c); err == nil {
			t.Error("no error")
		}
		q.turn(c)
		q.want("an acquire without an answer, and the next", "short acquire, acquire, short release")
		q.instead["short release"] = ok(e("n", 1), e("nModified", 1), unknown)
		c = mutexClaim(3)
		delete(q.instead, "short acquire")
		if err := q.acquire(c); err != nil {
			t.Error(err)
		}
		if _, err := q.s.Release(t.Context(), c, dsync.Outcome{}); err == nil {
			t.Error("no error")
		}
		delete(q.instead, "short release")
		if found, err := q.s.Release(t.Context(), c, dsync.Outcome{}); err != nil || !found {
			t.Errorf("found %t, %v", found, err)
		}
		q.want("a release without an answer, and its repetition", "short acquire, short release, short release")
		q.turn(mutexClaim(4))
		q.want("after that", "acquire, short release")
	})
}

// A try is one command, also where it fails: it begins with the pipeline.
func TestQuietKeyIsTriedWithOneCommand(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := newQuiet(t)
		q.turn(mutexClaim(1))
		q.sent()
		if _, err := q.s.Acquire(t.Context(), mutexClaim(2), false, nil, time.Now().Add(time.Second)); err != nil {
			t.Fatal(err)
		}
		q.want("a try", "acquire")
	})
}

// What needs more than a token goes by the pipeline, as does a release that keeps or
// seals the key.
func TestQuietKeyOnlyForSimpleClaims(t *testing.T) {
	claims := map[string]func(*dsync.Claim){
		"lease":    func(c *dsync.Claim) { c.Lease = time.Minute },
		"yields":   func(c *dsync.Claim) { c.Yield = true },
		"election": func(c *dsync.Claim) { c.Kind = dsync.KindElection },
		"part":     func(c *dsync.Claim) { c.Limit = 2 },
	}
	for name, change := range claims {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				q := newQuiet(t)
				q.turn(mutexClaim(1))
				q.sent()
				c := mutexClaim(2)
				change(&c)
				q.turn(c)
				want := "acquire, release"
				if c.Kind == dsync.KindElection {
					want = "acquire, short release" // that counts terms
				}
				q.want(name, want)
			})
		})
	}
	outcomes := map[string]dsync.Outcome{"keep": {Keep: time.Minute}, "seal": {Seal: true}}
	for name, o := range outcomes {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				q := newQuiet(t)
				if err := q.acquire(mutexClaim(1)); err != nil {
					t.Fatal(err)
				}
				if _, err := q.s.Release(t.Context(), mutexClaim(1), o); err != nil {
					t.Fatal(err)
				}
				q.want(name, "acquire, release")
				q.turn(mutexClaim(2))
				q.want("after "+name, "acquire, short release")
			})
		})
	}
}

// Of more keys than are remembered any are asked for with the pipeline.
func TestQuietKeysAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const n = 5000
		q := newQuiet(t)
		key := func(i int) dsync.Claim {
			c := mutexClaim(i)
			c.Key = fmt.Sprint("k", i)
			return c
		}
		for i := range n {
			q.turn(key(i))
		}
		q.sent()
		for i := range n {
			if err := q.acquire(key(i)); err != nil {
				t.Fatal(err)
			}
		}
		if short := strings.Count(q.sent(), "short acquire"); short > 4096 || short < 1 {
			t.Errorf("%d keys of %d were remembered, want some, and at most 4096", short, n)
		}
	})
}
