package integration_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/leasehold-go/leasehold/dsync"
	"github.com/leasehold-go/leasehold/integration/internal/server"
	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
)

// B33: acquiring a lock inside a transaction is not part of the transaction.
func TestB33LockInsideTransaction(t *testing.T) {
	lab.Each(t, server.Need{Transactions: true}, func(t *testing.T, s *server.Server) {
		r := newRoom(t, s)
		mon := newMonitor(r.DB)
		client := r.Client(t, mon.client())
		app := client.Database(r.DB).Collection("app")
		if _, err := app.InsertOne(t.Context(), bson.D{{Key: "_id", Value: "before"}}); err != nil {
			t.Fatal(err)
		}
		session := r.open(client, r.short(10*time.Second)) // the session registers with its first claim, inside the transaction
		m := session.Mutex("inside")
		tx, err := client.StartSession()
		noErr(t, err)
		defer tx.EndSession(context.Background())
		abort := errors.New("abort")
		var h *dsync.Hold
		_, err = tx.WithTransaction(t.Context(), func(ctx context.Context) (any, error) {
			if _, err := app.InsertOne(ctx, bson.D{{Key: "_id", Value: "undone"}}); err != nil {
				return nil, err
			}
			var err error
			if h, err = m.Hold(ctx); err != nil {
				return nil, err
			}
			return nil, abort
		})
		if !errors.Is(err, abort) {
			t.Fatalf("WithTransaction: %v, want the abort", err)
		}
		if err := app.FindOne(t.Context(), bson.D{{Key: "_id", Value: "undone"}}).Err(); !errors.Is(err, mongo.ErrNoDocuments) {
			t.Errorf("the transaction was not undone: %v", err)
		}
		st := load(t, r.store(), "inside")
		if len(st.Holders) != 1 || st.Holders[0].Token != h.Token() {
			t.Errorf("after the abort the holders are %v, want token %d", st.Holders, h.Token())
		}
		if r.session(r.short(10 * time.Second)).Mutex("inside").TryLock() {
			t.Error("after the abort another session could acquire the key")
		}
		for _, c := range mon.commands(func(c command) bool { return aboutKey(c) || aboutSession(c) }) {
			if _, err := c.body.LookupErr("autocommit"); err == nil {
				t.Errorf("%v was sent within the transaction", c)
			}
		}
		release(t, h)
	})
}
