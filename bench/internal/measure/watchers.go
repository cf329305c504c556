package measure

import (
	"context"
	"sync"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"
)

// watchers are clients that watch a collection for a document that is not there.
type watchers struct {
	cancel  context.CancelFunc
	wg      sync.WaitGroup
	clients []*mongo.Client
}

func newWatchers(ctx context.Context, t *Target, collection string, n int) (*watchers, error) {
	w := new(watchers)
	watch, cancel := context.WithCancel(context.WithoutCancel(ctx))
	w.cancel = cancel
	for range n {
		client, err := mongo.Connect(t.client())
		if err != nil {
			w.close(ctx)
			return nil, err
		}
		w.clients = append(w.clients, client)
		nobody := mongo.Pipeline{{{Key: "$match", Value: bson.D{{Key: "documentKey._id", Value: "nobody"}}}}}
		stream, err := client.Database(t.DB.Name()).Collection(collection).
			Watch(ctx, nobody, options.ChangeStream().SetMaxAwaitTime(5*time.Second))
		if err != nil {
			w.close(ctx)
			return nil, err
		}
		w.wg.Go(func() {
			for stream.Next(watch) { // nothing comes
			}
		})
	}
	return w, nil
}

func (w *watchers) close(ctx context.Context) {
	w.cancel()
	w.wg.Wait()
	var wg sync.WaitGroup
	for _, client := range w.clients {
		wg.Go(func() { client.Disconnect(ctx) })
	}
	wg.Wait()
}
