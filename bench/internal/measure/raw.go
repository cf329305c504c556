package measure

import (
	"context"
	"errors"
	"fmt"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"
)

// Raw is what the library is compared with: one small update of one document,
// acknowledged by a majority, by RunCommand of the same driver, encoded once.
type Raw struct {
	db     *mongo.Database
	update bson.Raw

	reader *mongo.Client
	stream *mongo.ChangeStream
	cancel context.CancelFunc
	events chan time.Time
	done   chan struct{}

	others *watchers // who watch as well
}

// NewRaw returns writes of the document with that id in the target's database, on a client of its own.
func NewRaw(t *Target, id string) (*Raw, error) {
	client, err := mongo.Connect(t.client())
	if err != nil {
		return nil, err
	}
	update, err := bson.Marshal(bson.D{
		{Key: "update", Value: "raw"},
		{Key: "updates", Value: bson.A{bson.D{
			{Key: "q", Value: bson.D{{Key: "_id", Value: id}}},
			{Key: "u", Value: bson.D{{Key: "$inc", Value: bson.D{{Key: "n", Value: 1}}}}},
			{Key: "upsert", Value: true},
		}}},
		{Key: "writeConcern", Value: bson.D{{Key: "w", Value: "majority"}}},
	})
	if err != nil {
		return nil, err
	}
	return &Raw{db: client.Database(t.DB.Name()), update: update}, nil
}

// Write writes once.
func (r *Raw) Write(ctx context.Context) error {
	var reply struct {
		N                 int      `bson:"n"`
		WriteConcernError bson.Raw `bson:"writeConcernError"`
	}
	if err := r.db.RunCommand(ctx, r.update).Decode(&reply); err != nil {
		return err
	}
	if reply.N != 1 || reply.WriteConcernError != nil {
		return fmt.Errorf("raw write: %d documents, %v", reply.N, reply.WriteConcernError)
	}
	return nil
}

// Read opens a change stream on a client of its own, for [Raw.WriteAndEvent].
func (r *Raw) Read(ctx context.Context, t *Target) (err error) {
	if r.reader, err = mongo.Connect(t.client()); err != nil {
		return err
	}
	if err := r.Write(ctx); err != nil { // the collection must be there
		return err
	}
	r.stream, err = r.reader.Database(t.DB.Name()).Collection("raw").
		Watch(ctx, mongo.Pipeline{}, options.ChangeStream().SetMaxAwaitTime(5*time.Second))
	if err != nil {
		return err
	}
	ctx, r.cancel = context.WithCancel(context.WithoutCancel(ctx))
	r.events, r.done = make(chan time.Time), make(chan struct{})
	go func() {
		defer close(r.done)
		for r.stream.Next(ctx) {
			select {
			case r.events <- time.Now():
			case <-ctx.Done():
			}
		}
	}()
	return nil
}

// WriteAndEvent is the [Op] from the call of Write to the reader of the change stream
// having its event. It returns as long after that as [Ring.HandOff] does, so that whatever
// comes next finds the machine alike.
func (r *Raw) WriteAndEvent(ctx context.Context) (time.Duration, error) {
	written := make(chan error, 1)
	begin := time.Now()
	go func() { written <- r.Write(ctx) }()
	select {
	case at := <-r.events:
		return at.Sub(begin), errors.Join(<-written, settle(ctx, settling))
	case <-r.done:
		return 0, errors.Join(errors.New("the change stream ended"), r.stream.Err(), <-written)
	case <-ctx.Done():
		return 0, ctx.Err()
	}
}

// Watch has n more clients watch the collection for what never comes, as processes do
// that wait for others' keys.
func (r *Raw) Watch(ctx context.Context, t *Target, n int) (err error) {
	r.others, err = newWatchers(ctx, t, "raw", n)
	return err
}

// Close closes the clients.
func (r *Raw) Close() {
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	if r.others != nil {
		r.others.close(ctx)
	}
	if r.cancel != nil {
		r.cancel()
		<-r.done
		r.stream.Close(ctx)
	}
	if r.reader != nil {
		r.reader.Disconnect(ctx)
	}
	r.db.Client().Disconnect(ctx)
}
