package measure

import (
	"context"

	"go.mongodb.org/mongo-driver/v2/bson"
)

// An Oplog counts the oplog entries of the library's collection.
type Oplog struct {
	Entries int   `bson:"entries"`
	Bytes   int64 `bson:"bytes"`
}

// Logged returns a function that returns what was logged since the call of Logged.
func (t *Target) Logged(ctx context.Context) (since func() (Oplog, error), err error) {
	from, err := t.operationTime(ctx)
	if err != nil {
		return nil, err
	}
	return func() (Oplog, error) {
		var found []Oplog
		to, err := t.operationTime(ctx)
		if err != nil {
			return Oplog{}, err
		}
		cur, err := t.DB.Client().Database("local").Collection("oplog.rs").Aggregate(ctx, bson.A{
			bson.D{{Key: "$match", Value: bson.D{
				{Key: "ts", Value: bson.D{{Key: "$gt", Value: from}, {Key: "$lte", Value: to}}},
				{Key: "ns", Value: t.DB.Name() + ".leasehold"},
			}}},
			bson.D{{Key: "$group", Value: bson.D{
				{Key: "_id", Value: nil},
				{Key: "entries", Value: bson.D{{Key: "$sum", Value: 1}}},
				{Key: "bytes", Value: bson.D{{Key: "$sum", Value: bson.D{{Key: "$bsonSize", Value: "$$ROOT"}}}}},
			}}},
		})
		if err != nil {
			return Oplog{}, err
		}
		if err := cur.All(ctx, &found); err != nil || len(found) == 0 {
			return Oplog{}, err
		}
		return found[0], nil
	}, nil
}

// operationTime returns the time of the last operation that the server knows of.
func (t *Target) operationTime(ctx context.Context) (bson.Timestamp, error) {
	var reply struct {
		Time bson.Timestamp `bson:"operationTime"`
	}
	err := t.DB.RunCommand(ctx, bson.D{{Key: "ping", Value: 1}}).Decode(&reply)
	return reply.Time, err
}
