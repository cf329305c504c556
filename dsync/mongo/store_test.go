package mongo_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/leasehold-go/leasehold/dsync/driver"
	dsyncmongo "github.com/leasehold-go/leasehold/dsync/mongo"
	"github.com/leasehold-go/leasehold/internal/storecmd"
	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"
)

const attempt = 5 * time.Second

// methods has calls of the methods that send one command, with hostile names as arguments.
var methods = []struct {
	name   string
	writes bool
	call   func(context.Context, driver.Store) error
}{
	{"Register", true, func(ctx context.Context, s driver.Store) error {
		_, err := s.Register(ctx, driver.Member{
			ID: evil, Name: evil, TTL: attempt, Host: evil, App: evil, PID: 7, Meta: map[string]string{evil: evil},
		})
		return err
	}},
	{"Heartbeat", true, func(ctx context.Context, s driver.Store) error {
		_, err := s.Heartbeat(ctx, evil, nil)
		return err
	}},
	{"HeartbeatGiven", true, func(ctx context.Context, s driver.Store) error {
		_, err := s.Heartbeat(ctx, evil, []driver.Revocation{{Key: evil, Claim: evilClaim.ID}})
		return err
	}},
	{"Revoke", true, func(ctx context.Context, s driver.Store) error {
		_, err := s.Revoke(ctx, evil, driver.Revocation{Key: evil, Claim: evilClaim.ID})
		return err
	}},
	{"Observe", true, func(ctx context.Context, s driver.Store) error {
		return s.Observe(ctx, evil, 1, []string{evil})
	}},
	{"Expire", true, func(ctx context.Context, s driver.Store) error {
		_, err := s.Expire(ctx, evil, false)
		return err
	}},
	{"Unregister", true, func(ctx context.Context, s driver.Store) error {
		return storecmd.Unregister(ctx, s, evil)
	}},
	{"AcquireWait", true, func(ctx context.Context, s driver.Store) error {
		_, _, err := storecmd.Acquire(ctx, s, evilClaim, true, []string{evil}, time.Now())
		return err
	}},
	{"AcquireTry", true, func(ctx context.Context, s driver.Store) error {
		_, _, err := storecmd.Acquire(ctx, s, evilClaim, false, nil, time.Now())
		return err
	}},
	{"Release", true, func(ctx context.Context, s driver.Store) error {
		_, _, err := storecmd.Release(ctx, s, evilClaim, driver.Release{})
		return err
	}},
	{"ReleaseKeep", true, func(ctx context.Context, s driver.Store) error {
		_, _, err := storecmd.Release(ctx, s, evilClaim, driver.Release{Keep: attempt})
		return err
	}},
	{"ReleaseSeal", true, func(ctx context.Context, s driver.Store) error {
		_, _, err := storecmd.Release(ctx, s, evilClaim, driver.Release{Seal: 1, Result: []byte(evil)})
		return err
	}},
	{"ReleaseSuccessor", true, func(ctx context.Context, s driver.Store) error {
		_, _, err := storecmd.Release(ctx, s, evilClaim, driver.Release{Successor: evil})
		return err
	}},
	{"Resize", true, func(ctx context.Context, s driver.Store) error {
		_, err := storecmd.Resize(ctx, s, evil, evil, 2, 1)
		return err
	}},
	{"Forget", true, func(ctx context.Context, s driver.Store) error {
		_, _, err := storecmd.Forget(ctx, s, evil, 1)
		return err
	}},
	{"Extend", true, func(ctx context.Context, s driver.Store) error {
		_, err := storecmd.Extend(ctx, s, evilClaim, 1)
		return err
	}},
	{"Publish", true, func(ctx context.Context, s driver.Store) error {
		_, err := storecmd.Publish(ctx, s, evilClaim, 1, []byte(evil))
		return err
	}},
	{"Load", false, func(ctx context.Context, s driver.Store) error {
		_, err := s.Load(ctx, evil, 1000)
		return err
	}},
	{"Keys", false, func(ctx context.Context, s driver.Store) error {
		_, err := s.Keys(ctx, driver.KeyQuery{Prefix: evil, After: evil, Limit: 10})
		return err
	}},
	{"Members", false, func(ctx context.Context, s driver.Store) error {
		_, _, err := storecmd.Members(ctx, s, evil)
		return err
	}},
	{"MembersAll", false, func(ctx context.Context, s driver.Store) error {
		_, _, err := storecmd.Members(ctx, s)
		return err
	}},
	{"Liveness", false, func(ctx context.Context, s driver.Store) error {
		_, _, err := storecmd.Liveness(ctx, s, evil)
		return err
	}},
	{"Observers", false, func(ctx context.Context, s driver.Store) error {
		_, err := storecmd.Observers(ctx, s, evil, evil, 10)
		return err
	}},
	{"Queue", false, func(ctx context.Context, s driver.Store) error {
		_, err := storecmd.Queue(ctx, s, evil)
		return err
	}},
	{"Sweep", false, func(ctx context.Context, s driver.Store) error {
		_, err := s.Sweep(ctx, evil, driver.SweepState{Turn: 1}, attempt) // there is no such state yet
		return err
	}},
}

// evil is a name that means something else if it is evaluated as an expression.
const evil = "$$NOW"

var evilClaim = driver.Claim{Key: evil, ID: evil + ".1", Session: evil, Kind: evil, Weight: 1, Limit: 1, Lease: attempt, Yield: true}

// null answers like a server that has no such record.
func null(call) bson.D { return ok(e("value", nil), e("n", 0)) }

func TestStoreOneCommand(t *testing.T) {
	for _, m := range methods {
		inBubble(t, m.name, func(t *testing.T) {
			f := newFake(t)
			s := f.store(nil, func(c call) bson.D {
				if m.writes && c.name != "update" {
					return ok(e("value", bson.D{
						e("at", time.Now()), e("ttl", 1000), e("now", time.Now()), e("y", evil), e("c", 1),
					}))
				}
				return ok(e("n", 1), e("cursor", bson.D{
					e("id", int64(0)), e("ns", "app.leasehold"), e("firstBatch", bson.A{bson.D{e("now", time.Now())}}),
				}))
			})
			ctx, cancel := context.WithTimeout(t.Context(), attempt)
			defer cancel()
			if err := m.call(ctx, s); err != nil && !errors.Is(err, driver.ErrNotHeld) {
				t.Error(err)
			}
			got := f.took()
			if len(got) != 1 {
				t.Fatalf("%d commands were sent, want 1: %v", len(got), got)
			}
			checkCommand(t, got[0], m.writes)
		})
	}
}

// L11, B17, promise 10: the rights find, insert, update and remove on one collection, leasehold or the one in
// Options, are enough. For what notices need, see TestListenOrdinaryCommands.
func TestOrdinaryCommandsOnOneCollection(t *testing.T) {
	ordinary := []string{"findAndModify", "update", "insert", "delete", "find", "aggregate"}
	for _, opt := range []*dsyncmongo.Options{nil, {Collection: "locks"}} {
		want, other := "leasehold", "locks"
		if opt != nil {
			want, other = other, want
		}
		inBubble(t, want, func(t *testing.T) {
			f := newFake(t)
			s := f.store(opt, nil)
			check := func(name string, answer func(call) bson.D, do func()) {
				t.Helper()
				f.script(answer)
				do()
				got := f.took()
				if len(got) == 0 {
					t.Errorf("%s sent no command", name)
				}
				for _, c := range got {
					if on, _ := c.cmd.Lookup(c.name).StringValueOK(); !slices.Contains(ordinary, c.name) || on != want {
						t.Errorf("%s: %s of %q, want one of %v of %q", name, c.name, on, ordinary, want)
					}
					if strings.Contains(c.cmd.String(), `"`+other+`"`) {
						t.Errorf("%s names the collection %q: %v", name, other, c.cmd)
					}
				}
			}
			for _, m := range methods {
				check(m.name, null, func() { m.call(t.Context(), s) }) // may return an error: there is no such record
			}
			found := bson.D{e("id", int64(0)), e("ns", "app."+want), e("firstBatch", bson.A{bson.D{
				e("now", time.Now()), e("end", "k/z"), e("size", 1),
			}})}
			check("Sweep that deletes", func(call) bson.D { return ok(e("n", 1), e("cursor", found)) }, func() {
				s.Sweep(t.Context(), evil, driver.SweepState{}, attempt)
			})
		})
	}
}

// checkCommand checks what must be true of every command that is sent with a deadline.
func checkCommand(t *testing.T, c call, writes bool) {
	t.Helper()
	if ms, _ := c.cmd.Lookup("maxTimeMS").AsInt64OK(); ms < 1 || ms > attempt.Milliseconds() {
		t.Errorf("maxTimeMS is %d, want it within the deadline: %v", ms, c.cmd)
	}
	for _, field := range []string{"txnNumber", "autocommit", "startTransaction"} {
		if _, err := c.cmd.LookupErr(field); err == nil {
			t.Errorf("the command has %s: %v", field, c.cmd)
		}
	}
	if !writes {
		return
	}
	if w, _ := c.cmd.Lookup("writeConcern", "w").StringValueOK(); w != "majority" {
		t.Errorf("w is %q, want majority: %v", w, c.cmd)
	}
	if ms, _ := c.cmd.Lookup("writeConcern", "wtimeout").AsInt64OK(); ms < 1 || ms > attempt.Milliseconds() {
		t.Errorf("wtimeout is %d, want it within the deadline: %v", ms, c.cmd)
	}
	for _, part := range [][]string{{"update"}, {"fields"}, {"updates", "0", "u"}, {"pipeline"}} {
		if v, err := c.cmd.LookupErr(part...); err == nil {
			checkQuoted(t, v, evilClaim.ID)
		}
	}
}

// checkQuoted checks that a caller's text is nowhere evaluated as an expression, nor used as the name of a field.
func checkQuoted(t *testing.T, v bson.RawValue, callers string) {
	t.Helper()
	switch v.Type {
	case bson.TypeString:
		if v.StringValue() == callers {
			t.Errorf("the text %q would be evaluated", callers)
		}
	case bson.TypeEmbeddedDocument, bson.TypeArray:
		elements, err := bson.Raw(v.Value).Elements()
		noErr(t, err)
		for _, el := range elements {
			if el.Key() == callers {
				t.Errorf("the text %q is the name of a field", callers)
			}
			if el.Key() != "$literal" {
				checkQuoted(t, el.Value(), callers)
			}
		}
	}
}

// Callers' texts are sent as literals. TestStoreOneCommand checks the claim's id in every command. This test checks
// the other texts. It uses "$evil", because our own pipelines contain "$$NOW", which would look the same.
func TestStoreTextsAreLiterals(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake(t)
		s := f.store(nil, func(call) bson.D { return ok(e("n", 0), e("value", bson.D{e("at", time.Now())})) })
		m := driver.Member{ID: "s", TTL: attempt, Name: "$evil", Host: "$evil", App: "$evil", Meta: map[string]string{"$evil": "$evil"}}
		if _, err := s.Register(t.Context(), m); err != nil {
			t.Fatal(err)
		}
		c := driver.Claim{Key: "$evil", ID: "$evil", Session: "$evil", Kind: "$evil", Weight: 1, Limit: 1}
		if _, _, err := storecmd.Acquire(t.Context(), s, c, true, []string{"$evil"}, time.Now()); err != nil {
			t.Fatal(err)
		}
		if _, err := storecmd.Publish(t.Context(), s, c, 1, []byte("$evil")); !errors.Is(err, driver.ErrNotHeld) {
			t.Fatal(err)
		}
		if _, err := storecmd.Resize(t.Context(), s, "k", "$evil", 1, 2); !errors.Is(err, driver.ErrMismatch) {
			t.Fatal(err)
		}
		for _, c := range f.took() {
			for _, part := range [][]string{{"update"}, {"fields"}, {"updates", "0", "u"}} {
				checkQuoted(t, c.cmd.Lookup(part...), "$evil")
			}
		}
		f.script(func(call) bson.D { return ok(e("n", 1), e("value", bson.D{e("at", time.Now())})) })
		r := driver.Revocation{Key: "k", Claim: "$evil"}
		if _, err := s.Revoke(t.Context(), "s", r); err != nil {
			t.Fatal(err)
		}
		if _, err := s.Heartbeat(t.Context(), "s", []driver.Revocation{r}); err != nil {
			t.Fatal(err)
		}
		for i := range 2 {
			c := f.took()[i].cmd
			if !strings.Contains(c.String(), `"a": "$evil"`) {
				t.Errorf("the revocation is not in %v", c)
			}
			checkQuoted(t, c.Lookup("update"), "$evil")
		}
	})
}

// B10, B09: if a command may not have been committed, its method returns an error other than the store's documented
// answers.
func TestStoreUnknownOutcome(t *testing.T) {
	granted := func() bson.D {
		now := time.Now()
		return bson.D{e("at", now), e("now", now), e("ttl", 1000), e("position", 0), e("h", bson.A{bson.D{
			e("a", evilClaim.ID), e("s", evil), e("w", 1), e("t", 1024), e("at", now), e("e", now.Add(time.Hour)),
		}})}
	}
	unconfirmed := e("writeConcernError", bson.D{
		e("code", 64), e("codeName", "WriteConcernFailed"), e("errmsg", "waiting for replication timed out"),
	})
	cases := []struct {
		name   string
		answer func(call) bson.D
	}{
		{"overloaded", func(call) bson.D { return overloaded(462) }},
		{"lost reply", func(call) bson.D { return lost }},
		{"not confirmed", func(call) bson.D { return ok(e("value", granted()), e("n", 1), unconfirmed) }},
		{"not confirmed and nothing there", func(call) bson.D { return ok(e("value", nil), e("n", 0), unconfirmed) }},
		{"confirmation refused", func(call) bson.D {
			return ok(e("value", granted()), e("n", 1), e("writeConcernError", bson.D{e("code", 13), e("errmsg", "Unauthorized")}))
		}},
		{"not primary", func(call) bson.D { return refusal(10107, "NotWritablePrimary") }},
		{"stepping down", func(call) bson.D { return refusal(11602, "InterruptedDueToReplStateChange") }},
		{"time limit", func(call) bson.D { return refusal(50, "MaxTimeMSExpired") }},
		{"writes blocked", func(call) bson.D { return refusal(371, "UserWritesBlocked") }},
		{"over the space quota", func(call) bson.D { return overQuota }},
		{"write conflict", func(call) bson.D { return refusal(112, "WriteConflict") }},
		{"nothing in the reply", func(call) bson.D { return ok() }},
	}
	for _, tc := range cases {
		for _, m := range methods {
			if !m.writes {
				continue
			}
			inBubble(t, tc.name+"/"+m.name, func(t *testing.T) {
				f := newFake(t)
				s := f.store(nil, tc.answer)
				err := m.call(t.Context(), s)
				if err == nil {
					t.Fatal("no error")
				}
				for _, answer := range []error{driver.ErrRefused, driver.ErrSessionExpired, driver.ErrNotHeld, driver.ErrMismatch} {
					if errors.Is(err, answer) {
						t.Errorf("the error is a definite answer: %v", err)
					}
				}
				want := 1
				if tc.name == "overloaded" {
					want = 3 // the driver repeats it twice by itself
				}
				if n := len(f.took()); n != want {
					t.Errorf("%d commands were sent, want %d", n, want)
				}
			})
		}
	}
}

func TestStoreRefused(t *testing.T) {
	codes := map[int]string{
		13: "Unauthorized", 18: "AuthenticationFailed", 9: "FailedToParse", 59: "CommandNotFound",
		224: "QueryFeatureNotAllowed", 241: "ConversionFailure", 323: "APIStrictError",
	}
	for code, name := range codes {
		for _, m := range methods {
			inBubble(t, name+"/"+m.name, func(t *testing.T) {
				s := newFake(t).store(nil, func(c call) bson.D {
					if c.name == "update" {
						return ok(e("n", 0), e("writeErrors", bson.A{bson.D{e("index", 0), e("code", code), e("errmsg", name)}}))
					}
					return refusal(code, name)
				})
				if err := m.call(t.Context(), s); !errors.Is(err, driver.ErrRefused) {
					t.Errorf("got %v, want ErrRefused", err)
				}
			})
		}
	}
}

func TestStoreNoRecord(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newFake(t).store(nil, null)
		if _, err := s.Heartbeat(t.Context(), "s", nil); !errors.Is(err, driver.ErrSessionExpired) {
			t.Errorf("Heartbeat: got %v, want ErrSessionExpired", err)
		}
		if _, err := storecmd.Extend(t.Context(), s, evilClaim, 1); !errors.Is(err, driver.ErrNotHeld) {
			t.Errorf("Extend: got %v, want ErrNotHeld", err)
		}
		if _, err := storecmd.Publish(t.Context(), s, evilClaim, 1, nil); !errors.Is(err, driver.ErrNotHeld) {
			t.Errorf("Publish: got %v, want ErrNotHeld", err)
		}
		if found, _, err := storecmd.Release(t.Context(), s, evilClaim, driver.Release{}); found || err != nil {
			t.Errorf("Release: got %t, %v, want false, nil", found, err)
		}
	})
}

// An upsert that lost a race is sent a second time, but not a third.
func TestStoreDuplicateKey(t *testing.T) {
	for _, m := range methods {
		if m.name != "Expire" && m.name != "Unregister" && m.name != "AcquireTry" {
			continue
		}
		inBubble(t, m.name, func(t *testing.T) {
			f := newFake(t)
			races := 1
			s := f.store(nil, func(call) bson.D {
				if races--; races >= 0 {
					return refusal(11000, "DuplicateKey")
				}
				return ok(e("value", bson.D{e("dead", m.name == "Expire"), e("at", time.Now())}))
			})
			if err := m.call(t.Context(), s); err != nil {
				t.Errorf("after one race: %v", err)
			}
			if n := len(f.took()); n != 2 {
				t.Errorf("%d commands were sent, want 2", n)
			}
			races = 2
			if err := m.call(t.Context(), s); !mongo.IsDuplicateKeyError(err) || errors.Is(err, driver.ErrRefused) {
				t.Errorf("after two races: got %v, want the driver's error", err)
			}
			if n := len(f.took()); n != 4 {
				t.Errorf("%d commands were sent, want 4", n)
			}
		})
	}
}

// The options of the caller's client must not change how commands are encoded.
func TestStoreEncodesByItself(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake(t)
		s := f.storeOn(f.client(options.Client().SetBSONOptions(&options.BSONOptions{
			IntMinSize: true, UseJSONStructTags: true, NilSliceAsEmpty: true, ErrorOnInlineDuplicates: true,
		})), nil, func(call) bson.D { return ok(e("value", bson.D{e("h", bson.A{bson.D{e("a", evilClaim.ID)}})})) })
		if _, _, err := storecmd.Acquire(t.Context(), s, evilClaim, true, nil, time.Now()); err != nil {
			t.Fatal(err)
		}
		w := f.took()[0].cmd.Lookup("update", "0", "$set", "_", "$literal", "claim", "w")
		if w.Type != bson.TypeInt64 {
			t.Errorf("the weight is a %v, want a 64-bit integer", w.Type)
		}
	})
}
