package peer

import (
	"context"
	"time"

	"github.com/bsm/redislock"
	"github.com/redis/go-redis/v9"

	"github.com/leasehold-go/leasehold/bench/internal/measure"
)

const (
	// redisRetry is the retry interval of redislock's own example; the library has no default.
	redisRetry = 100 * time.Millisecond

	// redisTTL is longer than any measurement, because redislock does not renew locks by itself.
	redisTTL = 10 * time.Minute
)

// Redis is github.com/bsm/redislock, as a [measure.System].
type Redis struct{ Addr string }

var _ measure.System = (*Redis)(nil)

// Open implements [measure.System].
func (r *Redis) Open(context.Context) (measure.Process, error) {
	return &redisProcess{redis.NewClient(&redis.Options{Addr: r.Addr})}, nil
}

type redisProcess struct{ client *redis.Client }

func (p *redisProcess) Locker(_ context.Context, key string) (measure.Locker, error) {
	return &redisLocker{client: redislock.New(p.client), key: key}, nil
}

func (p *redisProcess) Close() error { return p.client.Close() }

type redisLocker struct {
	client *redislock.Client
	key    string
	lock   *redislock.Lock
}

func (l *redisLocker) Lock(ctx context.Context) (err error) {
	ctx, cancel := context.WithTimeout(ctx, redisTTL) // as Obtain does itself if ctx has no deadline
	defer cancel()
	l.lock, err = l.client.Obtain(ctx, l.key, redisTTL, &redislock.Options{RetryStrategy: redislock.LinearBackoff(redisRetry)})
	return err
}

func (l *redisLocker) Unlock(ctx context.Context) error { return l.lock.Release(ctx) }
