// Twowrites connects to the server at a connection string, makes two majority writes in a database, and exits. The
// report compares the command leasehold with it.
package main

import (
	"context"
	"fmt"
	"os"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"
)

func main() {
	if len(os.Args) != 3 {
		fmt.Fprintln(os.Stderr, "usage: twowrites URI DATABASE")
		os.Exit(2)
	}
	if err := write(context.Background(), os.Args[1], os.Args[2]); err != nil {
		fmt.Fprintln(os.Stderr, "twowrites:", err)
		os.Exit(1)
	}
}

func write(ctx context.Context, uri, database string) error {
	client, err := mongo.Connect(options.Client().ApplyURI(uri))
	if err != nil {
		return err
	}
	for range 2 {
		err := client.Database(database).RunCommand(ctx, bson.D{
			{Key: "update", Value: "raw"},
			{Key: "updates", Value: bson.A{bson.D{
				{Key: "q", Value: bson.D{{Key: "_id", Value: "twowrites"}}},
				{Key: "u", Value: bson.D{{Key: "$inc", Value: bson.D{{Key: "n", Value: 1}}}}},
				{Key: "upsert", Value: true},
			}}},
			{Key: "writeConcern", Value: bson.D{{Key: "w", Value: "majority"}}},
		}).Err()
		if err != nil {
			return err
		}
	}
	return client.Disconnect(ctx)
}
