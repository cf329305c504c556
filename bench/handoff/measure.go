package main

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"sync"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/event"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/leasehold-go/leasehold/dsync"
	dsyncmongo "github.com/leasehold-go/leasehold/dsync/mongo"
	"github.com/leasehold-go/leasehold/leader"
)

// measure runs the measurement that r describes in a new database, and adds the samples to r.
func measure(ctx context.Context, uri string, r *run, count int, parts bool) error {
	client, err := mongo.Connect(options.Client().ApplyURI(uri))
	if err != nil {
		return err
	}
	db := client.Database(fmt.Sprintf("handoff_%d_%d", os.Getpid(), time.Now().UnixNano()))
	defer func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 10*time.Second)
		defer cancel()
		db.Drop(ctx)
		client.Disconnect(ctx)
	}()
	ctx, cancel := context.WithCancel(ctx)
	var beside sync.WaitGroup
	defer beside.Wait()
	defer cancel()
	beside.Go(func() { application(ctx, db, r.Writes) })

	counts := &counter{names: make(map[string]int)}
	var lockers []locker
	var watches []*watch
	for i := range max(1, r.Sessions) {
		opt := options.Client().ApplyURI(uri)
		if r.Kind == "alone" {
			if i > 0 {
				break
			}
			opt.SetMonitor(counts.monitor())
		} else if parts {
			w := newWatch()
			watches = append(watches, w)
			opt.SetMonitor(w.monitor())
		}
		session, err := dsyncmongo.Connect(ctx, opt, db.Name(), &dsyncmongo.Options{Session: dsync.Options{Retention: -1}})
		if err != nil {
			return err
		}
		defer session.Close(context.WithoutCancel(ctx))
		l, err := lockerOf(session, r.Kind)
		if err != nil {
			return err
		}
		lockers = append(lockers, l)
	}
	if r.Kind == "alone" {
		return alone(ctx, r, lockers[0], counts, count)
	}
	return handOffs(ctx, r, lockers, count, db, watches)
}

// tailOplog reads the oplog of a replica set until stop is called.
func tailOplog(ctx context.Context, uri string) (stop func(), err error) {
	client, err := mongo.Connect(options.Client().ApplyURI(uri))
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithCancel(ctx)
	var reading sync.WaitGroup
	stop = func() {
		cancel()
		reading.Wait()
		client.Disconnect(context.WithoutCancel(ctx))
	}
	oplog := client.Database("local").Collection("oplog.rs")
	var last struct{ TS bson.Timestamp }
	if err := oplog.FindOne(ctx, bson.D{}, options.FindOne().SetSort(bson.D{{Key: "$natural", Value: -1}})).Decode(&last); err != nil {
		stop()
		return nil, err
	}
	cursor, err := oplog.Find(ctx, bson.D{{Key: "ts", Value: bson.D{{Key: "$gt", Value: last.TS}}}},
		options.Find().SetCursorType(options.TailableAwait).SetMaxAwaitTime(time.Second))
	if err != nil {
		stop()
		return nil, err
	}
	reading.Go(func() {
		for cursor.Next(ctx) {
		}
	})
	return stop, nil
}

// A locker is one session's mutex or election.
type locker struct{ lock, unlock func(context.Context) error }

func lockerOf(s *dsync.Session, kind string) (locker, error) {
	if kind != "leader" {
		var hold *dsync.Hold
		lock := func(ctx context.Context) (err error) {
			hold, err = s.Mutex("key").Hold(ctx)
			return err
		}
		return locker{lock, func(ctx context.Context) error { return hold.Release(ctx) }}, nil
	}
	e, err := leader.New(s, "key", nil)
	if err != nil {
		return locker{}, err
	}
	campaign := func(ctx context.Context) error {
		_, err := e.Campaign(ctx)
		return err
	}
	return locker{campaign, e.Resign}, nil
}

// warmUps is the number of unmeasured operations before the measured ones.
const warmUps = 5

// alone measures an uncontended Lock and Unlock.
func alone(ctx context.Context, r *run, l locker, c *counter, count int) error {
	for i := range warmUps + count {
		if i == warmUps {
			c.reset()
		}
		time.Sleep(rand.N(2 * time.Millisecond)) // otherwise the loop would synchronize with the server's clock
		begin := time.Now()
		if err := l.lock(ctx); err != nil {
			return err
		}
		locked := time.Now()
		time.Sleep(rand.N(2 * time.Millisecond))
		release := time.Now()
		if err := l.unlock(ctx); err != nil {
			return err
		}
		if i >= warmUps {
			r.Took = append(r.Took, time.Since(release))
			r.Locks = append(r.Locks, locked.Sub(begin))
		}
	}
	time.Sleep(100 * time.Millisecond) // so that commands sent in the background are counted, too
	r.Sent = c.reset()
	return nil
}

// handOffs keeps all sessions but the holder waiting for the key, and measures count hand-offs.
// With watches, it also records the stages.
func handOffs(ctx context.Context, r *run, lockers []locker, count int, db *mongo.Database, watches []*watch) error {
	// requeue is long enough for the former holder to join the queue again.
	const requeue = 25 * time.Millisecond
	type grant struct {
		by  int
		at  time.Time
		err error
	}
	ctx, cancel := context.WithCancel(ctx)
	var waiters sync.WaitGroup
	defer waiters.Wait()
	defer cancel()
	grants := make(chan grant, len(lockers))
	wait := func(i int) {
		waiters.Go(func() {
			err := lockers[i].lock(ctx)
			grants <- grant{i, time.Now(), err}
		})
	}
	next := func() (grant, error) {
		select {
		case g := <-grants:
			return g, g.err
		case <-time.After(30 * time.Second):
			return grant{}, fmt.Errorf("no session got the key within 30 s")
		}
	}
	wait(0)
	holder, err := next()
	if err != nil {
		return err
	}
	for i := 1; i < len(lockers); i++ {
		wait(i)
		time.Sleep(requeue)
	}
	time.Sleep(2 * time.Second) // until all sessions listen
	for i := range warmUps + count {
		time.Sleep(rand.N(2 * time.Millisecond))
		unlocked := make(chan error, 1)
		former := holder.by
		begin := time.Now()
		go func() { unlocked <- lockers[former].unlock(ctx) }()
		if holder, err = next(); err != nil {
			return err
		}
		if err := <-unlocked; err != nil {
			return err
		}
		if i >= warmUps {
			r.Took = append(r.Took, holder.at.Sub(begin))
		}
		if watches != nil {
			time.Sleep(requeue)
			parts := watches[former].since(begin, watches[holder.by], holder.at)
			write := time.Now()
			if err := rawWrite(ctx, db, -1); err != nil { // -1: a document that application does not write
				return err
			}
			if i >= warmUps {
				r.Stages = append(r.Stages, append(parts, time.Since(write)))
			}
		}
		wait(former)
		time.Sleep(requeue)
	}
	return lockers[holder.by].unlock(ctx)
}

// application makes n majority writes per second until ctx ends.
func application(ctx context.Context, db *mongo.Database, n int) {
	if n == 0 {
		return
	}
	turn := time.NewTicker(time.Second / time.Duration(n))
	defer turn.Stop()
	room := make(chan struct{}, 32)
	var writes sync.WaitGroup
	defer writes.Wait()
	for i := 0; ; i++ {
		select {
		case <-turn.C:
		case <-ctx.Done():
			return
		}
		room <- struct{}{}
		writes.Go(func() {
			defer func() { <-room }()
			rawWrite(ctx, db, i%100)
		})
	}
}

// A counter counts commands by name.
type counter struct {
	mu    sync.Mutex
	names map[string]int
}

func (c *counter) monitor() *event.CommandMonitor {
	return &event.CommandMonitor{Started: func(_ context.Context, e *event.CommandStartedEvent) {
		c.mu.Lock()
		defer c.mu.Unlock()
		c.names[e.CommandName]++
	}}
}

// reset returns the counts and starts again from zero.
func (c *counter) reset() map[string]int {
	c.mu.Lock()
	defer c.mu.Unlock()
	names := c.names
	c.names = make(map[string]int)
	return names
}
