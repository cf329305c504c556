package integration_test

import (
	"context"
	"testing"
	"time"

	"github.com/leasehold-go/leasehold/integration/internal/proxy"
	"github.com/leasehold-go/leasehold/integration/internal/server"
	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"
)

// The proxy works. Otherwise other tests could pass without testing anything.
func TestProxy(t *testing.T) {
	t.Parallel()
	lab.Each(t, server.Need{}, func(t *testing.T, s *server.Server) {
		r := newRoom(t, s)
		p := r.proxy()
		// Switch off retries: with them, the driver would hide a lost command.
		coll := server.Connect(t, p.URI(), options.Client().SetRetryWrites(false)).Database(r.DB).Collection("c")
		insert := func(id string, d time.Duration) error {
			ctx, cancel := context.WithTimeout(t.Context(), d)
			defer cancel()
			_, err := coll.InsertOne(ctx, bson.D{{Key: "_id", Value: id}})
			return err
		}
		there := func(id string) bool {
			err := s.Client(t).Database(r.DB).Collection("c").FindOne(t.Context(), bson.D{{Key: "_id", Value: id}}).Err()
			return err == nil
		}
		inserts := func(c proxy.Command) bool { return c.Name == "insert" && c.On(r.DB, "c") }

		if err := insert("plain", 10*time.Second); err != nil {
			t.Fatalf("through an idle proxy: %v", err)
		}

		for _, c := range []struct {
			name    string
			fate    proxy.Fate
			applied bool // whether the insert took effect although the client got an error
		}{
			{"lose reply", proxy.LoseReply, true},
			{"cut reply", proxy.CutReply, true},
			{"lose request", proxy.LoseRequest, false},
			{"shed request", proxy.ShedRequest, false},
			{"shed reply", proxy.ShedReply, true},
		} {
			hit := p.Once(c.fate, inserts)
			err := insert(c.name, 500*time.Millisecond)
			if err == nil {
				t.Errorf("%s: the insert succeeded", c.name)
			}
			if !closed(hit) {
				t.Errorf("%s: the rule saw no insert", c.name)
			}
			if c.fate == proxy.CutReply && !mongo.IsNetworkError(err) {
				t.Errorf("%s: %v, want a network error", c.name, err)
			}
			if got := there(c.name); got != c.applied {
				t.Errorf("%s: applied = %v, want %v", c.name, got, c.applied)
			}
		}

		p.Once(proxy.LateRequest, inserts)
		if err := insert("late", 300*time.Millisecond); err == nil {
			t.Error("late request: the insert succeeded")
		}
		if there("late") {
			t.Error("late request: the insert was applied before Heal")
		}
		p.Heal()
		eventually(t, "a late request arrives after Heal", func() bool { return there("late") })

		p.Hang()
		if err := insert("hung", 300*time.Millisecond); err == nil {
			t.Error("hung: the insert succeeded")
		}
		p.Heal()
		if err := insert("healed", 20*time.Second); err != nil {
			t.Errorf("after a hang: %v", err)
		}

		p.Cut()
		if err := insert("cut", 300*time.Millisecond); err == nil {
			t.Error("cut: the insert succeeded")
		}
		p.Heal()
		if err := insert("connected", 20*time.Second); err != nil {
			t.Errorf("after a cut: %v", err)
		}
	})
}
