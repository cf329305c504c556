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

// Raw is what the library is compared with: a small majority update of one document, encoded once
// and sent with the same driver's RunCommand.
type Raw struct {
	db                    *mongo.Database
	update, early, notice bson.Raw
	together              group

	reader *mongo.Client
	cursor *mongo.Cursor
	cancel context.CancelFunc
	heard  chan time.Time
	done   chan struct{}
}

// rawNotices is the capped collection of [Raw.WriteAndNotice].
const rawNotices = "raw.notices"

// NewRaw returns a Raw that writes to the document with that id in the target's database, with a
// new client.
func NewRaw(t *Target, id string) (*Raw, error) {
	client, err := mongo.Connect(options.Client().ApplyURI(t.uri))
	if err != nil {
		return nil, err
	}
	update, err := increment(id, "majority")
	if err != nil {
		return nil, err
	}
	early, err := increment(id, 1)
	if err != nil {
		return nil, err
	}
	notice, err := bson.Marshal(bson.D{
		{Key: "insert", Value: rawNotices},
		{Key: "documents", Value: bson.A{bson.D{{Key: "to", Value: id}}}},
		{Key: "writeConcern", Value: bson.D{{Key: "w", Value: 1}}},
	})
	if err != nil {
		return nil, err
	}
	return &Raw{db: client.Database(t.DB.Name()), update: update, early: early, notice: notice}, nil
}

// increment returns an upsert of the document with that id, with the write concern w.
func increment(id string, w any) (bson.Raw, error) { return updateOf(w, statement(id)) }

// statement returns the statement of an upsert of the document with that id.
func statement(id string) bson.D {
	return bson.D{
		{Key: "q", Value: bson.D{{Key: "_id", Value: id}}},
		{Key: "u", Value: bson.D{{Key: "$inc", Value: bson.D{{Key: "n", Value: 1}}}}},
		{Key: "upsert", Value: true},
	}
}

// updateOf returns an update with the statements and the write concern w.
func updateOf(w any, statements ...bson.D) (bson.Raw, error) {
	return bson.Marshal(bson.D{
		{Key: "update", Value: "raw"},
		{Key: "updates", Value: statements},
		{Key: "writeConcern", Value: bson.D{{Key: "w", Value: w}}},
	})
}

// Write is the [Op] that writes once.
func (r *Raw) Write(ctx context.Context) (time.Duration, error) {
	begin := time.Now()
	err := r.run(ctx, r.update, 1)
	return time.Since(begin), err
}

// WriteEarly is the [Op] that writes twice, as Lock and Unlock do: a majority acknowledges the first write, and the
// primary alone the second.
func (r *Raw) WriteEarly(ctx context.Context) (time.Duration, error) {
	begin := time.Now()
	err := r.run(ctx, r.update, 1)
	if err == nil {
		err = r.run(ctx, r.early, 1)
	}
	return time.Since(begin), err
}

// WriteEach writes to the document with that id once for each write concern in ws.
func (r *Raw) WriteEach(ctx context.Context, id string, ws ...any) error {
	for _, w := range ws {
		update, err := increment(id, w)
		if err != nil {
			return err
		}
		if err := r.run(ctx, update, 1); err != nil {
			return err
		}
	}
	return nil
}

// run sends a command that writes that many documents.
func (r *Raw) run(ctx context.Context, cmd bson.Raw, documents int) error {
	var reply struct {
		N                 int      `bson:"n"`
		WriteConcernError bson.Raw `bson:"writeConcernError"`
	}
	if err := r.db.RunCommand(ctx, cmd).Decode(&reply); err != nil {
		return err
	}
	if reply.N != documents || reply.WriteConcernError != nil {
		return fmt.Errorf("raw write: changed %d documents, want %d; write concern error: %v", reply.N, documents, reply.WriteConcernError)
	}
	return nil
}

// Read creates a capped collection and tails it on a new client, for [Raw.WriteAndNotice].
func (r *Raw) Read(ctx context.Context, t *Target) (err error) {
	if r.reader, err = mongo.Connect(options.Client().ApplyURI(t.uri)); err != nil {
		return err
	}
	capped := options.CreateCollection().SetCapped(true).SetSizeInBytes(1 << 20)
	if err := r.db.CreateCollection(ctx, rawNotices, capped); err != nil {
		return err
	}
	if err := r.run(ctx, r.notice, 1); err != nil { // an empty collection can't be tailed
		return err
	}
	r.cursor, err = r.reader.Database(t.DB.Name()).Collection(rawNotices).
		Find(ctx, bson.D{}, options.Find().SetCursorType(options.TailableAwait).SetMaxAwaitTime(5*time.Second))
	if err != nil {
		return err
	}
	r.cursor.Next(ctx) // skip the notice from above
	ctx, r.cancel = context.WithCancel(context.WithoutCancel(ctx))
	r.heard, r.done = make(chan time.Time), make(chan struct{})
	go func() {
		defer close(r.done)
		for r.cursor.Next(ctx) {
			select {
			case r.heard <- time.Now():
			case <-ctx.Done():
			}
		}
	}()
	return nil
}

// WriteAndNotice is the [Op] that writes, inserts a notice and waits until the reader has it. It
// then waits as long as [Ring.HandOff] does, so that both leave the machine in the same state for
// the next operation.
func (r *Raw) WriteAndNotice(ctx context.Context) (time.Duration, error) {
	written := make(chan error, 1)
	begin := time.Now()
	go func() {
		err := r.run(ctx, r.update, 1)
		if err == nil {
			err = r.run(ctx, r.notice, 1)
		}
		written <- err
	}()
	select {
	case at := <-r.heard:
		return at.Sub(begin), errors.Join(<-written, awaitRequeue(ctx, requeueTime))
	case <-r.done:
		return 0, errors.Join(errors.New("the cursor ended"), r.cursor.Err(), <-written)
	case <-ctx.Done():
		return 0, ctx.Err()
	}
}

// Close closes the clients.
func (r *Raw) Close() {
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	if r.cancel != nil {
		r.cancel()
		<-r.done
		r.cursor.Close(ctx)
	}
	if r.reader != nil {
		r.reader.Disconnect(ctx)
	}
	r.db.Client().Disconnect(ctx)
}
