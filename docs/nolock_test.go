package docs_test

import (
	"context"
	"errors"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"
)

// This is the code in do-you-need-a-lock.md. It needs a server, so it is only compiled.
var _ = []any{deposit, insertInvoice, take, transfer, claimJob}

var errNotEnough = errors.New("not enough")

// deposit adds an amount once, however often it is called with the same request.
func deposit(ctx context.Context, accounts *mongo.Collection, account, request string, amount int64) error {
	_, err := accounts.UpdateOne(ctx,
		bson.D{{Key: "_id", Value: account}, {Key: "requests", Value: bson.D{{Key: "$ne", Value: request}}}},
		bson.D{
			{Key: "$inc", Value: bson.D{{Key: "balance", Value: amount}}},
			{Key: "$push", Value: bson.D{{Key: "requests", Value: request}}},
		})
	return err
}

// insertInvoice inserts an invoice unless it exists.
func insertInvoice(ctx context.Context, invoices *mongo.Collection, customer, month string, total int64) error {
	_, err := invoices.InsertOne(ctx, bson.D{
		{Key: "_id", Value: customer + "/" + month},
		{Key: "total", Value: total},
	})
	if mongo.IsDuplicateKeyError(err) {
		return nil // somebody else was first
	}
	return err
}

// take removes n from the stock, if there is enough.
func take(ctx context.Context, items *mongo.Collection, id string, n int64) error {
	result, err := items.UpdateOne(ctx,
		bson.D{{Key: "_id", Value: id}, {Key: "stock", Value: bson.D{{Key: "$gte", Value: n}}}},
		bson.D{{Key: "$inc", Value: bson.D{{Key: "stock", Value: -n}}}})
	if err == nil && result.MatchedCount == 0 {
		return errNotEnough
	}
	return err
}

// transfer moves an amount from one account to another, or does nothing.
func transfer(ctx context.Context, client *mongo.Client, accounts *mongo.Collection, from, to string, amount int64) error {
	session, err := client.StartSession()
	if err != nil {
		return err
	}
	defer session.EndSession(ctx)
	_, err = session.WithTransaction(ctx, func(ctx context.Context) (any, error) {
		if err := add(ctx, accounts, from, -amount); err != nil {
			return nil, err // and nothing is written
		}
		return nil, add(ctx, accounts, to, amount)
	})
	return err
}

// add adds an amount to the balance of an account, if the balance does not become negative.
func add(ctx context.Context, accounts *mongo.Collection, account string, amount int64) error {
	result, err := accounts.UpdateOne(ctx,
		bson.D{{Key: "_id", Value: account}, {Key: "balance", Value: bson.D{{Key: "$gte", Value: -amount}}}},
		bson.D{{Key: "$inc", Value: bson.D{{Key: "balance", Value: amount}}}})
	if err == nil && result.MatchedCount == 0 {
		return errNotEnough
	}
	return err
}

type job struct {
	ID    string        `bson:"_id"`
	Claim bson.ObjectID `bson:"claim"` // for the filter of the write that finishes the job
}

// claimJob reserves a job for a minute, and returns it. The job was neither done nor reserved before.
func claimJob(ctx context.Context, jobs *mongo.Collection) (job, error) {
	var j job
	err := jobs.FindOneAndUpdate(ctx,
		bson.D{
			{Key: "done", Value: false},
			{Key: "$expr", Value: bson.D{{Key: "$lt", Value: bson.A{"$until", "$$NOW"}}}}, // also if there is no until
		},
		mongo.Pipeline{{{Key: "$set", Value: bson.D{
			{Key: "until", Value: bson.D{{Key: "$add", Value: bson.A{"$$NOW", 60_000}}}}, // a minute, by the server's clock
			{Key: "claim", Value: bson.NewObjectID()},
		}}}},
		options.FindOneAndUpdate().SetSort(bson.D{{Key: "_id", Value: 1}}).SetReturnDocument(options.After),
	).Decode(&j)
	return j, err // mongo.ErrNoDocuments: there is nothing to do
}
