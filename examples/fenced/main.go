// Fenced is a process that writes to a document under a lock, and is frozen before the
// write: no lock can stop that write, but the document can.
//
//	export MONGODB_URI=mongodb://localhost:27017
//	go build -o /tmp/fenced ./examples/fenced
//	/tmp/fenced -name anna     # and freeze it, with Ctrl-Z, when it says "holds"
//	/tmp/fenced -name bert     # in another terminal: it waits for anna's lease, and writes
//	fg                         # anna goes on, and her write is refused
//
// Anna's process took its token when it locked. While it was frozen its lease ran out
// and bert locked, with a greater token, and left that in the document by his write. The
// write that anna's process sends when it goes on comes with the smaller one: ErrFenced,
// and the document is as bert left it. Who decides by what the document says should
// call Fence.Raise before reading it, so that no older write comes between the two.
//
// It needs a MongoDB: the fence is in its documents. Without a server see ExampleFence
// in dsync/mongo.
package main

import (
	"context"
	"errors"
	"flag"
	"io"
	"os"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	dsyncmongo "github.com/leasehold-go/leasehold/dsync/mongo"
)

func main() {
	f := newFleet()
	think := flag.Duration("think", 5*time.Second, "how long it holds the lock before it writes")
	flag.Parse()
	untilSignal(func(ctx context.Context) error { return run(ctx, f, *think, os.Stdout) })
}

// run writes once.
func run(ctx context.Context, f *fleet, think time.Duration, out io.Writer) error {
	if f.uri == "" {
		return errors.New("fenced: set MONGODB_URI; the fence is in MongoDB's documents, which a store in memory has not")
	}
	client, err := mongo.Connect(options.Client().ApplyURI(f.uri))
	if err != nil {
		return err
	}
	defer client.Disconnect(context.WithoutCancel(ctx))
	accounts := dsyncmongo.NewFence(client.Database(f.db).Collection("accounts"), nil)
	return f.run(ctx, out, func(ctx context.Context, p *process) error {
		w := &writer{process: p, think: think, write: func(ctx context.Context, token int64) error {
			_, err := accounts.Upsert(ctx, token, key,
				bson.D{{Key: "$push", Value: bson.D{{Key: "log", Value: p.name}}}})
			return err
		}}
		return w.run(ctx)
	})
}
