package integration_test

import (
	"context"
	"testing"
	"time"

	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/leasehold-go/leasehold/dsync"
	dsyncmongo "github.com/leasehold-go/leasehold/dsync/mongo"
	"github.com/leasehold-go/leasehold/integration/internal/server"
	"github.com/leasehold-go/leasehold/leader"
	leadermongo "github.com/leasehold-go/leasehold/leader/mongo"
)

// S5: a program can pass in its client, which stays usable after Close, or let the election
// make a client of its own. S2: every process can read the published value.
func TestS5ElectionStraightFromADatabase(t *testing.T) {
	t.Parallel()
	lab.One(t, server.Need{}, func(t *testing.T, s *server.Server) {
		r := newRoom(t, s)
		client := r.Client(t)
		opt := &leadermongo.Options{
			Election: leader.Options{Value: []byte("here I am")},
			Store:    dsyncmongo.Options{Session: dsync.Options{TTL: patient, Name: "a"}},
		}
		a, err := leadermongo.Open(t.Context(), client.Database(r.DB), "e", opt)
		noErr(t, err)
		b, err := leadermongo.Connect(t.Context(), options.Client().ApplyURI(r.URI), r.DB, "e", nil)
		noErr(t, err)
		ctx, err := a.Campaign(t.Context())
		noErr(t, err)
		observed, stop := context.WithTimeout(t.Context(), time.Minute)
		for l := range b.Observe(observed) {
			if l.Value == nil {
				continue // the value is published in the background
			}
			if l.Name != "a" || string(l.Value) != "here I am" || l.Term != 1 {
				t.Errorf("observed %+v, want term 1 of a, with its value", l)
			}
			break
		}
		if observed.Err() != nil {
			t.Error("no value was observed within a minute")
		}
		stop()
		next := campaigning(t.Context(), b.Election)
		g, _, err := leader.NewGroup(t.Context(), b.Session(), "jobs", nil)
		noErr(t, err)
		if _, err := g.Go("job", func(context.Context) error { return nil }); err != nil {
			t.Fatal(err)
		}
		if err := g.Wait(); err != nil {
			t.Errorf("Wait: %v", err)
		}
		noErr(t, a.Close(t.Context()))
		if ctx.Err() == nil {
			t.Error("the term has not ended after Close")
		}
		leads(t, next)
		if err := b.Close(t.Context()); err != nil {
			t.Errorf("Close: %v", err)
		}
		if err := client.Ping(t.Context(), nil); err != nil {
			t.Errorf("the caller's client after Close: %v", err)
		}
	})
}

func TestLeaderMongoRefusesNonsense(t *testing.T) {
	for name, f := range map[string]func() (*leadermongo.Election, error){
		"nil database": func() (*leadermongo.Election, error) {
			return leadermongo.Open(t.Context(), nil, "e", nil)
		},
		"TTL": func() (*leadermongo.Election, error) {
			client, err := mongo.Connect(options.Client().ApplyURI("mongodb://127.0.0.1:1"))
			noErr(t, err)
			defer client.Disconnect(t.Context())
			return leadermongo.Open(t.Context(), client.Database("d"), "e", &leadermongo.Options{
				Store: dsyncmongo.Options{Session: dsync.Options{TTL: 1}},
			})
		},
		"nil client options": func() (*leadermongo.Election, error) {
			return leadermongo.Connect(t.Context(), nil, "d", "e", nil)
		},
	} {
		if e, err := f(); err == nil || e != nil {
			t.Errorf("%s: %v, %v, want an error", name, e, err)
		}
	}
}
