package measure

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/event"
	"go.mongodb.org/mongo-driver/v2/mongo"

	"github.com/leasehold-go/leasehold/dsync/driver"
	dsyncmongo "github.com/leasehold-go/leasehold/dsync/mongo"
	"github.com/leasehold-go/leasehold/internal/storecmd"
)

// A Pipeline is a command of a store that updates by a pipeline.
type Pipeline struct {
	Name  string
	Bytes int // of the command

	db      *mongo.Database
	apart   bson.Raw // the command for a record that does not exist
	plain   bson.Raw // that with {$set: {x: 1}} instead of the pipeline
	matched bson.Raw // the command for a record that it finds, and leaves as it is
}

// Pipelines returns the pipelines of the store on a target. Each was sent once, and its
// command recorded.
func Pipelines(ctx context.Context, t *Target) ([]Pipeline, error) {
	var mu sync.Mutex
	var last bson.Raw // the last command with a pipeline
	client := t.client()
	client.SetMonitor(&event.CommandMonitor{Started: func(_ context.Context, e *event.CommandStartedEvent) {
		mu.Lock()
		defer mu.Unlock()
		if e.CommandName == "findAndModify" || e.CommandName == "update" {
			last = append(bson.Raw(nil), e.Command...)
		}
	}})
	c, err := mongo.Connect(client)
	if err != nil {
		return nil, err
	}
	defer c.Disconnect(context.WithoutCancel(ctx))
	store, err := dsyncmongo.NewStore(ctx, c.Database(t.DB.Name()), nil)
	if err != nil {
		return nil, err
	}
	raw, err := mongo.Connect(t.client())
	if err != nil {
		return nil, err
	}
	db := raw.Database(t.DB.Name())

	n := 0
	claim := func(kind driver.Kind, limit int64) driver.Claim {
		n++
		return driver.Claim{Key: fmt.Sprint("pipeline ", n), ID: fmt.Sprintf("s.%d", n), Session: "s", Kind: kind, Weight: 1, Limit: limit}
	}
	until := time.Now().Add(time.Hour)
	acquire := func(c driver.Claim, wait bool) error {
		_, _, err := storecmd.Acquire(ctx, store, c, wait, nil, until)
		return err
	}
	// held returns a claim that holds its key, with that many that wait.
	held := func(kind driver.Kind, limit int64, waiting int) (driver.Claim, error) {
		c := claim(kind, limit)
		c.Weight = limit
		err := acquire(c, true)
		for i := range waiting {
			w := c
			w.ID = fmt.Sprintf("%s.%d", c.ID, i)
			err = errors.Join(err, acquire(w, true))
		}
		st, bad := store.Load(ctx, c.Key, 1000)
		c.Token = st.Token
		return c, errors.Join(err, bad)
	}
	release := func(o driver.Leave, limit int64, waiting int, alone bool) func() error {
		return func() error {
			c, err := held(driver.KindMutex, limit, waiting)
			c.NoneWaiting = alone
			_, _, bad := storecmd.Release(ctx, store, c, o)
			return errors.Join(err, bad)
		}
	}
	var ps []Pipeline
	for _, p := range []struct {
		name string
		do   func() error
	}{
		{"Acquire", func() error {
			c, err := held(driver.KindSemaphore, 2, 1)
			c.ID = c.ID + ".0"
			return errors.Join(err, acquire(c, true))
		}},
		{"Acquire, repeated", func() error {
			c, err := held(driver.KindMutex, 1, 1)
			c.ID = c.ID + ".0"
			_, bad := store.Edit(ctx, driver.Edit{Join: &driver.Join{Claim: c, Wait: true, NotAfter: until, Repeated: true}})
			return errors.Join(err, bad)
		}},
		{"Acquire, a try", func() error { return acquire(claim(driver.KindMutex, 1), false) }},
		{"Acquire, short", func() error { return acquire(claim(driver.KindMutex, 1), true) }},
		{"Acquire that replaces, short", func() error {
			old, err := held(driver.KindMutex, 1, 1)
			next := old
			next.ID = old.ID + ".next"
			_, bad := store.Edit(ctx, driver.Edit{Leave: &driver.Leave{Claim: old}, Join: &driver.Join{Claim: next, Wait: true, NotAfter: until}})
			return errors.Join(err, bad)
		}},
		{"Release", release(driver.Leave{}, 2, 1, false)},
		{"Release, short", release(driver.Leave{}, 1, 0, true)},
		{"Release, short hand-over", release(driver.Leave{}, 1, 1, false)},
		{"Release that keeps", release(driver.Leave{Keep: time.Hour}, 1, 1, false)},
		{"Release that seals", release(driver.Leave{Seal: true}, 1, 1, false)},
		{"Extend", func() error {
			c := claim(driver.KindMutex, 1)
			c.Lease = time.Hour
			err := acquire(c, true)
			_, bad := storecmd.Extend(ctx, store, c)
			return errors.Join(err, bad)
		}},
		{"Publish", func() error {
			c, err := held(driver.KindMutex, 1, 0)
			_, bad := storecmd.Publish(ctx, store, c, 1, []byte("value"))
			return errors.Join(err, bad)
		}},
		{"Resize", func() error {
			_, err := storecmd.Resize(ctx, store, "resized", driver.KindSemaphore, 2, 3)
			return err
		}},
	} {
		if err := p.do(); err != nil {
			return nil, fmt.Errorf("%s: %w", p.name, err)
		}
		pipeline, err := newPipeline(p.name, db, last)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", p.name, err)
		}
		ps = append(ps, pipeline)
	}
	return ps, nil
}

// newPipeline takes a command as it was sent, without what the driver added.
func newPipeline(name string, db *mongo.Database, sent bson.Raw) (p Pipeline, err error) {
	elems, err := sent.Elements()
	if err != nil {
		return p, err
	}
	var cmd bson.D
	for _, el := range elems {
		switch el.Key() {
		case "lsid", "$clusterTime", "$db", "txnNumber", "writeConcern":
		default:
			cmd = append(cmd, bson.E{Key: el.Key(), Value: el.Value()})
		}
	}
	// A write concern that a command which changes nothing does not wait for.
	cmd = append(cmd, bson.E{Key: "writeConcern", Value: bson.D{{Key: "w", Value: 1}}})
	matched, err := bson.Marshal(cmd)
	if err != nil {
		return p, err
	}
	nowhere := bson.D{{Key: "_id", Value: "there is no such record"}}
	changed := func(pipeline any) (bson.Raw, error) {
		var d bson.D
		for _, el := range cmd {
			switch el.Key {
			case "query":
				el.Value = nowhere
			case "upsert":
				el.Value = false
			case "update":
				if cmd[0].Key == "findAndModify" && pipeline != nil {
					el.Value = pipeline
				}
			case "updates":
				u := any(sent.Lookup("updates", "0", "u"))
				if pipeline != nil {
					u = pipeline
				}
				el.Value = bson.A{bson.D{{Key: "q", Value: nowhere}, {Key: "u", Value: u}}}
			case "fields":
				if pipeline != nil {
					continue
				}
			}
			d = append(d, el)
		}
		return bson.Marshal(d)
	}
	apart, err := changed(nil)
	if err != nil {
		return p, err
	}
	plain, err := changed(bson.A{bson.D{{Key: "$set", Value: bson.D{{Key: "x", Value: 1}}}}})
	return Pipeline{Name: name, Bytes: len(matched), db: db, apart: apart, plain: plain, matched: matched}, err
}

// Apart sends the command for a record that does not exist: the server parses the pipeline and
// disposes of it, and does not run it.
func (p Pipeline) Apart(ctx context.Context) error { return p.run(ctx, p.apart) }

// Plain is Apart with the shortest pipeline that there is.
func (p Pipeline) Plain(ctx context.Context) error { return p.run(ctx, p.plain) }

// Matched sends the command once more for the record that it was for.
func (p Pipeline) Matched(ctx context.Context) error { return p.run(ctx, p.matched) }

func (p Pipeline) run(ctx context.Context, cmd bson.Raw) error {
	return p.db.RunCommand(ctx, cmd).Err()
}

// Close closes the client of the pipelines.
func (p Pipeline) Close(ctx context.Context) error { return p.db.Client().Disconnect(ctx) }
