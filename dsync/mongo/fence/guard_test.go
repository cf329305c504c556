package fence_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/leasehold-go/leasehold/dsync/mongo/fence"
	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
)

// guards answers the commands of guarded transactions on one key, one transaction at a time. committed is the token
// that the last committed transaction stored; token is the token that the current transaction sees.
type guards struct {
	mu               sync.Mutex
	committed, token int64
}

func (g *guards) answer(c call) bson.D {
	g.mu.Lock()
	defer g.mu.Unlock()
	switch c.name {
	case "find":
		return ok(e("cursor", bson.D{e("id", int64(0)), e("ns", "app.guards"), e("firstBatch", bson.A{})}))
	case "findAndModify":
		g.token = max(g.token, c.cmd.Lookup("update", "$max", "token").Int64())
		return ok(e("value", bson.D{e("_id", c.cmd.Lookup("query", "_id")), e("token", g.token)}))
	case "commitTransaction":
		g.committed = g.token
	case "abortTransaction":
		g.token = g.committed
	}
	return ok(e("n", 1))
}

// guard returns a Guard on f that has already run its first transaction.
func (f *fake) guard(answer func(call) bson.D) (*fence.Guard, *mongo.Database) {
	f.t.Helper()
	db := f.client().Database("app")
	f.script(new(guards).answer)
	guard := fence.NewGuard(db.Collection("guards"))
	if err := guard.Transact(f.t.Context(), "k", 1, nothing); err != nil {
		f.t.Fatal(err)
	}
	f.script(answer)
	return guard, db
}

func nothing(context.Context) error { return nil }

func inserting(db *mongo.Database) func(context.Context) error {
	return func(ctx context.Context) error {
		_, err := db.Collection("orders").InsertOne(ctx, seven)
		return err
	}
}

// A Guard adds one command to each transaction. Before its first transaction it sends three more.
func TestGuardOneMoreCommand(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake(t)
		db := f.client().Database("app")
		f.script(new(guards).answer)
		guard := fence.NewGuard(db.Collection("guards"))
		for _, before := range []string{"create find commitTransaction ", ""} {
			f.script(new(guards).answer)
			noErr(t, guard.Transact(t.Context(), "order 7", 42, inserting(db)))
			f.wantCommands(before + "findAndModify insert commitTransaction")
		}
		calls := f.took()
		first, commit := calls[0].cmd, calls[2].cmd
		if got, want := first.Lookup("query").String(), `{"_id": "order 7"}`; got != want {
			t.Errorf("the guard's document is %s, want %s", got, want)
		}
		// Without $inc, the server would write nothing for a holder's second transaction in the same millisecond.
		if got, want := first.Lookup("update").String(), `{"$max": {"token": {"$numberLong":"42"}},"$inc": {"n": {"$numberLong":"1"}},"$currentDate": {"at": true}}`; got != want {
			t.Errorf("the update is %s, want %s", got, want)
		}
		for _, field := range []string{"upsert", "new", "startTransaction"} {
			if got := first.Lookup(field).String(); got != "true" {
				t.Errorf("%s is %q, want true", field, got)
			}
		}
		if got, want := first.Lookup("readConcern", "level").String(), `"snapshot"`; got != want {
			t.Errorf("the transaction reads %s, want %s", got, want)
		}
		if got, want := commit.Lookup("writeConcern", "w").String(), `"majority"`; got != want {
			t.Errorf("the commit waits for %s, want %s", got, want)
		}
		for _, c := range calls {
			if c.cmd.Lookup("lsid").String() != first.Lookup("lsid").String() || c.cmd.Lookup("txnNumber").String() != first.Lookup("txnNumber").String() {
				t.Errorf("%s is part of another transaction", c.name)
			}
		}
	})
}

// A transaction whose token is too old is aborted before the caller's function is called.
func TestGuardRefusesAnOlderToken(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake(t)
		guard, db := f.guard((&guards{committed: 43, token: 43}).answer)
		for token, want := range map[int64]string{42: "findAndModify abortTransaction", 43: "findAndModify insert commitTransaction"} {
			f.script((&guards{committed: 43, token: 43}).answer)
			err := guard.Transact(t.Context(), "order 7", token, inserting(db))
			f.wantCommands(want)
			var why *fence.StaleError
			if token == 43 && err != nil {
				t.Errorf("the same holder: got %v", err)
			} else if token == 42 && (!errors.Is(err, fence.ErrStale) || !errors.As(err, &why) ||
				why.Seen != 43 || why.Token != 42 || why.Collection != "guards" || why.ID.StringValue() != "order 7") {
				t.Errorf("an older holder: got %v, want ErrStale", err)
			}
		}
		// Somebody has replaced the token in the document with text.
		f.script(func(c call) bson.D { return ok(e("value", bson.D{e("_id", "order 7"), e("token", "text")})) })
		if err := guard.Transact(t.Context(), "order 7", 42, inserting(db)); !errors.Is(err, fence.ErrStale) {
			t.Errorf("a token that is text: got %v, want ErrStale", err)
		}
		f.wantCommands("findAndModify abortTransaction")
	})
}

// Without a hold, Token returns 0, and Transact sends nothing.
func TestGuardWithoutToken(t *testing.T) {
	for _, token := range []int64{0, -1} {
		synctest.Test(t, func(t *testing.T) {
			f := newFake(t)
			guard, db := f.guard(new(guards).answer)
			if err := guard.Transact(t.Context(), "order 7", token, inserting(db)); !errors.Is(err, fence.ErrStale) {
				t.Errorf("got %v, want ErrStale", err)
			}
			f.wantCommands("")
		})
	}
}

// When the driver calls f again after a conflict, the Guard checks the token again.
func TestGuardChecksEachTry(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake(t)
		var answers guards
		commits := 0
		guard, db := f.guard(func(c call) bson.D {
			if c.name == "commitTransaction" {
				if commits++; commits == 1 {
					// A later holder's transaction has committed first.
					answers.committed, answers.token = 43, 43
					return append(refusal(112, "WriteConflict"), e("errorLabels", bson.A{"TransientTransactionError"}))
				}
			}
			return answers.answer(c)
		})
		called := 0
		err := guard.Transact(t.Context(), "order 7", 42, func(ctx context.Context) error {
			called++
			return inserting(db)(ctx)
		})
		if !errors.Is(err, fence.ErrStale) || called != 1 {
			t.Errorf("got %v after %d calls, want ErrStale after 1", err, called)
		}
		f.wantCommands("findAndModify insert commitTransaction findAndModify abortTransaction")
	})
}

// If f fails, or ctx ends before f returns, nothing is committed.
func TestGuardUndoesWhatFails(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake(t)
		guard, db := f.guard(new(guards).answer)
		ctx, cancel := context.WithCancel(t.Context())
		failed := errors.New("failed")
		for _, tc := range []struct {
			want error
			f    func() error
		}{
			{failed, func() error { return failed }},
			{context.Canceled, func() error { cancel(); return nil }},
		} {
			f.script(new(guards).answer)
			err := guard.Transact(ctx, "order 7", 42, func(ctx context.Context) error {
				return errors.Join(inserting(db)(ctx), tc.f())
			})
			if !errors.Is(err, tc.want) {
				t.Errorf("got %v, want %v", err, tc.want)
			}
			f.wantCommands("findAndModify insert abortTransaction")
		}
		f.script(new(guards).answer)
		func() {
			defer func() { recover() }()
			_ = guard.Transact(t.Context(), "order 7", 42, func(context.Context) error { panic("f") })
		}()
		f.wantCommands("findAndModify abortTransaction")
	})
}

// If the context ends while f waits for the server, the transaction ends too, and f is not called again.
func TestGuardEndsWithTheContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake(t)
		guard, db := f.guard(func(c call) bson.D {
			if c.name == "insert" {
				return silent
			}
			return new(guards).answer(c)
		})
		ctx, cancel := context.WithCancel(t.Context())
		time.AfterFunc(time.Second, cancel)
		if err := guard.Transact(ctx, "order 7", 42, inserting(db)); !errors.Is(err, context.Canceled) {
			t.Errorf("got %v, want context.Canceled", err)
		}
		if sent := slices.Compact(f.sent()); !slices.Equal(sent, []string{"findAndModify", "insert", "abortTransaction"}) {
			t.Errorf("the commands were %v, want no commit and no second insert", sent)
		}
	})
}

// If f calls Transact for a second key, both keys guard the same transaction.
func TestGuardJoinsTheCallersTransaction(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake(t)
		guard, db := f.guard(new(guards).answer)
		other := fence.NewGuard(db.Collection("guards")) // a Guard's first use sends some commands outside the transaction
		err := guard.Transact(t.Context(), "order 7", 42, func(ctx context.Context) error {
			return other.Transact(ctx, "order 8", 42, inserting(db))
		})
		noErr(t, err)
		f.wantCommands("findAndModify create find commitTransaction findAndModify insert commitTransaction")
		calls := f.took()
		for i, c := range calls {
			joined := c.cmd.Lookup("lsid").String() == calls[0].cmd.Lookup("lsid").String()
			if want := i == 0 || i > 3; joined != want {
				t.Errorf("command %d, %s, is part of the transaction: %t, want %t", i, c.name, joined, want)
			}
		}
	})
}

// Some servers without transactions refuse a transaction's first command, others only its last. In both cases,
// Transact returns ErrUnsupported and writes nothing.
func TestGuardWithoutTransactions(t *testing.T) {
	for _, tc := range []struct {
		refuses string
		code    int
	}{{"find", 20}, {"commitTransaction", 59}, {"commitTransaction", 238}} {
		synctest.Test(t, func(t *testing.T) {
			f := newFake(t)
			db := f.client().Database("app")
			f.script(func(c call) bson.D {
				switch c.name {
				case "create":
					return refusal(48, "NamespaceExists")
				case tc.refuses:
					return refusal(tc.code, "as the test says")
				}
				return new(guards).answer(c)
			})
			err := fence.NewGuard(db.Collection("guards")).Transact(t.Context(), "order 7", 42, inserting(db))
			if !errors.Is(err, errors.ErrUnsupported) || !strings.Contains(err.Error(), "the server has no transactions") {
				t.Errorf("code %d: got %v, want ErrUnsupported", tc.code, err)
			}
			if slices.ContainsFunc(f.took(), func(c call) bool { return c.name == "findAndModify" || c.name == "insert" }) {
				t.Errorf("code %d: something was written: %s", tc.code, f.sent())
			}
		})
	}
}

func TestNewGuardRefusesNil(t *testing.T) {
	defer func() {
		if recover() == nil {
			t.Error("NewGuard(nil) did not panic")
		}
	}()
	fence.NewGuard(nil)
}
