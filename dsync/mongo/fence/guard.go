package fence

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"
	"go.mongodb.org/mongo-driver/v2/mongo/readconcern"
	"go.mongodb.org/mongo-driver/v2/mongo/readpref"
	"go.mongodb.org/mongo-driver/v2/mongo/writeconcern"
)

// The server's error codes that matter here.
const (
	codeNamespaceExists  = 48
	codeIllegalOperation = 20
	codeCommandNotFound  = 59
	codeNotImplemented   = 238
)

// A Guard runs transactions under fencing tokens. Once a holder of the lock has committed a transaction, every
// transaction of an earlier holder fails with [ErrStale] and changes nothing, however long the earlier holder was
// paused. This depends on no clock and no lease, because the database decides.
//
//	guard := fence.NewGuard(db.Collection("guards"))
//	…
//	mu := locks.Mutex("order 7")
//	err := mu.Do(ctx, func(ctx context.Context) error {
//		return guard.Transact(ctx, "order 7", dsync.HoldFrom(ctx).Token(), func(ctx context.Context) error {
//			if _, err := orders.UpdateOne(ctx, bson.D{{"_id", 7}}, paid); err != nil {
//				return err
//			}
//			_, err := invoices.InsertOne(ctx, invoice)
//			return err
//		})
//	})
//
// A transaction may read and write any documents in all collections and databases of the cluster. The documents
// need no field for a token, because a Guard keeps one document for each key, in a collection of its own. Everyone
// who writes the data must use a Guard on the same collection, with the same key.
//
// # How it works
//
// Each transaction first writes its token into the document of the key, {_id: key, token, n, at}, where n counts
// the transactions and at is the time of the last one. If two transactions write that document at the same time,
// the server refuses one of them. The driver runs the refused transaction again, which then sees the other's token.
// So the transactions of a key commit one after the other, in the order of their tokens. If a transaction is rolled
// back, its token is rolled back with it.
//
// What a transaction reads is safe, too: no older holder can change it before the transaction commits. There is no
// need for [Collection.RaiseToken].
//
// # What is not covered
//
// A Guard covers neither other clusters nor commands outside of the transaction, such as those that use another ctx
// than f's. Until a new holder has committed a transaction, an earlier holder can still commit one.
//
// # What it costs
//
// Each transaction sends one more command and writes one more document; it is still one entry in the server's log.
// The extra command is needed because before MongoDB 8.0 no command writes to two collections. The first
// transaction of a Guard is preceded by three more commands, which create the collection and try an empty
// transaction.
//
// A process that is frozen inside a transaction blocks the documents that it has written, and so the key, until the
// server ends the transaction. That takes up to the server's parameter transactionLifetimeLimitSeconds, 60 by
// default. Meanwhile the driver repeats other transactions of the key, for up to 120 seconds each.
//
// # The collection
//
// The collection has one small document for each key that was ever used. A Guard never deletes a document, because
// the key would forget its token. If keys come and go, delete the documents of keys that no earlier holder can
// still use, or let a TTL index on "at" delete them. But then a holder that was frozen for longer than that TTL can
// commit after a later holder. The rights of the role readWrite on the collection are enough.
//
// All methods may be called concurrently.
type Guard struct {
	tokens *mongo.Collection
	ready  atomic.Bool // the collection exists, and the server has transactions
}

// NewGuard returns a guard that keeps its documents in the collection, which is created when it is first
// used. Transactions run on the collection's client. NewGuard panics if the collection is nil.
func NewGuard(tokens *mongo.Collection) *Guard {
	if tokens == nil {
		panic("fence: NewGuard: the collection is nil; pass one, as db.Collection(\"guards\")")
	}
	return &Guard{tokens: tokens}
}

// Transact calls f in a transaction, and commits it when f returns nil. Commands that use f's ctx are part
// of the transaction. Like the driver's WithTransaction, which it uses, Transact calls f again after a
// conflict or a fail-over, each time with a new check of the token. So f must have no other effects, and
// must return the errors of its commands.
//
// The error is [ErrStale] if a later holder of the key has committed, or if the token is 0, which Token returns if
// the lock is not held. In both cases nothing has changed: f was not called, or its changes were undone. It is
// [errors.ErrUnsupported] if the server has no transactions. Other errors are f's and the driver's. If the error
// has the driver's label UnknownTransactionCommitResult, the transaction may have been committed.
//
// If ctx ends before f returns, nothing is committed. A lost hold alone does not end the transaction: it may commit if
// no later holder has committed one. To stop f when the hold is lost, pass a context that ends with the hold, such as
// the one that Mutex.Do passes to its function. ctx does not bound the commit itself; the client's Timeout does.
//
// If ctx already carries a transaction, the guard's command and f's become part of it. So a Transact within f guards
// the same transaction with a second key. The concerns of the transaction in ctx apply; they should be snapshot and
// majority, which Transact uses for its own transactions.
func (g *Guard) Transact(ctx context.Context, key string, token int64, f func(ctx context.Context) error) error {
	if token <= 0 {
		return &StaleError{Collection: g.tokens.Name(), Token: token}
	}
	if err := g.prepare(ctx); err != nil {
		return err
	}
	guarded := func(ctx context.Context) error {
		if err := g.raise(ctx, key, token); err != nil {
			return err
		}
		return f(ctx)
	}
	if outer := mongo.SessionFromContext(ctx); outer != nil && outer.TransactionRunning() {
		return guarded(ctx)
	}
	return g.transact(ctx, guarded)
}

// transact calls f in a transaction. The commit waits for a majority, because otherwise a fail-over could undo a
// transaction that transact has reported as committed. All reads see the same snapshot, even on several shards.
func (g *Guard) transact(ctx context.Context, f func(context.Context) error) error {
	session, err := g.tokens.Database().Client().StartSession()
	if err != nil {
		return fmt.Errorf("fence: transact: %w", err)
	}
	defer session.EndSession(context.WithoutCancel(ctx)) // aborts if f panics
	_, err = session.WithTransaction(ctx, func(ctx context.Context) (any, error) { return nil, f(ctx) },
		options.Transaction().SetReadConcern(readconcern.Snapshot()).SetWriteConcern(writeconcern.Majority()).
			SetReadPreference(readpref.Primary()))
	return err
}

// raise writes the token into the key's document, or returns ErrStale.
func (g *Guard) raise(ctx context.Context, key string, token int64) error {
	raw, err := g.tokens.FindOneAndUpdate(ctx, bson.D{e("_id", key)},
		bson.D{
			e("$max", bson.D{e("token", token)}),
			// Every transaction must change the document, because the server skips a write that changes nothing. Then a
			// holder's second transaction in the same millisecond would not conflict with the next holder's.
			e("$inc", bson.D{e("n", int64(1))}),
			e("$currentDate", bson.D{e("at", true)}),
		},
		options.FindOneAndUpdate().SetUpsert(true).SetReturnDocument(options.After),
	).Raw()
	if err != nil {
		return fmt.Errorf("fence: transact: write the token of %q: %w", key, err)
	}
	if seen, ok := raw.Lookup("token").AsInt64OK(); !ok || seen > token {
		return &StaleError{Collection: g.tokens.Name(), Token: token, Seen: seen, ID: raw.Lookup("_id")}
	}
	return nil
}

// prepare creates the collection. It does so outside of the transaction, because creating the collection inside
// would conflict with all other transactions, and a sharded cluster may refuse it. Then prepare tries a transaction
// that writes nothing. A server without transactions, such as FerretDB 2.7, would execute the writes of a
// transaction at once, and return an error only for the commit, too late to undo them.
func (g *Guard) prepare(ctx context.Context) error {
	if g.ready.Load() {
		return nil
	}
	ctx = mongo.NewSessionContext(ctx, nil) // not part of the caller's transaction
	if err := g.tokens.Database().CreateCollection(ctx, g.tokens.Name()); err != nil && !hasCode(err, codeNamespaceExists) {
		return fmt.Errorf("fence: transact: creating the collection %q: %w", g.tokens.Name(), err)
	}
	err := g.transact(ctx, func(ctx context.Context) error {
		if err := g.tokens.FindOne(ctx, bson.D{}).Err(); !errors.Is(err, mongo.ErrNoDocuments) {
			return err
		}
		return nil
	})
	switch {
	case err == nil:
		g.ready.Store(true)
		return nil
	case hasCode(err, codeIllegalOperation, codeCommandNotFound, codeNotImplemented):
		return fmt.Errorf("fence: transact: %w: the server has no transactions; use a replica set, with one member if need be: %w", errors.ErrUnsupported, err)
	}
	return fmt.Errorf("fence: transact: trying an empty transaction: %w", err)
}
