package peer

import (
	"context"
	"crypto/rand"
	"errors"
	"time"

	mongolock "github.com/square/mongo-lock"
	"go.mongodb.org/mongo-driver/mongo"
	"go.mongodb.org/mongo-driver/mongo/options"
	"go.mongodb.org/mongo-driver/mongo/writeconcern"

	"github.com/leasehold-go/leasehold/bench/internal/measure"
)

// mongoLockRetry is how long Lock waits before it tries a held key again. The library leaves retries
// to its callers and recommends no interval; this one is from redislock's example.
const mongoLockRetry = redisRetry

// MongoLock is github.com/square/mongo-lock as a [measure.System]. It is used as its README recommends: with its
// indexes, with majority writes, and with locks that by default have no TTL. Locking needs one write; unlocking needs a
// read and a write. The library uses version 1 of the driver.
type MongoLock struct{ URI, Database string }

var _ measure.System = (*MongoLock)(nil)

// Open implements [measure.System].
func (m *MongoLock) Open(ctx context.Context) (measure.Process, error) {
	client, err := mongo.Connect(ctx, options.Client().ApplyURI(m.URI).SetWriteConcern(writeconcern.Majority()))
	if err != nil {
		return nil, err
	}
	locks := mongolock.NewClient(client.Database(m.Database).Collection("locks"))
	if err := locks.CreateIndexes(ctx); err != nil {
		return nil, errors.Join(err, client.Disconnect(ctx))
	}
	return &mongoLockProcess{client, locks}, nil
}

type mongoLockProcess struct {
	client *mongo.Client
	locks  *mongolock.Client
}

func (p *mongoLockProcess) Locker(_ context.Context, key string) (measure.Locker, error) {
	return &mongoLocker{p.locks, key, rand.Text()}, nil
}

func (p *mongoLockProcess) Close() error { return p.client.Disconnect(context.Background()) }

type mongoLocker struct {
	locks   *mongolock.Client
	key, id string
}

func (l *mongoLocker) Lock(ctx context.Context) error {
	for {
		err := l.locks.XLock(ctx, l.key, l.id, mongolock.LockDetails{})
		if !errors.Is(err, mongolock.ErrAlreadyLocked) {
			return err
		}
		select {
		case <-time.After(mongoLockRetry):
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

func (l *mongoLocker) Unlock(ctx context.Context) error {
	released, err := l.locks.Unlock(ctx, l.id)
	if err == nil && len(released) == 0 {
		return errors.New("mongo-lock released nothing: the key was not locked")
	}
	return err
}
