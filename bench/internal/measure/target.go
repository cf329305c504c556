package measure

import (
	"context"
	"errors"

	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/leasehold-go/leasehold/dsync"
	"github.com/leasehold-go/leasehold/dsync/driver"
	dsyncmongo "github.com/leasehold-go/leasehold/dsync/mongo"
)

// A Target is a database on a server where this library is measured.
type Target struct {
	DB *mongo.Database // on a client of its own, which no session uses

	// Store holds the options for stores. Its field Session is ignored.
	Store dsyncmongo.Options

	uri string
}

// Server returns the target for the given database on the server at uri.
func Server(uri, database string) (*Target, error) {
	client, err := mongo.Connect(options.Client().ApplyURI(uri))
	if err != nil {
		return nil, err
	}
	return &Target{DB: client.Database(database), uri: uri}, nil
}

// Close deletes the database and disconnects the client.
func (t *Target) Close(ctx context.Context) error {
	return errors.Join(t.DB.Drop(ctx), t.DB.Client().Disconnect(ctx))
}

// Session returns a session with its own client.
func (t *Target) Session(ctx context.Context, opt dsync.Options) (*dsync.Session, error) {
	o := t.Store
	o.Session = opt
	return dsyncmongo.Connect(ctx, options.Client().ApplyURI(t.uri), t.DB.Name(), &o)
}

// Sessions returns a function that opens sessions with these options.
func (t *Target) Sessions(opt dsync.Options) func(context.Context) (*dsync.Session, error) {
	return func(ctx context.Context) (*dsync.Session, error) { return t.Session(ctx, opt) }
}

// Shared returns a store whose sessions share one client, and a function that disconnects that client.
// The client has at most the given number of connections to each server. Each session that listens
// occupies one connection.
func (t *Target) Shared(ctx context.Context, connections uint64) (driver.Store, func(), error) {
	client, err := mongo.Connect(options.Client().ApplyURI(t.uri).
		SetMaxPoolSize(connections).SetMaxConnecting(20)) // more at a time would overload the server
	if err != nil {
		return nil, nil, err
	}
	end := func() { client.Disconnect(context.WithoutCancel(ctx)) }
	s, err := dsyncmongo.NewStore(ctx, client.Database(t.DB.Name()), &t.Store)
	if err != nil {
		end()
		return nil, nil, err
	}
	return s, end, nil
}
