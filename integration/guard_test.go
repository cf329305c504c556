package integration_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/leasehold-go/leasehold/dsync/mongo/fence"
	"github.com/leasehold-go/leasehold/integration/internal/server"
	"github.com/leasehold-go/leasehold/internal/mongod"
	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"
)

// A ledger consists of two collections whose documents have no fence, and a guard for writes to them.
type ledger struct {
	left, right, tokens *mongo.Collection
	guard               *fence.Guard
}

func newLedger(client *mongo.Client, db string) *ledger {
	d := client.Database(db)
	l := &ledger{left: d.Collection("left"), right: d.Collection("right"), tokens: d.Collection("guards")}
	l.guard = fence.NewGuard(l.tokens)
	return l
}

// ledger returns a ledger, after creating its collections.
func (r *room) ledger(opts ...*options.ClientOptions) *ledger {
	r.t.Helper()
	l := newLedger(r.Client(r.t, opts...), r.DB)
	for _, coll := range []*mongo.Collection{l.left, l.right} {
		if _, err := coll.InsertOne(r.t.Context(), d("_id", "exists")); err != nil && !mongo.IsDuplicateKeyError(err) {
			r.t.Fatal(err)
		}
	}
	return l
}

// write inserts a document into both collections.
func (l *ledger) write(ctx context.Context, key string, token int64, id string) error {
	doc := bson.D{{Key: "_id", Value: id}, {Key: "key", Value: key}, {Key: "token", Value: token}}
	if _, err := l.left.InsertOne(ctx, doc); err != nil {
		return err
	}
	_, err := l.right.InsertOne(ctx, doc)
	return err
}

// wrote reports whether the document is in both collections. It fails the test if the document is
// in only one.
func (l *ledger) wrote(t testing.TB, id string) bool {
	t.Helper()
	var n [2]int64
	for i, coll := range []*mongo.Collection{l.left, l.right} {
		var err error
		if n[i], err = coll.CountDocuments(t.Context(), d("_id", id)); err != nil {
			t.Fatal(err)
		}
	}
	if n[0] != n[1] {
		t.Errorf("%s is in only one of the two collections", id)
	}
	return n[0] == 1
}

// A token is refused once a transaction with a greater token has been committed. An aborted
// transaction does not count.
func TestGuard(t *testing.T) {
	lab.Each(t, server.Need{Transactions: true}, func(t *testing.T, s *server.Server) {
		l := newRoom(t, s).ledger()
		abort := errors.New("abort")
		for i, c := range []struct {
			token, after int64
			end, want    error
		}{
			{11, 11, nil, nil},
			{10, 11, nil, fence.ErrStale},
			{11, 11, nil, nil}, // the same holder
			{12, 11, abort, abort},
			{11, 11, nil, nil},
			{0, 11, nil, fence.ErrStale},
			{12, 12, nil, nil},
			{11, 12, nil, fence.ErrStale},
		} {
			id := fmt.Sprint("write ", i)
			err := l.guard.Transact(t.Context(), "key", c.token, func(ctx context.Context) error {
				return errors.Join(l.write(ctx, "key", c.token, id), c.end)
			})
			if !errors.Is(err, c.want) {
				t.Errorf("%s with token %d: got %v, want %v", id, c.token, err, c.want)
			}
			if got := l.wrote(t, id); got != (c.want == nil) {
				t.Errorf("%s with token %d was committed: %t", id, c.token, got)
			}
			if got := document(t, l.tokens, "key")["token"]; got != c.after {
				t.Errorf("after %s the token is %v, want %d", id, got, c.after)
			}
		}
	})
}

// If two transactions overlap, the one that begins second either commits second and sees the first's writes, or is
// refused. This also holds if the first holder has already committed a transaction. Then its next transaction need not
// write the token again.
func TestGuardMakesOneWaitForTheOther(t *testing.T) {
	const conflict = 112
	lab.Each(t, server.Need{Transactions: true}, func(t *testing.T, s *server.Server) {
		r := newRoom(t, s)
		mon := newMonitor(r.DB)
		first, second := r.ledger(), r.ledger(mon.client())
		for i, c := range []struct {
			name          string
			before        int // number of earlier transactions by the first holder
			first, second int64
			want          error // the second transaction's error
		}{
			{"new key, next holder second", 0, 11, 12, nil},
			{"new key, next holder first", 0, 12, 11, fence.ErrStale},
			{"known key, next holder second", 1, 11, 12, nil},
			{"known key, next holder first", 1, 12, 11, fence.ErrStale},
			{"known key, same holder", 1, 11, 11, nil},
		} {
			key := fmt.Sprint("key ", i)
			for n := range c.before {
				if err := first.guard.Transact(t.Context(), key, c.first, func(ctx context.Context) error {
					return first.write(ctx, key, c.first, fmt.Sprint(key, " before ", n))
				}); err != nil {
					t.Fatal(err)
				}
			}
			mon.reset()
			seen := false
			done := make(chan error, 1)
			err := first.guard.Transact(t.Context(), key, c.first, func(ctx context.Context) error {
				if err := first.write(ctx, key, c.first, key+" first"); err != nil {
					return err
				}
				go func() {
					done <- second.guard.Transact(t.Context(), key, c.second, func(ctx context.Context) error {
						n, err := second.left.CountDocuments(ctx, d("_id", key+" first"))
						seen = n == 1
						return errors.Join(err, second.write(ctx, key, c.second, key+" second"))
					})
				}()
				eventually(t, c.name+": the second meets a conflict, or is committed", func() bool {
					refused := mon.commands(func(cmd command) bool { return cmd.name == "findAndModify" && cmd.code == conflict })
					return len(refused) > 0 || len(done) > 0
				})
				return nil
			})
			if err != nil {
				t.Errorf("%s: the first: %v", c.name, err)
			}
			if err := <-done; !errors.Is(err, c.want) {
				t.Errorf("%s: the second: %v, want %v", c.name, err, c.want)
			}
			if seen != (c.want == nil) || second.wrote(t, key+" second") != seen {
				t.Errorf("%s: the second has seen what the first wrote: %t, want %t", c.name, seen, c.want == nil)
			}
		}
		mon.noDuplicates(t)
	})
}

// Two locks guard one transaction.
func TestGuardOfTwoKeys(t *testing.T) {
	lab.Each(t, server.Need{Transactions: true}, func(t *testing.T, s *server.Server) {
		l := newRoom(t, s).ledger()
		both := func(id string, a, b int64) error {
			return l.guard.Transact(t.Context(), "a", a, func(ctx context.Context) error {
				return l.guard.Transact(ctx, "b", b, func(ctx context.Context) error { return l.write(ctx, "ab", a, id) })
			})
		}
		for i, c := range []struct {
			a, b int64
			want error
		}{{10, 20, nil}, {9, 21, fence.ErrStale}, {11, 19, fence.ErrStale}, {10, 20, nil}, {11, 21, nil}} {
			id := fmt.Sprint("write ", i)
			if err := both(id, c.a, c.b); !errors.Is(err, c.want) {
				t.Errorf("tokens %d and %d: got %v, want %v", c.a, c.b, err, c.want)
			}
			if got := l.wrote(t, id); got != (c.want == nil) {
				t.Errorf("tokens %d and %d: committed: %t", c.a, c.b, got)
			}
		}
	})
}

// A holder that hangs inside its transaction delays the next holder only until the server aborts
// the transaction. After that, the first holder can't commit.
func TestGuardStuckHolder(t *testing.T) {
	t.Parallel()
	lab.Each(t, server.Need{Members: true}, func(t *testing.T, s *server.Server) {
		own := lab.Start(t, mongod.Spec{Members: 1, Args: []string{"--setParameter", "transactionLifetimeLimitSeconds=2"}})
		l := newRoom(t, own).ledger()
		thaw, done := make(chan struct{}), make(chan error, 1)
		stuck := make(chan struct{}, 1)
		go func() {
			done <- l.guard.Transact(t.Context(), "key", 11, func(ctx context.Context) error {
				err := l.write(ctx, "key", 11, "older")
				stuck <- struct{}{}
				<-thaw
				return err
			})
		}()
		select {
		case <-stuck:
		case err := <-done:
			t.Fatalf("the older holder: %v", err)
		}
		began := time.Now()
		if err := l.guard.Transact(t.Context(), "key", 12, func(ctx context.Context) error { return l.write(ctx, "key", 12, "newer") }); err != nil {
			t.Errorf("the next holder: %v", err)
		}
		lab.Note(t, "the next holder waited for %.1f s", time.Since(began).Seconds())
		close(thaw)
		if err := <-done; !errors.Is(err, fence.ErrStale) {
			t.Errorf("the older holder: got %v, want ErrStale", err)
		}
		if l.wrote(t, "older") || !l.wrote(t, "newer") {
			t.Error("the older holder's transaction was committed, or the newer holder's was not")
		}
	})
}

// On a server without transactions the guard returns an error before it writes anything.
func TestGuardWithoutTransactions(t *testing.T) {
	lab.Each(t, server.Need{}, func(t *testing.T, s *server.Server) {
		if s.Has(server.Need{Transactions: true}) {
			lab.Skip(t, s, "transactions")
		}
		l := newRoom(t, s).ledger()
		err := l.guard.Transact(t.Context(), "key", 11, func(ctx context.Context) error { return l.write(ctx, "key", 11, "write") })
		if !errors.Is(err, errors.ErrUnsupported) {
			t.Errorf("got %v, want ErrUnsupported", err)
		}
		if n, err := l.tokens.CountDocuments(t.Context(), bson.D{}); err != nil || n != 0 || l.wrote(t, "write") {
			t.Errorf("something was written: %d tokens, %v", n, err)
		}
	})
}

// The guard costs a transaction one command and one change to a document, but no oplog entry of its own.
func TestCostOfGuard(t *testing.T) {
	const n = 20
	lab.Each(t, server.Need{Transactions: true}, func(t *testing.T, s *server.Server) {
		r := newRoom(t, s)
		for db, want := range map[string]int{r.DB: 3 * n, "admin": n} { // the commit is sent to the database admin
			mon := newMonitor(db)
			l := r.ledger(mon.client())
			for i := range n + 1 {
				if i == 1 {
					mon.reset()
				}
				if err := l.guard.Transact(t.Context(), "key", 11, func(ctx context.Context) error {
					return l.write(ctx, "key", 11, fmt.Sprint(db, i))
				}); err != nil {
					t.Fatal(err)
				}
			}
			if sent := mon.commands(nil); len(sent) != want {
				t.Errorf("%d commands on %s for %d transactions of two writes, want %d: %v", len(sent), db, n, want, sent)
			}
		}
		if !s.Has(server.Need{Oplog: true}) || s.Has(server.Need{Sharded: true}) {
			return
		}
		log := r.transactions(t)
		if len(log) != 2*(n+1) {
			t.Errorf("%d entries in the oplog for %d transactions, want one each", len(log), 2*(n+1))
		}
		for _, tx := range log {
			if len(tx) != 3 {
				t.Errorf("a transaction of two writes has %d writes in the oplog, want 3, one of them the token's: %v", len(tx), tx)
			}
		}
	})
}
