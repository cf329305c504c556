// Fenced writes to a document under a lock. If you freeze the program before it writes, it writes after its lease
// has ended. No lock can prevent such a late write, but a fencing token in the document can:
//
//	export MONGODB_URI=mongodb://localhost:27017
//	go build -o /tmp/fenced ./examples/fenced
//	/tmp/fenced -name anna     # freeze it with Ctrl-Z when it says "holds"
//	/tmp/fenced -name bert     # in another terminal: it waits until anna's lease ends, and writes
//	fg                         # anna continues, and her write is refused
//
// While anna's process is frozen, its lease ends. Then bert acquires the lock with a greater
// token, which his write stores in the document. Anna's write has the smaller token, so it fails
// with fence.ErrStale. If your write depends on the content of the document, call RaiseToken
// before you read it, so that no older write can come between your read and your write.
package main

import (
	"context"
	"flag"
	"log"
	"log/slog"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/leasehold-go/leasehold/dsync"
	dsyncmongo "github.com/leasehold-go/leasehold/dsync/mongo"
	"github.com/leasehold-go/leasehold/dsync/mongo/fence"
	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"
)

const key = "account 7" // the lock's key, and the _id of the document that it guards

func main() {
	db := flag.String("db", "leasehold_examples", "the database")
	name := flag.String("name", "", "the name of this process")
	ttl := flag.Duration("ttl", 10*time.Second, "time after its last heartbeat until a crashed process's lock becomes free")
	think := flag.Duration("think", 5*time.Second, "how long it holds the lock before it writes")
	flag.Parse()
	slog.SetDefault(slog.New(slog.NewJSONHandler(os.Stdout, nil)))
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	client, err := mongo.Connect(options.Client().ApplyURI(os.Getenv("MONGODB_URI")))
	if err != nil {
		log.Fatal(err)
	}
	locks, err := dsyncmongo.Open(ctx, client.Database(*db), &dsyncmongo.Options{Session: dsync.Options{Name: *name, TTL: *ttl}})
	if err != nil {
		log.Fatal(err)
	}
	accounts := fence.New(client.Database(*db).Collection("accounts"), nil)
	err = run(ctx, locks, *think, func(ctx context.Context, token int64) error {
		_, err := accounts.Upsert(ctx, token, key, bson.D{{Key: "$push", Value: bson.D{{Key: "log", Value: *name}}}})
		return err
	})
	locks.Close(context.WithoutCancel(ctx))
	if err != nil {
		log.Fatal(err)
	}
}

// run locks, thinks and writes. A real program would check a context that ends when the lock is
// lost, as in [dsync.Mutex.Do]. Here we imitate a program that is frozen between its last check
// and the write.
func run(ctx context.Context, locks *dsync.Session, think time.Duration, write func(context.Context, int64) error) error {
	mu := locks.Mutex(key)
	if err := mu.LockContext(ctx); err != nil {
		return err
	}
	defer mu.Unlock()
	token := mu.Token()
	slog.Info("holds", "token", token)
	select {
	case <-time.After(think):
	case <-ctx.Done():
		return ctx.Err()
	}
	if err := write(ctx, token); err != nil {
		slog.Warn("refused", "token", token, "err", err)
		return err
	}
	slog.Info("wrote", "token", token)
	return nil
}
